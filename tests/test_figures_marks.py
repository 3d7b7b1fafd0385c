"""Figures: what is drawn is what was given, whatever that is. Titles and layout: tests/test_figures.py."""

import math

import matplotlib
import numpy as np
import pytest
import torch

import flashlab  # noqa: F401  before Triton: it decides whether kernels are interpreted

matplotlib.use("Agg")

from matplotlib.colors import to_rgb  # noqa: E402

from flashlab import cost  # noqa: E402
from flashlab.ladder import RUNGS, rung  # noqa: E402
from flashlab.rungs.fa2 import fa2_forward  # noqa: E402
from flashlab.rungs.fa2_backward import fa2_backward, fa2_backward_two_pass  # noqa: E402
from flashlab.rungs.naive import naive_forward  # noqa: E402
from flashlab_course import figures, sweeps  # noqa: E402
from flashlab_course.figures.chapter_04 import replay, visit_order  # noqa: E402
from flashlab_course.figures.chapter_06 import H100, moved_by_tensor, unit_times  # noqa: E402
from flashlab_course.figures.chapter_12 import gains, standing  # noqa: E402
from flashlab_course.figures.chapter_16 import first_kernel_name, kernel_name, shown, whole_tiles  # noqa: E402
from flashlab_course.figures.colors import BLUE, ORANGE, PALE, color, ramp  # noqa: E402
from flashlab_course.figures.words import label  # noqa: E402
from flashlab_course.lesson.accesses import Touched  # noqa: E402
from tests import pictures as data  # noqa: E402
from tests.pictures import CALLS, measure, qkv, title  # noqa: E402


def blue(share):
    """The colour of a cell that holds this share of the largest number."""
    return ramp(BLUE)(float(share))[:3]


def picture(name):
    return CALLS[name][0]()


def source(fig):
    return fig.get_supxlabel().replace("\n", " ")


def texts(ax):
    return [text.get_text() for text in ax.texts]


def filled(ax, fill):
    """How many cells of a matrix have that colour."""
    fills = np.asarray(ax.images[0].get_array()).reshape(-1, 3)
    return int(np.isclose(fills, to_rgb(fill), atol=0.003).all(1).sum())


def markers(fig, fill):
    return {line.get_marker() for ax in fig.axes for line in ax.lines if line.get_color() == fill} - {"None", ""}


# ---- curves, bars and matrices

def test_curves_draw_the_numbers_given_and_dash_the_formulas():
    fig = picture("curves")
    marks, formula, yours, *_ = fig.axes[0].lines
    assert list(marks.get_ydata()) == [10, 20] and marks.get_linestyle() == "None"
    assert list(formula.get_xdata()) == [1, 2, 4] and formula.get_linestyle() == "--"
    assert marks.get_color() == formula.get_color() == color("fa2_forward") and yours.get_color() == figures.YOURS
    assert {"FA2", "yours", "a ceiling", "a wall"} == set(texts(fig.axes[0]))


def test_names_of_lines_never_lie_on_each_other():
    fig = picture("curves: names at one place")
    places = [text.get_position()[1] for text in fig.axes[0].texts]
    assert len(set(places)) == 6 and max(map(abs, places)) <= 13 * 3, "they are moved, and no further than needed"


def test_bars_are_as_long_as_their_numbers():
    assert [bar.get_width() for bar in picture("bars").axes[0].patches] == [1, 300]
    ax = picture("bars: in parts").axes[0]
    found = [(bar.get_x(), bar.get_width()) for bar in ax.patches]
    assert found == [(0, 2**20), (0, 2**19), (2**20, 2**10), (2**19, 0)]
    assert {"1 MiB", "512 KiB", "a budget"} == set(texts(ax))


def test_matrices_show_sign_size_and_what_is_missing():
    numbers, mask, lettered = picture("matrices").axes
    assert texts(numbers) == ["1", "-2", "", "0"] and not texts(mask)
    assert [filled(numbers, fill) for fill in (ORANGE, "white", PALE)] == [1, 1, 1]
    assert filled(mask, PALE) == 6 and texts(lettered) == ["a", "b"]


# ---- chapters 00 to 08

def test_bytes_add_up_to_the_memory():
    mem = measure(naive_forward, *qkv(64))
    ax = figures.traffic_by_op(mem).axes[0]
    assert sum(bar.get_width() for bar in ax.patches) == mem.read + mem.written
    assert [t.get_text().split()[1] for t in ax.get_yticklabels()] == ["QKᵀ", "scale", "softmax", "PV"]


def test_the_ladder_names_every_rung():
    said = " ".join(texts(figures.ladder().axes[0])).replace("\n", " ")
    assert all(rung.name in said and rung.new in said for rung in RUNGS)


def test_a_roofline_tells_measured_from_modelled_and_gives_rungs_their_colour():
    roof, *dots = picture("roofline").axes[0].lines
    assert roof.get_linestyle() == "--" and list(roof.get_ydata())[1:] == [600, 600]
    assert [line.get_ydata()[0] for line in dots if line.get_markerfacecolor() == "white"] == [600]
    assert [line.get_color() for line in dots[-2:]] == [color("naive_forward"), color("fa2_triton_forward")]


@pytest.mark.parametrize("N_q, N_k, causal",
                         [(64, 64, False), (64, 64, True), (40, 72, True), (72, 40, True), (50, 33, False)])
def test_replay_visits_every_tile_once_and_accounts_for_every_byte(N_q, N_k, causal):
    for name, log in data.logs(N_q=N_q, N_k=N_k, causal=causal).items():
        visits, moves = replay(log)
        tiles = [(i, j) for i in range(math.ceil(N_q / 16)) for j in range(math.ceil(N_k / 16))]
        if name == "fa1_forward":
            tiles.sort(key=lambda tile: tile[1])                 # key blocks outside, queries inside; skips none
        elif causal:
            tiles = [(i, j) for i, j in tiles if j * 16 <= min(N_q, (i + 1) * 16) - 1 + N_k - N_q]
        assert [(rows[0] // 16, cols[0] // 16) for rows, cols in visits] == tiles
        order = visit_order(log, N_q, N_k)
        assert [order[tile] for tile in tiles] == list(range(1, len(tiles) + 1))
        assert np.isfinite(order).sum() == len(tiles), "a tile that was skipped has no number"
        events = [event for event in log if event.kind in ("load", "store")]
        moved = [sum(getattr(event, key) for event in events) for key in ("read", "written")]
        assert [sum(column) for column in zip(*moves, strict=True)] == moved
    (_, fa1), (_, fa2) = (replay(log) for log in data.logs().values())
    block = 16 * 16 * 4
    assert fa1[1] == [2 * block + 2 * 64, block + 2 * 64], "Q, O, l, m come, and O, l, m go"
    assert fa2[1] == [2 * block, 0] and fa2[3] == [2 * block, block + 64], "O and L leave after the last key block"


def test_times_of_units_follow_from_the_published_rates():
    """At d = 128 an H100's exponentials take half as long as its products (FlashAttention-3, section 3.1)."""
    times = unit_times(128, 8)
    assert times["exponential"] / times["products"] == pytest.approx(0.5, abs=0.01)
    assert times["other float32"] == 8 / (H100["float32"] / 2)           # a lone operation takes a multiply-add's place


@pytest.mark.parametrize("f", [fa2_backward, fa2_backward_two_pass])
def test_traffic_by_tensor_adds_up_to_the_cost(f):
    Q, K, V, dO = (torch.randn(40, 8).half() for _ in range(4))
    O, L = fa2_forward(Q, K, V)
    moved = moved_by_tensor(measure(f, Q, K, V, O, dO, L, B_r=8, B_c=8).log, "dQ")
    assert sum(moved.values()) == getattr(cost, f.__name__)(40, 40, 8, B_r=8, B_c=8, element_size=2).traffic


def test_marks_lie_on_the_formula_and_what_does_not_fit_is_said():
    marks, formula, *_ = figures.traffic_against(sweeps.over_N([32, 64, 128], d=16)).axes[0].lines
    assert formula.get_linestyle() == "--" and list(marks.get_ydata()) == list(formula.get_ydata())
    fits, over = sweeps.over_N([32, 64], d=16, rungs=["fa2_forward"])
    fig = figures.traffic_against([fits, over | {"measured": None}])
    assert "Without a mark: the tiles do not fit" in source(fig) and len(fig.axes[0].lines[0].get_xdata()) == 1


def test_counters_stand_beside_their_model():
    fig = picture("model_vs_counters")
    assert len(fig.axes[0].lines) == 3 and set(texts(fig.axes[1])) == {"model", "DRAM", "L2"}
    model, dram, _ = fig.axes[1].lines
    assert model.get_linestyle() == "--"
    assert model.get_ydata()[0] == 16 * cost.fa2_forward(1024, 1024, 64, B_r=128, B_c=64, element_size=2).traffic
    kernel = [r for r in data.counters()["rows"] if r["implementation"] == "fa2_triton_forward"]
    assert list(dram.get_ydata()) == [r["dram_read"] + r["dram_written"] for r in kernel]
    failed = data.counters()
    failed["rows"][-1] |= {"dram_read": None, "dram_written": None, "l2_bytes": None, "skipped": "no permission"}
    assert "Missing: FA2 in Triton at N = 16384 (no permission)." in source(figures.model_vs_counters(failed))


def test_the_backward_pictures_are_what_they_are_of():
    flash, textbook = (texts(picture(name).axes[0]) for name in ("backward_dataflow", "backward_dataflow: textbook"))
    assert {"L\nN", "O\nN × d"} <= set(flash) and not {"L\nN", "O\nN × d"} & set(textbook)
    assert sum("a tile" in text for text in flash) == sum("N × N" in text for text in textbook) == 4


# ---- chapter 09

def test_a_run_that_ended_early_says_why_in_its_place():
    problem = "it raised ValueError: no grid"
    for draw in (figures.vector_accesses, figures.matrix_accesses, figures.times_touched):
        for run in (Touched(problem=problem), Touched({"X": None, "Y": None}, [], problem)):   # before, after a launch
            fig = draw({"yours": run, "absent": None})
            assert texts(fig.axes[0])[0] == f"yours: {problem}" and not any(ax.axison for ax in fig.axes)


def test_lanes_of_a_vector_those_the_mask_holds_back_and_those_astray():
    assert [filled(picture("vector_accesses").axes[0], fill) for fill in (BLUE, blue(0.15))] == [6, 2]
    astray = [access._replace(mask=access.mask | True) for access in data.VECTOR.accesses]
    fig = figures.vector_accesses({"careless": Touched(data.VECTOR.tensors, astray)})
    assert "2 lie outside the tensors" in title(fig) and filled(fig.axes[0], ORANGE) == 2


def test_programs_of_a_matrix_and_how_often_they_touch_it():
    tensors, accesses = data.MATRIX.tensors, data.MATRIX.accesses
    rows = [[str(program)] * 4 + [""] * 2 for program in (0, 0, 1, 1)]
    assert texts(picture("matrix_accesses").axes[1]) == sum(rows, [])
    again = next(access for access in accesses if access.kind == "store")._replace(program=(9,))
    fig = figures.matrix_accesses({"add": Touched(tensors, [*accesses, again])})
    assert "8 stored by several programs" in title(fig) and filled(fig.axes[1], ORANGE) == 8
    fewer = [access for access in accesses if access.program != (1,)]
    assert "16 of 24 elements never stored" in title(figures.matrix_accesses({"add": Touched(tensors, fewer)}))
    fig = figures.times_touched({"twice": Touched(tensors, [*accesses, *accesses])})
    assert title(fig) == "twice: X 0 to 2×, Out 0 to 2×"


def test_addresses_are_those_of_the_tensors():
    fig = figures.tile_addresses({"T": (data.T, (2, 2), (4, 4))})
    assert texts(fig.axes[0])[16:24] == ["14", "15", "16", "17", "18", "19", "20", "21"], "row 2, one place too long"
    assert filled(fig.axes[0], ORANGE) == 2 and filled(fig.axes[0], BLUE) == 6


# ---- chapters 12 to 16

def test_a_gain_is_over_the_rung_before_where_both_were_measured_and_a_tie_is_no_lead():
    """Otherwise a lead within the scatter of the runs would look like a lead."""
    results = data.climb()
    assert {round(ratio, 3)
            for _, ratio, _ in gains(results, "fa2_hopper_forward", "sdpa_cudnn")} == {round(500 / 480, 3)}
    for row in results["rows"]:
        if (row["implementation"], row["N"]) == ("fa2_tma_forward", 1024):
            row |= {"skipped": "out of memory", "ms": None}
    assert {row["N"] for row, *_ in gains(results, "fa2_hopper_forward")} == {2048}
    found = [({}, 1.2, False), ({}, 1.2, True), ({}, 0.9, True), ({}, 0.9, False), ({}, 0.8, False)]
    assert standing(found) == "ahead at 1 of 5 sizes, tied at 2, behind at 2"


def test_bars_say_their_speed_and_their_gain():
    assert {"300", "330  1.10 ×", "500  1.25 ×", "SDPA cuDNN: 480\n"} <= set(
        texts(picture("kernels_beside_peers").axes[0]))
    shown_times = sorted(text for text in texts(picture("times_of_tiles").axes[0]) if text)
    assert shown_times == sorted(f"{1 + n / 10:.2f}" for n in range(12))


@pytest.fixture
def scratch_rung():
    """One more line in the ladder, in a colour and with a marker that no other has."""
    new = {"name": "scratch_forward", "title": "the next idea", "color": "#123456", "marker": "P"}
    RUNGS.append(rung("fa2_triton_forward")._replace(**new))
    yield lambda rows: [row | {"implementation": "scratch_forward"} for row in rows
                        if row["implementation"] == "fa2_triton_forward"]
    RUNGS.pop()


KEYS = ("ms", "peak_bytes", "tflops", "rms_error")


def test_a_new_rung_is_drawn_without_a_change_to_any_figure(scratch_rung):
    points = [point | {"rung": "scratch_forward"} for point in sweeps.over_N([32, 64], d=16, rungs=["fa2_forward"])]
    fig = figures.traffic_against(points)
    assert "the next idea" in texts(fig.axes[0]) and markers(fig, "#123456") == {"P"}
    results = data.forward()
    assert "FA2 in Triton" in title(figures.benchmark(results, "ms"))
    results["rows"] += scratch_rung(results["rows"])
    for key in KEYS:
        fig = figures.benchmark(results, key)
        assert "the next idea" in title(fig) and "the next idea" in texts(fig.axes[0])
        assert markers(fig, "#123456") == {"P"}


def test_plots_show_the_first_and_the_last_kernel_that_ran():
    """Eight rungs and four peers were thirteen lines."""
    results, names = data.climb(), ["fa2_triton_forward", "sdpa_flash", "fa2_hopper_forward", "sdpa_cudnn"]
    assert shown(results) == names and (first_kernel_name(results), kernel_name(results)) == (names[0], names[2])
    assert set(texts(figures.benchmark(results, "tflops").axes[0])) == {label(name) for name in names}
    assert "+ TMA" in texts(picture("benchmark: rate").axes[0])
    for row in results["rows"]:                                          # on a GPU before Hopper
        row |= {"skipped": "not for this GPU", "tflops": None} if "hopper" in row["implementation"] else {}
    assert kernel_name(results) == "fa2_tma_forward"
    assert "+ TMA" in title(figures.benchmark(results, "tflops"))


def test_the_source_says_what_is_missing_and_whether_it_is_live():
    fig = figures.benchmark(data.forward(), "tflops")
    assert [line for line in fig.axes[0].lines if line.get_linestyle() == "--" and set(line.get_ydata()) == {800}]
    assert source(fig).startswith("Recorded on Invented GPU")
    assert "Missing: SDPA math at N = 16384 (out of memory)." in source(figures.benchmark(data.forward(), "peak_bytes"))
    assert source(figures.benchmark(data.forward(), "ms", live=True)).startswith("Measured here on Invented GPU")
    assert "Backward, bfloat16" in source(figures.benchmark(data.backward(), "tflops"))
    only = data.forward()
    only["rows"] = [row for row in only["rows"] if row["implementation"] == "sdpa_flash"]
    assert all("was not measured here" in title(figures.benchmark(only, key)) for key in KEYS)
    assert "was not measured" in title(figures.relative_speed(only))


def test_the_learners_kernel_stands_in_every_plot_and_in_no_title():
    results = data.with_masks()
    results["rows"] += [row | {"implementation": "yours"} for row in results["rows"]
                        if row["implementation"] == "fa2_triton_forward"]
    for fig in (*(figures.benchmark(results, key) for key in KEYS), figures.relative_speed(results)):
        assert "yours" in texts(fig.axes[0]) and "yours" not in title(fig).split(" the speed of")[-1]
    assert "yours" not in title(figures.causal_cost(results))


@pytest.mark.parametrize("B_r, B_c", [(64, 64), (128, 64), (64, 128)])
def test_whole_tiles_are_those_of_the_cost(B_r, B_c):
    N, d = 512, 64
    tiles = sum(min(N, B_c * cost.ceil_div(i + B_r, B_c)) * B_r for i in range(0, N, B_r))
    assert whole_tiles({"N": N, "d": d, "B_r": B_r, "B_c": B_c}) == pytest.approx(tiles / (N * N / 2))
    assert "not the same kernel" not in source(figures.causal_cost(data.with_masks()))
    assert "128 × 64: not the same kernel" in source(figures.causal_cost(data.with_masks(), 64))
