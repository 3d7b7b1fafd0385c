"""The pictures of chapter 12's measurements, and which implementations the plots of chapter 16 show."""

import pytest

from flashlab_course import figures
from flashlab_course.figures.benchmarks import first_kernel_name, kernel_name, shown
from flashlab_course.figures.rungs import gains, rung_before
from tests.pictures_schedules import GRID, climb, search
from tests.test_figures import labels, source, title


def test_a_rung_is_compared_with_the_one_before_and_never_with_a_detour():
    assert rung_before("fa2_exp2_forward") == "fa2_triton_forward" and rung_before("fa2_triton_forward") is None
    assert rung_before("fa2_persistent_forward") == rung_before("fa2_hopper_forward") == "fa2_tma_forward"
    assert rung_before("fa2_split_backward") == "fa2_triton_backward"


def test_gains_are_ratios_of_times_and_ties_are_no_gains():
    results = climb()
    assert {round(ratio, 3) for _, ratio, _ in gains(results, "fa2_hopper_forward")} == {1.25}
    assert {round(ratio, 3) for _, ratio, _ in gains(results, "fa2_hopper_forward", "sdpa_cudnn")} == {round(500 / 480, 3)}
    assert title(figures.gain_of_rung(results, "fa2_persistent_forward")) == (
        "“+ persistent”: 0.90 to 0.90 × the speed of “+ TMA”, ahead at 0 of 8 sizes, behind at 8")
    tie = figures.gain_of_rung(results, "fa2_split_forward")
    assert title(tie).endswith("ahead at 0 of 8 sizes, behind at 0")
    assert {line.get_markerfacecolor() for line in tie.axes[0].lines if line.get_marker() not in ("None", "")} == {"white"}


def test_a_size_that_one_of_two_lacks_is_left_out():
    results = climb()
    for row in results["rows"]:
        if (row["implementation"], row["N"]) == ("fa2_tma_forward", 1024):
            row |= {"skipped": "out of memory", "ms": None}
    assert {row["N"] for row, *_ in gains(results, "fa2_hopper_forward")} == {2048}
    with pytest.raises(ValueError, match="'fa2_pipelined_forward' and 'fa2_tuned_forward' were both measured"):
        figures.gain_of_rung(results, "fa2_pipelined_forward")


def test_the_ladder_names_first_kernel_and_peers_in_its_title():
    fig = figures.kernels_beside_peers(climb(), 128, 2048, False)
    assert title(fig) == "Gluon, Hopper runs at 500 TFLOP/s: 1.67 × the first kernel, 1.61 × SDPA flash, 1.04 × SDPA cuDNN"
    assert {"300", "330   1.10 ×", "360   0.90 ×", "500   1.25 ×", "SDPA cuDNN 480"} <= set(labels(fig.axes[0]))
    assert "“+ persistent” is a detour" in source(fig)
    with pytest.raises(ValueError, match="d = 128, N = 512"):
        figures.kernels_beside_peers(climb(), 128, 512, False)


def test_a_search_says_what_the_hand_would_have_lost():
    fig = figures.times_of_tiles(search(), GRID, (128, 64, 8, 2))
    assert title(fig) == ("Of 12 choices the slowest takes 2.10 times as long as the fastest; what the hand had picked takes "
                          "110.0 % longer than the fastest")
    assert sorted(text for ax in fig.axes for text in labels(ax)) == sorted(f"{1 + n / 10:.2f}" for n in range(12))
    assert "hand" not in title(figures.times_of_tiles(search())) and "by hand" not in source(figures.times_of_tiles(search()))
    with pytest.raises(ValueError, match="causal = True"):
        figures.times_of_tiles(search(), causal=True)


def test_plots_show_the_first_and_the_last_kernel():
    """Eight rungs and four peers were thirteen lines."""
    results = climb()
    names = ["fa2_triton_forward", "sdpa_flash", "fa2_hopper_forward", "sdpa_cudnn"]
    assert shown(results) == names and (first_kernel_name(results), kernel_name(results)) == (names[0], names[2])
    assert "fa2_tma_forward" in shown(results, focus="fa2_tma_forward")
    fig = figures.tflops(results)
    assert set(labels(fig.axes[0])) == {"FA2 in Triton", "SDPA flash", "Gluon, Hopper", "SDPA cuDNN"}
    assert "Not drawn: the 4 kernels between the first and the last (chapter 12)." in source(fig)
    assert "+ TMA" in labels(figures.runtime_against_N(results, focus="fa2_tma_forward").axes[0])


def test_a_last_kernel_that_did_not_run_is_not_the_last():
    """On a GPU before Hopper the last rung has rows, and a reason in each of them."""
    results = climb()
    for row in results["rows"]:
        if "hopper" in row["implementation"]:
            row |= {"skipped": "not for this GPU", "ms": None, "tflops": None}
    assert kernel_name(results) == "fa2_persistent_forward" and "+ persistent" in title(figures.tflops(results))
