"""The pictures of chapters 08, 10 and 11: what their titles claim comes from what they are given, and changes with it."""

import re

import pytest
import torch

from flashlab_course import figures
from tests import pictures_backward as data


def title(fig):
    return fig.get_suptitle().replace("\n", " ")


def texts(fig):
    return [text.get_text() for ax in fig.axes for text in ax.texts]


def test_the_softmax_jacobian_gains_what_the_others_lose():
    fig = figures.softmax_jacobian([0.0, 0.0])                            # p = 1/2, 1/2: diag(p) − p pᵀ is ±1/4
    assert title(fig).startswith("Raise score 0: its own weight gains 0.25 for each unit, the others lose 0.25")
    assert [text for text in texts(fig) if re.match(r"[+-]", text)] == ["+0.25", "-0.25", "-0.25", "+0.25"]


def test_the_dataflow_has_no_arrow_from_P_to_D_in_flash_attention():
    """Boxes are all there, and FlashAttention's D needs no N x N matrix: one arrow fewer goes out of a square box."""
    flash, textbook = figures.backward_dataflow(1024, 64), figures.backward_dataflow(1024, 64, flash=False)
    assert {"L", "O"} <= set(texts(flash)) and not {"L", "O"} & set(texts(textbook))
    assert texts(flash).count("a tile") == texts(textbook).count("N × N") == 4
    assert "1 MiB" in title(flash) and "4 MiB" in title(flash) and "4 MiB" in title(textbook)


def test_crossings_are_counted_from_the_log():
    fig = figures.matrix_crossings(data.both_naive(), 64)
    assert "7 times in naive_forward and 18 times in naive_backward" in title(fig)


def test_two_passes_number_every_tile_once_in_each():
    fig = figures.two_passes(data.two_pass_log(), 64, 96)
    columns, rows = ([text.get_text() for text in ax.texts if "." in text.get_text()] for ax in fig.axes)
    assert sorted(columns) == sorted(f"{j}.{i}" for j in range(3) for i in range(1, 5))
    assert sorted(rows) == sorted(f"{i}.{j}" for i in range(4) for j in range(1, 4))


def test_sums_in_one_order_or_in_several():
    assert "one result" in title(figures.sums_by_order([1.0, 1.0], 1.0, 4))
    assert "2 different results" in title(figures.sums_by_order([1.0, 1.0 + 1e-6], 1.0, 4))


@pytest.mark.parametrize("name, lines", [("fa1_backward", 19), ("fa2_backward", 15)])
def test_published_lines_stand_beside_lines_that_are_in_the_source(name, lines):
    fig = figures.algorithm_beside_code(name)
    assert f"of {lines} are not the same" in title(fig)
    with pytest.raises(ValueError, match="name must be one of fa1_backward, fa2_backward, got 'fa3'"):
        figures.algorithm_beside_code("fa3")


def test_a_line_that_left_the_source_is_missed(monkeypatch):
    from flashlab_course.figures import published

    where = published.PUBLISHED["fa1_backward"]
    monkeypatch.setitem(published.PUBLISHED, "fa1_backward", (*where[:3], [(1, "x", "no such line", "")]))
    with pytest.raises(ValueError, match="has no line 'no such line' any more"):
        figures.algorithm_beside_code("fa1_backward")


def test_the_grid_shows_each_program_and_the_short_block():
    fig = figures.program_grid(2, 3, 100, 32)
    assert title(fig).startswith("24 programs") and "last block has 4 of 32 rows" in title(fig)
    assert sorted(map(int, texts(fig))) == list(range(24))


def test_causal_tiles_count_by_row_and_by_column():
    by_query = data.pictures()["causal_tiles"]()
    assert title(by_query).startswith("Program 3 visits 6 tiles, program 0 visits 3; 4 of 18 visited")
    log = [event for event in data.two_pass_log(causal=True) if event.kernel == "fa2_backward_dkdv"]
    by_key = figures.causal_tiles(log, 64, 96, owner="key")
    assert title(by_key).startswith("Program 0 visits 4 tiles, program 2 visits 2; 4 of 10 visited")


def test_tiles_of_a_mask_and_of_packed_sequences():
    """Six blocks a side, then two sequences of three and two blocks."""
    log = lambda n, **mask: data.log_of(data.fa2_forward, *data.tensors(n, n)[:3], B_r=16, B_c=16, **mask)
    causal, packed = [(log(96, causal=True), 0)], [(log(48, causal=True), 0), (log(32, causal=True), 48)]
    fig = figures.tile_grids({"causal": causal, "packed": packed}, 96)
    assert title(fig) == "Tiles computed: 21 for causal, 9 for packed"
    with pytest.raises(ValueError, match="the log of 'causal' must have loads of Q and of K"):
        figures.tile_grids({"causal": [([], 0)]}, 96)
    corners = {(int(p.get_x()), int(p.get_y())) for p in fig.axes[1].patches[1:]}
    assert (48, 48) in corners and (48, 64) in corners and (0, 48) not in corners


def test_float16_ends_where_pytorch_says():
    assert title(figures.scores_and_limit(torch.tensor([65504.0, 70000.0, -1e5, 1.0]))).startswith("2 of 4 scores")


def test_titles_of_errors_and_roundings():
    assert "9 to 9 times" in title(figures.errors_by_dtype(data.ERRORS, "Measured here."))
    budget = figures.rounding_budget({"P": 3.0, "O": 4.0}, "Measured here.")
    assert title(budget) == "“O” makes 64 % of the squared error, “P” the rest"
    assert title(figures.compiled_kernels(data.COMPILED)).startswith("1 of 2 kernels spills registers")
    assert title(figures.compiled_kernels(data.COMPILED[:1])).startswith("None of the 1 spills")
    assert title(figures.compiled_kernels([row | {"spills": 8} for row in data.COMPILED])).startswith("2 of 2 kernels spill reg")


def test_the_same_mask_is_said_to_be_the_same():
    kept = torch.tensor([[True, False], [True, True]])
    assert title(figures.masks_compared(kept, kept, ("a", "b"))).startswith("The same mask")
    assert title(figures.masks_compared(kept, ~kept, ("a", "b"))).startswith("100 %")


def test_a_padded_weight_is_infinite_from_some_score_on():
    overflows = figures.padded_weight([0, -50, -100, -150], [1.0, 1e20, float("inf"), float("inf")])
    assert "from scores of -100 on it is infinite" in title(overflows)
    assert "stays finite" in title(figures.padded_weight([0, -50], [1.0, 1e20]))


def test_losses_are_held_against_the_reference():
    same = {"SDPA": [2.0, 1.0, 0.5], "ours": [2.0, 1.0, 0.5001], "wrong": [2.0, 1.1, 1.5]}
    assert title(figures.loss_curves(same, "SDPA", "Measured here.")) == (
        "ours and SDPA end 1e-04 apart; “wrong” ends 1.00 behind, but looks right for 2 steps")
    two = {name: same[name] for name in ("SDPA", "ours")}
    assert title(figures.loss_curves(two, "SDPA", "Measured here.")) == "ours and SDPA end 1e-04 apart"
    five = {name: [3.0, 2.0] for name in ("SDPA", "ours", "Triton, interpreted", "D left out", "your dK and dV")}
    assert title(figures.loss_curves(five, "SDPA", "Measured here.")), "the learner's own run is a fifth curve"
