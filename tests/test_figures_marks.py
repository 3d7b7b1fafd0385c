"""Figures: what is drawn is what was given, whatever that is. Titles and layout: tests/test_figures.py."""

import math
import sys
import types

import matplotlib
import pytest
import torch

import flashlab  # noqa: F401  before Triton: it decides whether kernels are interpreted

matplotlib.use("Agg")

from matplotlib.colors import same_color  # noqa: E402
from matplotlib.patches import FancyArrow, Rectangle  # noqa: E402

from flashlab import cost  # noqa: E402
from flashlab.ladder import RUNGS, Rung, find  # noqa: E402
from flashlab.memory import A100_SRAM  # noqa: E402
from flashlab.rungs.fa2 import fa2_forward  # noqa: E402
from flashlab.rungs.fa2_backward import fa2_backward, fa2_backward_two_pass  # noqa: E402
from flashlab.rungs.naive import naive_forward  # noqa: E402
from flashlab.triton_mode import interpreted  # noqa: E402
from flashlab_course import figures, sweeps  # noqa: E402
from flashlab_course.figures.chapter_03 import softmax_states  # noqa: E402
from flashlab_course.figures.chapter_04 import replay  # noqa: E402
from flashlab_course.figures.chapter_05 import tile_bytes  # noqa: E402
from flashlab_course.figures.chapter_06 import H100, moved_by_tensor, unit_times  # noqa: E402
from flashlab_course.figures.chapter_12 import gains, overlap, rung_before  # noqa: E402
from flashlab_course.figures.chapter_16 import first_kernel_name, kernel_name, on_each_other, shown  # noqa: E402
from flashlab_course.figures.chapter_16_reasons import whole_tiles  # noqa: E402
from flashlab_course.figures.colors import BLUE, ORANGE, READ, WRITTEN, color  # noqa: E402
from flashlab_course.figures.words import bytes_text, label  # noqa: E402
from flashlab_course.gpu import simt  # noqa: E402
from flashlab_course.gpu.simt import launch  # noqa: E402
from flashlab_course.lesson.accesses import Touched, touched  # noqa: E402
from tests import pictures as data  # noqa: E402
from tests.pictures import CALLS, PAPER, measure, qkv, title  # noqa: E402

interpreted_only = pytest.mark.skipif(not interpreted(), reason="watches the interpreter's accesses")


def picture(name):
    return CALLS[name][0]()


def source(fig):
    return fig.get_supxlabel().replace("\n", " ")


def texts(ax):
    return [text.get_text() for text in ax.texts]


def squares(ax, color):
    return [patch for patch in ax.patches if isinstance(patch, Rectangle) and same_color(patch.get_facecolor(), color)]


def counts(fig, color):
    return [len(squares(ax, color)) for ax in fig.axes]


def markers(fig, color):
    return {line.get_marker() for ax in fig.axes for line in ax.lines if line.get_color() == color} - {"None", ""}


# ---- chapters 00 to 02

def test_sizes_are_drawn_to_scale():
    left, right = picture("memory_hierarchy").axes
    large, small = (patch.get_width() * patch.get_height() for patch in left.patches)
    assert large / small == pytest.approx(40e9 / (108 * A100_SRAM))            # areas, not logarithms
    assert [bar.get_width() for bar in right.patches] == [1.5, 19]
    shapes = [(patch.get_height(), patch.get_width())
              for patch in figures.attention_matrices(100, 200, 10).axes[0].patches]
    assert shapes == [(100, 10), (200, 10), (200, 10), (100, 200), (100, 200), (100, 10)]


@pytest.mark.parametrize("N_q, N_k", [(4, 4), (3, 8), (8, 3)])
def test_causal_mask_is_the_oracles(N_q, N_k):
    visible = {(int(patch.get_y()), int(patch.get_x()))
               for patch in squares(figures.causal_mask(N_q, N_k).axes[-1], READ)}
    assert visible == {(i, j) for i in range(N_q) for j in range(N_k) if j <= i + N_k - N_q}


def test_traffic_by_op_adds_up_to_the_memory():
    mem = measure(naive_forward, *qkv(64))
    ax = figures.traffic_by_op(mem).axes[0]
    assert sum(bar.get_width() for bar in ax.patches) == mem.read + mem.written
    assert [t.get_text() for t in ax.get_yticklabels()] == ["QKᵀ", "scale", "softmax", "PV", "logsumexp"]
    masked = figures.traffic_by_op(measure(naive_forward, *qkv(64), causal=True)).axes[0]
    assert "mask" in [t.get_text() for t in masked.get_yticklabels()]


def test_every_crossing_is_an_arrow():
    arrows = [patch for patch in picture("crossings").axes[0].patches if isinstance(patch, FancyArrow)]
    assert len(arrows) == 10, "one down and one up for each of five operations"
    assert sum(same_color(arrow.get_facecolor(), RUNGS[0].color) for arrow in arrows) == 4


def test_squares_are_as_many_as_there_are_things():
    assert counts(picture("tile_of_scores"),
                  BLUE) == [1 * 2 + 4 * 2 + 1 * 4], "d = 2: a row of Q, four of K, four scores"
    assert counts(figures.who_sees_whom(5, 4), "white") == [0, 4 * 3 // 2, 0]
    assert counts(picture("warp_lanes"), BLUE) == [32 + 32 + 8]
    assert counts(picture("grid_and_guard"), BLUE) == [70] and counts(picture("grid_and_guard: two axes"),
                                                                      BLUE) == [200]
    assert counts(picture("tile_order"), BLUE) == [4, 4]
    chip = figures.gpu_drawn("A100").axes[0]
    assert len([patch for patch in chip.patches if patch.get_width() == 0.84]) == figures.GPUS["A100"]["SMs"] == 108
    matrices = [torch.zeros(64, 64) for _ in range(3)]
    traces = {"along": launch(simt.matrix_add, (2, 64), (32, 1))(*matrices, 64, 64),
              "down": launch(simt.matrix_add_down_columns, (2, 64), (32, 1))(*matrices, 64, 64)}
    fig = figures.sectors_touched(traces, columns=64)
    assert counts(fig, BLUE) == [32, 32] and counts(fig, WRITTEN) == [4, 32]


def test_the_ladder_names_every_rung():
    said = " ".join(texts(figures.ladder().axes[0])).replace("\n", " ")
    assert all(rung.name in said and rung.new in said for rung in RUNGS)


def test_an_sm_is_filled_until_one_limit_is_used_up():
    widths = [patch.get_width() for patch in squares(picture("sm_filled").axes[0], BLUE)]
    assert widths == pytest.approx([1 / 8] * 2 + [1 / 32] * 2 + [1 / 2] * 2 + [49 / 228] * 2)


def test_littles_law_meets_the_bandwidth():
    rows = [{"each": 4, "in_flight": 2**n, "tb_s": 1.0} for n in (16, 22)]
    slope = figures.bytes_in_flight(rows, 500, 2.097152, PAPER).axes[0].lines[0]
    assert slope.get_xdata()[1] == pytest.approx(2**20) and slope.get_ydata()[1] == pytest.approx(2.097152)
    assert slope.get_ydata()[0] == pytest.approx(slope.get_xdata()[0] / 500e-9 / 1e12)        # bytes over seconds


def test_the_rounds_of_a_sum_are_those_of_the_kernel():
    values, total = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0], torch.zeros(1)
    launch(simt.block_sum, 1, 8, shared=8)(torch.tensor(values), total)
    assert texts(figures.halving(values).axes[0])[-9] == f"{total.item():g}" == "31"    # in the last row


def test_a_roofline_tells_measured_from_modelled_and_gives_rungs_their_colour():
    fig = picture("roofline")
    ax = fig.axes[0]
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert [line.get_ydata()[0] for line in dots if line.get_markerfacecolor() == "white"] == [600]
    assert [line.get_color() for line in dots[-2:]] == [color("naive_forward"), color("fa2_triton_forward")]
    assert "one, two" in texts(ax) and "hollow: at best" in source(fig)      # on top of each other: one line of text
    fig.draw_without_rendering()
    name = next(text for text in ax.texts if text.get_text() == "matmul").get_window_extent()
    assert name.y0 > ax.transData.transform((1, 600))[1], "the roof crosses the name out"
    assert "hollow" not in source(figures.roofline(data.ROOFLINE[:2], 3, 600, PAPER))


# ---- chapters 03 to 08

def test_softmax_states_are_the_softmax_of_each_prefix():
    xs = torch.randn(20, dtype=torch.float64)
    for n, (m, l, _) in enumerate(softmax_states(xs), start=1):
        assert m == xs[:n].max().item() and l == pytest.approx(torch.exp(xs[:n] - m).sum().item())
    assert softmax_states([-math.inf, 1.0])[-1] == (1.0, 1.0, 0.0)


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
        moved = sum(event.read + event.written for event in log if event.kind in ("load", "store"))
        assert sum(nbytes for step in moves for _, _, nbytes in step) == moved


def test_replay_gives_each_step_its_own_moves():
    (_, fa1), (_, fa2) = (replay(log) for log in data.logs().values())
    moved = lambda step: " ".join(f"{verb} {T}" for verb, T, _ in step)
    assert moved(fa1[1]) == "load Q load O load l load m store O store l store m"
    assert moved(fa1[4]).startswith("load K load V")                     # the second key block
    assert moved(fa2[1]) == "load K load V" and moved(fa2[3]) == "load K load V store O store L"


def test_skipped_tiles_are_hatched_and_a_large_grid_stays_readable():
    fig = figures.tile_traversal(data.logs(causal=True), 64, 64)
    assert title(fig).startswith("FA2 skips 6 of 16 tiles: 28.2 KiB, FA1 60.2 KiB")
    assert sum(patch.get_hatch() is not None for patch in fig.axes[1].patches) == 6
    assert texts(fig.axes[0])[:5] == ["1", "5", "9", "13", "2"]         # row by row of the picture
    large = measure(fa2_forward, *qkv(81, d=4), B_r=4, B_c=4).log
    axes = figures.tile_traversal({"fa2_forward": large}, 81, 81).axes
    assert len(axes[0].get_xticks()) <= 10 and not texts(axes[0])
    thin = texts(figures.tile_traversal(data.logs("fa2_forward", N_q=34, N_k=34), 34, 34).axes[0])
    assert thin == ["1", "2", "4", "5"], "tiles 3, 6, 7, 8, 9 are two rows or columns thin"


def test_attention_tiles_mark_one_row_and_nothing_else():
    marked = {text.get_text() for text in picture("attention_tiles").axes[0].texts if text.get_color() == "white"}
    assert marked == {"$S_{31}$", "$S_{32}$", "$Q_3$", "$O_3$", "$V_1$", "$V_2$", "$K_1^T$", "$K_2^T$"}


def test_occupancy_marks_the_memorys_own_peak():
    mems = data.traversals()
    for ax, mem in zip(figures.sram_occupancy(mems).axes, mems.values(), strict=True):
        assert {f"peak {bytes_text(mem.sram_peak)}", "budget 192 KiB"} <= set(texts(ax))


def test_tile_bytes_are_what_the_rung_keeps_on_chip():
    """When QKᵀ has been made, the four strips and S_ij are there, and the two small vectors of the running state."""
    from flashlab.rungs.fa1 import fa1_forward

    first = next(event for event in measure(fa1_forward, *qkv(64), B_r=16, B_c=32).log if event.name == "mm")
    expected = tile_bytes(16, 32, 16)
    assert first.live == sum(expected[name] for name in ("K_j", "V_j", "Q_i", "O_i", "S_ij")) + 2 * 16 * 4


def test_share_of_S_with_and_without_the_minimum():
    """min(·, d) keeps S_ij at a quarter of the SRAM or less; without it the square grows as 1/d²."""
    capped, square = (list(line.get_ydata()) for line in picture("share_of_S").axes[0].lines[:2])
    assert max(capped) <= 0.25 and square[0] == pytest.approx(4 * square[1]) == pytest.approx(3)


def test_times_of_units_follow_from_the_published_rates():
    """At d = 128 an H100's exponentials take half as long as its products (FlashAttention-3, section 3.1)."""
    times = unit_times(128, 8)
    assert times["exponential"] / times["products"] == pytest.approx(0.5, abs=0.01)
    assert times["other float32"] == 8 / (H100["float32"] / 2)           # a lone operation takes a multiply-add's place


@pytest.mark.parametrize("f", [fa2_backward, fa2_backward_two_pass])
def test_traffic_by_tensor_adds_up_to_the_cost(f):
    Q, K, V, dO = (torch.randn(40, 8).half() for _ in range(4))
    moved = moved_by_tensor(measure(f, Q, K, V, *fa2_forward(Q, K, V)[:1], dO, fa2_forward(Q, K, V)[1], B_r=8,
                                    B_c=8).log, "dQ")
    read, written, _ = getattr(cost, f.__name__)(40, 40, 8, B_r=8, B_c=8, element_size=2)
    assert [sum(column) for column in zip(*moved.values(), strict=True)] == [read, written]


def test_dots_lie_on_the_formula_and_a_difference_is_said():
    points = sweeps.over_N([32, 64, 128], d=16)
    fig = figures.traffic_against_N(points)
    line, dots = fig.axes[0].lines[:2]
    assert line.get_linestyle() == "--" and list(line.get_ydata()) == list(dots.get_ydata())
    assert "counted by flashlab.memory, equal to the formulas" in source(fig) and "tiles of" in source(fig)
    points[0]["measured"] += 4
    assert "NOT all equal" in source(figures.traffic_against_N(points))
    untiled = sweeps.over_N([8], d=4, rungs=["naive_forward", "online_softmax_forward"])
    assert "tiles of" not in source(figures.traffic_against_N(untiled))
    mine = [untiled[0] | {"rung": "yours: FA2", "B": 16}]
    assert "tiles of 16 rows" in source(figures.traffic_against_N(untiled + mine)), "the learner's code has tiles"


def test_the_overflow_is_named_for_each_rung():
    text = next(text for text in texts(picture("traffic_against_tile").axes[0]) if "SRAM overflow" in text)
    assert "FA1 from B = 32" in text and "FA2 from B = 32" in text
    assert not any("overflow" in text for text in texts(picture("traffic_against_tile: all fit").axes[0]))


def test_counters_stand_beside_their_model():
    fig = picture("model_vs_counters")
    model, dram, _ = fig.axes[1].lines
    assert model.get_linestyle() == "--" and set(texts(fig.axes[1])) == {"model", "DRAM", "L2"}
    assert model.get_ydata()[0] == 16 * cost.fa2_forward(1024, 1024, 64, B_r=128, B_c=64, element_size=2).traffic
    kernel = [r for r in data.counters()["rows"] if r["implementation"] == "fa2_triton_forward"]
    assert list(dram.get_ydata()) == [r["dram_read"] + r["dram_written"] for r in kernel]
    failed = data.counters()
    failed["rows"][-1] |= {"dram_read": None, "dram_written": None, "l2_bytes": None, "skipped": "no permission"}
    fig = figures.model_vs_counters(failed)
    assert "At N = 8192 DRAM moves" in title(fig)
    assert "Missing: FA2 in Triton at N = 16384: no permission." in source(fig)


def test_the_backward_pictures_are_what_they_are_of():
    entries = texts(picture("jacobian_of_product").axes[0])
    assert len(entries) == 6 * 6 and sum(text != "0" for text in entries) == 3 * 2 * 2
    gains_and_losses = texts(figures.softmax_jacobian([0.0, 0.0]).axes[1])     # p = 1/2, 1/2: diag(p) − p pᵀ is ±1/4
    assert gains_and_losses == ["+0.25", "-0.25", "-0.25", "+0.25"]
    flash, textbook = (texts(picture(name).axes[0]) for name in ("backward_dataflow", "backward_dataflow: textbook"))
    assert {"L", "O"} <= set(flash) and not {"L", "O"} & set(textbook)
    assert flash.count("a tile") == textbook.count("N × N") == 4
    columns, rows = ({text for text in texts(ax) if "." in text} for ax in picture("two_passes").axes)
    assert columns == {f"{j}.{i}" for j in range(3) for i in range(1, 5)}
    assert rows == {f"{i}.{j}" for i in range(4) for j in range(1, 4)}


# ---- chapters 09 to 10

def test_a_run_that_ended_early_says_why_in_its_place():
    problem = "it raised ValueError: no grid"
    for draw in (figures.vector_accesses, figures.matrix_accesses, figures.times_touched):
        for run in (Touched(problem=problem),
                    Touched({"X": None, "Y": None}, [], problem)):     # before or after a launch
            fig = draw({"yours": run, "absent": None})
            assert texts(fig.axes[0])[0].replace("\n",
                                                 " ") == f"yours: {problem}" and not any(ax.axison for ax in fig.axes)
    assert "no grid" in texts(figures.memory_line(Touched(problem=problem)).axes[0])[0]


@interpreted_only
def test_lanes_of_a_vector_those_the_mask_holds_back_and_those_astray():
    from flashlab_course.gpu.vector_add import one_by_one_kernel, vector_add

    fig = figures.vector_accesses({"wanted": touched(lambda: vector_add(torch.ones(10), torch.ones(10), B=4)),
                                   "yours": None})
    assert title(fig) == "wanted: 36 addresses, the masks hold back 6, none lies outside the tensors"
    assert [len(squares(ax, color)) for ax, color in zip(fig.axes, (BLUE, BLUE, READ), strict=True)] == [10, 10, 10]
    X, Y, Out = torch.zeros(3, 16)[:, :10]
    fig = figures.vector_accesses({"careless": touched(lambda: one_by_one_kernel[(3,)](X, Y, Out, 12,
                                                                                       4))})   # told of 12 elements
    assert "6 lie outside the tensors" in title(fig) and counts(fig, ORANGE) == [2, 2, 2]


@interpreted_only
def test_programs_of_a_matrix_and_how_often_they_touch_it():
    from flashlab_course.gpu.matmul import matmul
    from flashlab_course.gpu.matrix_add import matrix_add

    add = touched(lambda: matrix_add(torch.randn(5, 7), torch.randn(7, 5).T, B_m=2, B_n=4))
    fig = figures.matrix_accesses({"add": add})
    assert title(fig) == "Each element of Out is stored by one of 6 programs, the masks hold back 39 addresses"
    assert texts(fig.axes[2]) == [str(2 * (i // 2) + j // 4) for i in range(5) for j in range(7)]
    both = Touched(add.tensors, add.accesses + [access._replace(program=(9, 9)) for access in add.of("Out")[:1]])
    fig = figures.matrix_accesses({"add": both})
    assert "8 of 35 elements of Out stored by several" in title(fig) and counts(fig, ORANGE)[2] == 8
    fewer = Touched(add.tensors, [access for access in add.accesses if access.program != (2, 1)])
    assert "3 of 35 elements of Out never stored" in title(figures.matrix_accesses({"add": fewer}))
    assert title(figures.memory_line(add)) == "Program 0's tile lies in 2 pieces of X, 4 pieces of Y, 2 pieces of Out"
    product = touched(lambda: matmul(torch.randn(48, 32), torch.randn(32, 80), B_m=16, B_n=16, B_k=16))
    assert [texts(ax) for ax in figures.times_touched({"product": product}).axes] == [["5×"], ["3×"], ["1×"]]


def test_addresses_are_those_of_the_tensors():
    T = torch.arange(12).view(3, 4)
    numbers = [text for text in texts(figures.layout_addresses({"T": T, "T.T": T.T}).axes[1]) if text.isdigit()]
    assert numbers == [str(n) for view in (T, T.T) for n in view.flatten().tolist()]
    assert figures.address_walk({"T": T, "T.T": T.T}).axes[1].lines[0].get_ydata().tolist()[:4] == [0, 4, 8, 1]
    assert counts(picture("tiles_and_addresses: wrong"), ORANGE) == [1]
    for other in (torch.zeros(4), None, "offsets"):
        assert "your" not in title(figures.tiles_and_addresses({"T": (data.T, (2, 2), (4, 4))}, offsets={"T": other}))


def test_float16_ends_where_pytorch_says():
    for value in (1e-8, 2.9e-8, 3.1e-8, 6e-8, 65504.0, 65520.0, 1e6):
        fits = 0 < torch.tensor(value).half() < torch.inf
        assert ("holds all" in title(figures.float16_range({"it": value}))) == fits


def test_a_learners_count_is_drawn_where_there_is_one():
    rows = [{"stride": n, "ms": float(n)} for n in (1, 2, 4, 8, 16)]
    lines = figures.slower_with_stride(rows, PAPER, {n: (min(32, 4 * n), True) for n in (1, 2, 4, 8, 16)}).axes[0].lines
    assert lines[1].get_ydata().tolist() == [1, 2, 4, 8, 8]
    for nothing in (None, {1: None, 2: None}, {1: (), 2: 5}):
        assert len(figures.slower_with_stride(rows, PAPER, nothing).axes[0].lines) == 1


def test_the_grid_shows_each_program_and_each_text_its_own_tiles():
    assert sorted(map(int, texts(picture("program_grid").axes[0]))) == list(range(24))
    corners = {(int(p.get_x()), int(p.get_y())) for p in picture("tile_grids").axes[1].patches[1:]}
    assert (48, 48) in corners and (48, 64) in corners and (0, 48) not in corners
    assert title(figures.padded_weight([0, -50], [1.0, 1e20])).endswith("it stays finite here")


# ---- chapters 12 to 16

def test_a_rung_is_compared_with_the_one_before_and_never_with_a_detour():
    assert rung_before("fa2_exp2_forward") == "fa2_triton_forward" and rung_before("fa2_triton_forward") is None
    assert rung_before("fa2_persistent_forward") == rung_before("fa2_hopper_forward") == "fa2_tma_forward"
    assert rung_before("fa2_split_backward") == "fa2_triton_backward"
    results = data.climb()
    assert {round(ratio, 3)
            for _, ratio, _ in gains(results, "fa2_hopper_forward", "sdpa_cudnn")} == {round(500 / 480, 3)}
    for row in results["rows"]:
        if (row["implementation"], row["N"]) == ("fa2_tma_forward", 1024):
            row |= {"skipped": "out of memory", "ms": None}
    assert {row["N"] for row, *_ in gains(results, "fa2_hopper_forward")} == {2048}


def test_ties_are_hollow():
    """Otherwise a lead within the scatter of the runs would look like a lead."""
    assert not overlap({"ms_low": 1, "ms_high": 2}, {"ms_low": 2.1, "ms_high": 3})
    marks = [line for line in picture("gain_of_rung: tie").axes[0].lines if line.get_marker() not in ("None", "")]
    assert {line.get_markerfacecolor() for line in marks} == {"white"}
    results = data.forward()
    results["rows"] += [row | {"implementation": "tied"} for row in results["rows"]
                        if row["implementation"] == "fa2_triton_forward"]
    tied = [line for line in figures.relative_speed(results).axes[0].lines if line.get_color() == color("tied")]
    assert {line.get_markerfacecolor() for line in tied if line.get_marker() != "None"} == {"white"}


def test_bars_say_their_speed_and_their_gain():
    fig = picture("kernels_beside_peers")
    assert {"300", "330   1.10 ×", "360   0.90 ×", "500   1.25 ×", "SDPA cuDNN 480"} <= set(texts(fig.axes[0]))
    assert "“+ persistent” is a detour" in source(fig)
    shown_times = sorted(text for ax in picture("times_of_tiles").axes for text in texts(ax))
    assert shown_times == sorted(f"{1 + n / 10:.2f}" for n in range(12))
    ends = [round(bar.get_x() + bar.get_width(), 3) for bar in picture("fp8_times").axes[0].patches]
    assert ends == [83.333, 95.238, 76.923, 111.111, 71.429, 80]


def test_decoding_pictures_show_who_has_what():
    ax = figures.sms_busy({"7 programs": 7}, sms=4).axes[0]
    assert texts(ax) == ["2", "2", "2", "1"] and "2 waves, 88% of the time" in ax.get_title(loc="left")
    of_sequences, pool = picture("pages_drawn").axes
    assert texts(of_sequences) == ["2", "0", "4"] and texts(pool) == list("012345")
    assert [ax.get_title(loc="left") for ax in picture("decode_steps").axes] == ["batch of 1", "batch of 32"]
    assert not any("SDPA" in text for text in texts(picture("decode_steps: one batch").axes[0]))


def test_a_part_of_a_ring_that_is_missing_or_done_twice_is_said():
    for spoil in (lambda found: found[1]["calls"].pop(), lambda found: found[0]["calls"].append(found[0]["calls"][-1])):
        found = data.ring_logs()
        spoil(found)
        assert "missing or computed twice" in title(figures.ring_parts(found, 8, "Measured here."))
    names = lambda **options: [ax.get_title("center")
                               for ax in figures.ring_parts(data.ring_logs(**options), 8, "-").axes]
    assert names() == [f"keys of rank {r}" for r in (0, 1, 1, 0)] and "nothing to do" in names(zigzag=False)


@pytest.fixture
def scratch_rung(monkeypatch):
    """One more line in the ladder: FA2 under another name, in a colour and with a marker that no other has."""
    module = types.ModuleType("scratch")
    module.scratch_forward = lambda *QKV, **options: fa2_forward(*QKV, **options)
    monkeypatch.setitem(sys.modules, "scratch", module)
    before = RUNGS[:]
    RUNGS.append(Rung(99, "scratch_forward", "scratch", "the next idea", chapter="99", new="-", cost=cost.fa2_forward,
                      color="#123456", marker="P", tiled=True, heads=True))
    yield lambda rows: [row | {"implementation": "scratch_forward"} for row in rows
                        if row["implementation"] == "fa2_triton_forward"]
    RUNGS[:] = before


AGAINST_N = (figures.runtime_against_N, figures.peak_memory_against_N, figures.tflops, figures.error_against_float64)


def test_a_new_rung_is_drawn_without_a_change_to_any_figure(scratch_rung):
    points = sweeps.over_N([32, 64], d=16, rungs=["naive_forward", "scratch_forward"])
    fig = figures.traffic_against_N(points)
    assert "the next idea" in texts(fig.axes[0]) and markers(fig, "#123456") == {"P"}
    results, counters = data.forward(), data.counters()
    for draw in AGAINST_N:
        assert "FA2 in Triton" in title(draw(results))
    results["rows"] += scratch_rung(results["rows"])
    for draw in AGAINST_N:
        fig = draw(results)
        assert "the next idea" in title(fig) and "the next idea" in texts(fig.axes[0]) and markers(fig,
                                                                                                   "#123456") == {"P"}
    counters["rows"] += [row | {"dram_read": 2 * row["dram_read"]} for row in scratch_rung(counters["rows"])]
    assert f"{bytes_text(7 * 16 * 16384 * 64 * 2)} for the kernel" in title(figures.model_vs_counters(counters))


def test_plots_show_the_first_and_the_last_kernel_that_ran():
    """Eight rungs and four peers were thirteen lines."""
    results, names = data.climb(), ["fa2_triton_forward", "sdpa_flash", "fa2_hopper_forward", "sdpa_cudnn"]
    assert shown(results) == names and (first_kernel_name(results), kernel_name(results)) == (names[0], names[2])
    fig = figures.tflops(results)
    assert set(texts(fig.axes[0])) == {label(name) for name in names}
    assert "Not drawn: the 4 kernels between the first and the last (chapter 12)." in source(fig)
    assert "+ TMA" in texts(picture("tflops: another focus").axes[0])
    for row in results["rows"]:                                          # on a GPU before Hopper
        row |= {"skipped": "not for this GPU", "tflops": None} if "hopper" in row["implementation"] else {}
    assert kernel_name(results) == "fa2_persistent_forward" and "+ persistent" in title(figures.tflops(results))


def test_the_source_says_what_is_missing_and_whether_it_is_live():
    fig = figures.tflops(data.forward())
    assert [line for line in fig.axes[0].lines if line.get_linestyle() == "--" and set(line.get_ydata()) == {800}]
    assert "Not drawn: SDPA math." in source(fig) and source(fig).startswith("Recorded on Invented GPU")
    assert "Missing: SDPA math at N = 16384: out of memory." in source(figures.peak_memory_against_N(data.forward()))
    assert "cut off" in source(figures.tflops(data.forward() | {"complete": False}))
    assert source(figures.tflops(data.forward(), live=True)).startswith("Measured here on Invented GPU")
    assert "Backward, bfloat16" in source(figures.tflops(data.backward()))
    only = data.forward()
    only["rows"] = [row for row in only["rows"] if row["implementation"] == "sdpa_flash"]
    for draw in AGAINST_N:
        assert "measured here" in title(draw(only)), "says that the kernel was not"
    assert "also computes L" in source(figures.relative_speed(data.forward()))
    assert "also computes L" not in source(figures.relative_speed(only))


def test_lines_on_each_other_take_turns():
    """Four memory curves once looked like one."""
    turns = on_each_other({"a": {1: 100, 2: 100}, "b": {1: 101, 2: 102}, "c": {1: 100, 2: 200}, "d": {2: 100}})
    assert turns == {"a": (0, 3), "b": (1, 3), "c": (0, 1), "d": (2, 3)}
    results = data.forward()
    assert "lie on each other" not in source(figures.runtime_against_N(results))
    results["rows"] += [row | {"implementation": "yours"} for row in results["rows"]
                        if row["implementation"] == "sdpa_flash"]
    fig = figures.runtime_against_N(results)
    assert "lie on each other" in source(fig) and markers(fig, find("sdpa_flash").color) == {"s"}


def test_the_learners_kernel_stands_in_every_plot_and_in_no_title():
    results = data.with_masks()
    results["rows"] += [row | {"implementation": "yours"} for row in results["rows"]
                        if row["implementation"] == "fa2_triton_forward"]
    for draw in (*AGAINST_N, figures.relative_speed):
        fig = draw(results)
        assert "yours" in texts(fig.axes[0]) and "yours" not in title(fig).split(" the speed of")[-1], draw.__name__
    for draw in (figures.time_of_a_score, figures.causal_cost):
        assert "yours" not in title(draw(results))
    assert "yours" in [text.get_text() for text in figures.time_of_a_score(results, 4e12).axes[0].get_yticklabels()]
    assert markers(figures.spread_of_runs(results), figures.YOURS)


@pytest.mark.parametrize("B_r, B_c", [(64, 64), (128, 64), (64, 128)])
def test_whole_tiles_are_those_of_the_cost(B_r, B_c):
    N, d = 512, 64
    tiles = sum(min(N, B_c * cost.ceil_div(i + B_r, B_c)) * B_r for i in range(0, N, B_r))
    assert whole_tiles({"N": N, "d": d, "B_r": B_r, "B_c": B_c}) == pytest.approx(tiles / (N * N / 2))
    first, second = (ax.get_title("left") for ax in picture("causal_cost").axes)
    assert "128 × 64: not the same kernel" in first and "not the same" not in second
