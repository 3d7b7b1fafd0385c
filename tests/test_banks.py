"""Bank conflicts counted, swizzling undone, and the layouts of a matrix instruction's tiles."""

from collections import Counter

from flashlab_course.gpu.banks import PIECES, accumulator_lane, column_of_pieces, operand_lane, plain, steps, swizzled


def test_steps_are_the_most_words_of_one_bank():
    assert steps(range(0, 128, 4)) == 1                # neighbours: a bank each
    assert steps([0] * 32) == 1                        # one word for all
    assert steps(range(0, 32 * 128, 128)) == 32        # one bank for all
    assert steps(range(0, 256, 8)) == 2


def test_swizzling_spreads_a_column_and_loses_nothing():
    for column in range(PIECES):
        assert steps(column_of_pieces(column, plain)) == 8 and steps(column_of_pieces(column, swizzled)) == 1
        assert steps(column_of_pieces(column, row_bytes=144)) == 1     # padding does as well
    for row in range(16):
        assert sorted(swizzled(row, piece) for piece in range(PIECES)) == list(range(PIECES))


def test_two_results_side_by_side_are_the_operand_of_the_next_product():
    """Every lane holds its share of a result, and where the next product wants it: no exchange."""
    held = Counter(accumulator_lane(row, column) for row in range(16) for column in range(8))
    assert held == dict.fromkeys(range(32), 4)
    assert all(accumulator_lane(row, column) == operand_lane(row, column) for row in range(16) for column in range(16))
