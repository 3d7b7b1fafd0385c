"""Chapter 16's pictures of why: what their titles claim follows from the rows, whatever the rows are."""

import pytest

from flashlab import cost
from flashlab.ladder import RUNGS, find
from flashlab_course import figures
from flashlab_course.figures.benchmarks import on_each_other
from flashlab_course.figures.reasons import overlap, whole_tiles
from flashlab_course.figures.style import color
from tests.pictures_reasons import EXP_RATE, points, with_masks
from tests.test_figures import drawn_in, invented_counters, invented_results, labels, source, title


def faster(name, factor, like="sdpa_flash"):
    """Rows of another implementation, so many times as fast."""
    return [row | {"implementation": name, "tflops": row["tflops"] * factor, **{key: row[key] / factor for key in
            ("ms", "ms_low", "ms_high")}} for row in invented_results()["rows"] if row["implementation"] == like]


def test_the_fastest_other_is_found_in_the_rows():
    results = invented_results()
    assert "SDPA cuDNN, has 1.50 × the speed of FA2 in Triton" in title(figures.relative_speed(results))
    results["rows"] += faster("yours", 4)
    fig = figures.relative_speed(results)
    assert "yours, has 3.50 ×" in title(fig) and "yours" in labels(fig.axes[0])


def test_a_tie_is_hollow():
    """Otherwise a lead within the scatter of the runs would look like a lead."""
    results = invented_results()
    results["rows"] += faster("tied", 1.01, like="fa2_triton_forward")
    lines = [line for line in figures.relative_speed(results).axes[0].lines if line.get_color() == color("tied")]
    marks = {line.get_markerfacecolor() for line in lines if line.get_marker() != "None"}
    assert marks == {"white"}
    assert not overlap({"ms_low": 1, "ms_high": 2}, {"ms_low": 2.1, "ms_high": 3})


def test_the_footnote_about_L_is_there_where_naive_attention_is():
    assert "also computes L" in source(figures.relative_speed(invented_results()))
    without = invented_results()
    without["rows"] = [row for row in without["rows"] if row["implementation"] != RUNGS[0].name]
    assert "also computes L" not in source(figures.relative_speed(without))
    assert "L included" in title(figures.runtime_against_N(invented_results()))


def test_counters_show_naive_attention_with_and_without_L():
    counters = invented_counters()
    half = {N: 16 * N * N * 4.5 for N in (1024, 2048, 4096, 8192, 16384)}
    fig = figures.model_vs_counters(counters, without_L=half)
    assert "290 times less, 140 times if naive attention computes no L" in title(fig)
    assert "DRAM, O alone" in labels(fig.axes[0]) and "DRAM, O alone" not in labels(fig.axes[1])
    assert "computes no L" not in title(figures.model_vs_counters(counters))


def test_limits_name_both_baselines():
    said = title(figures.limit_of_bytes(points(), "Recorded on paper."))
    assert said == "At N = 4096 its bytes allow 32 TFLOP/s to naive attention, 64 TFLOP/s if it computes O alone"


def test_shares_of_a_score_are_those_of_the_rates():
    results = with_masks(invented_results())
    best = {d: max(row["tflops"] for row in results["rows"] if row["implementation"] == "fa2_triton_forward" and row["d"] == d
                   and not row["causal"]) for d in (64, 128)}
    said = title(figures.time_of_a_score(results, EXP_RATE))
    for d in (64, 128):
        assert f"{best[d] / 800:.0%} and {best[d] * 1e12 / (4 * d) / EXP_RATE:.0%} at d = {d}".replace("%", " %") in said
    unknown = figures.time_of_a_score(results)
    assert "exponentials" not in title(unknown) and "not known" in source(unknown)
    assert "SDPA math" not in [text.get_text() for text in figures.time_of_a_score(results, EXP_RATE).axes[0].get_yticklabels()]


def test_a_launch_is_drawn_only_where_it_is_known():
    results = invented_results()
    assert "30 µs" in title(figures.short_sequences(results, 0.03, ""))
    assert "launch" not in title(figures.short_sequences(results, None, ""))


def test_other_tiles_under_the_mask_are_said():
    """A comparison of two kernels must not pass for one of a kernel with and without a mask."""
    fig = figures.causal_cost(with_masks(invented_results()))
    first, second = (ax.get_title("left") or ax.get_title() for ax in fig.axes)
    assert "64 × 64" in first and "128 × 64: not the same kernel" in first
    assert "128 × 64" in second and "not the same" not in second
    assert "the mask costs 23 % at d = 64" in title(fig)


@pytest.mark.parametrize("B_r, B_c", [(64, 64), (128, 64), (64, 128)])
def test_whole_tiles_are_those_of_the_cost(B_r, B_c):
    N, d = 512, 64
    tiles = sum(min(N, B_c * cost.ceil_div(i + B_r, B_c)) * B_r for i in range(0, N, B_r))
    assert whole_tiles({"N": N, "d": d, "B_r": B_r, "B_c": B_c}) == pytest.approx(tiles / (N * N / 2))


def test_lines_on_each_other_take_turns():
    """Four memory curves once looked like one."""
    turns = on_each_other({"a": {1: 100, 2: 100}, "b": {1: 101, 2: 102}, "c": {1: 100, 2: 200}, "d": {2: 100}})
    assert turns == {"a": (0, 3), "b": (1, 3), "c": (0, 1), "d": (2, 3)}
    results = invented_results()
    results["rows"] += [row | {"implementation": "yours"} for row in results["rows"] if row["implementation"] == "sdpa_flash"]
    assert "lie on each other" in source(figures.runtime_against_N(results))
    assert "lie on each other" not in source(figures.runtime_against_N(invented_results()))
    assert drawn_in(figures.runtime_against_N(results), find("sdpa_flash").color) == {"s"}


def test_rms_errors_can_be_drawn_and_the_title_says_so():
    results = invented_results()
    for row in results["rows"]:
        row["rms_error"] = row["error"] and row["error"] / 10
    assert "× the rms error of SDPA flash" in title(figures.error_against_float64(results, key="rms_error"))


def test_the_learners_kernel_stands_in_every_plot_of_run_times():
    results = with_masks(invented_results())
    for row in results["rows"]:
        row["rms_error"] = row["error"]
    course = [row for row in results["rows"] if row["implementation"] == "fa2_triton_forward"]
    results["rows"] += [row | {"implementation": "yours"} for row in course]
    for draw in (figures.runtime_against_N, figures.tflops, figures.peak_memory_against_N, figures.error_against_float64,
                 figures.relative_speed):
        assert "yours" in labels(draw(results).axes[0]), draw.__name__
    assert "yours" in [text.get_text() for text in figures.time_of_a_score(results, EXP_RATE).axes[0].get_yticklabels()]
    assert any(line.get_color() == figures.YOURS for line in figures.spread_of_runs(results).axes[0].lines)
    for draw in (figures.tflops, figures.relative_speed, figures.causal_cost):
        assert "yours" not in title(draw(results)).split(" the speed of")[-1], "a title is about the course's kernel"
