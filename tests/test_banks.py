"""Bank conflicts counted, swizzling undone, and the layouts of a matrix instruction's tiles."""

from flashlab_course.gpu.banks import PIECES, accumulator_lane, column_of_pieces, operand_lane, plain, steps, swizzled


def test_steps_are_the_most_words_of_one_bank():
    assert steps(range(0, 128, 4)) == 1                # neighbours: a bank each
    assert steps([0] * 32) == 1                        # one word for all
    assert steps(range(0, 32 * 128, 128)) == 32        # one bank for all
    assert steps(range(0, 256, 8)) == 2 and steps([]) == 0


def test_swizzling_spreads_a_column_and_loses_nothing():
    for column in range(PIECES):
        assert steps(column_of_pieces(column, plain)) == 8 and steps(column_of_pieces(column, swizzled)) == 1
    for row in range(16):
        assert sorted(swizzled(row, piece) for piece in range(PIECES)) == list(range(PIECES))
        assert all(swizzled(row, swizzled(row, piece)) == piece for piece in range(PIECES))


def test_padding_spreads_a_column_as_well():
    assert steps(column_of_pieces(3, row_bytes=144)) == 1


def test_every_lane_holds_its_share():
    held = [accumulator_lane(row, column) for row in range(16) for column in range(8)]
    assert sorted(set(held)) == list(range(32)) and all(held.count(lane) == 4 for lane in range(32))
    held = [operand_lane(row, column) for row in range(16) for column in range(16)]
    assert all(held.count(lane) == 8 for lane in range(32))


def test_the_scores_of_one_product_are_the_operand_of_the_next():
    """Two results side by side have every element where the next product wants its left operand: no exchange."""
    assert all(accumulator_lane(row, column) == operand_lane(row, column) for row in range(16) for column in range(16))
