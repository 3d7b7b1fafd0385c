"""The pictures of chapter 09 and its appendix: their titles and marks tell the truth about what they draw."""

import matplotlib
import pytest
import torch

import flashlab  # noqa: F401  before Triton: it decides whether kernels are interpreted

matplotlib.use("Agg")
pytest.importorskip("triton")

from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402

from flashlab.triton_mode import interpreted  # noqa: E402
from flashlab_course import figures  # noqa: E402
from flashlab_course.compiler.layouts import Layout  # noqa: E402
from flashlab_course.figures.accesses import LOADED, STORED, WRONG  # noqa: E402
from flashlab_course.gpu.matmul import matmul  # noqa: E402
from flashlab_course.gpu.matrix_add import matrix_add  # noqa: E402
from flashlab_course.gpu.vector_add import one_by_one_kernel, vector_add  # noqa: E402
from flashlab_course.lesson.accesses import Touched, touched  # noqa: E402

interpreted_only = pytest.mark.skipif(not interpreted(), reason="watches the interpreter's accesses")


def title(fig):
    fig.canvas.draw()
    return fig._suptitle.get_text().replace("\n", " ")


def squares(ax, color):
    return sum(matplotlib.colors.same_color(patch.get_facecolor(), color) for patch in ax.patches if isinstance(patch, Rectangle))


def texts(ax):
    return [text.get_text() for text in ax.texts]


def nothing_falls_off(fig):
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    everything, (width, height) = fig.get_tightbbox(canvas.get_renderer()), fig.get_size_inches()
    assert everything.x0 > -0.02 and everything.y0 > -0.02 and everything.x1 < width + 0.02 and everything.y1 < height + 0.02


@interpreted_only
def test_lanes_of_a_vector_and_those_the_mask_holds_back():
    add = touched(lambda: vector_add(torch.ones(10), torch.ones(10), B=4))
    fig = figures.vector_accesses({"wanted": add, "yours": None})
    assert title(fig) == "wanted: 36 addresses, the masks hold back 6, none lies outside the tensors"
    assert [squares(ax, color) for ax, color in zip(fig.axes, (LOADED, LOADED, STORED), strict=True)] == [10, 10, 10]
    nothing_falls_off(fig)


@interpreted_only
def test_a_stray_lane_is_orange():
    room = torch.zeros(3, 16)
    X, Y, Out = room[0, :10], room[1, :10], room[2, :10]
    careless = touched(lambda: one_by_one_kernel[(3,)](X, Y, Out, 12, 4))            # it is told of 12 elements
    fig = figures.vector_accesses({"careless": careless})
    assert "6 lie outside the tensors" in title(fig) and [squares(ax, WRONG) for ax in fig.axes] == [2, 2, 2]


def test_a_run_that_ended_early_says_why_in_its_place():
    for draw in (figures.vector_accesses, figures.matrix_accesses, figures.times_touched):
        fig = draw({"yours": Touched(problem="it raised ValueError: no grid")})
        assert "yours: it raised ValueError: no grid" in texts(fig.axes[0])[0].replace("\n", " ")
    begun = Touched({"X": None, "Y": None}, [], "it raised ValueError: no grid")       # it ended after a launch
    fig = figures.times_touched({"yours": begun})
    assert not any(ax.axison for ax in fig.axes)
    fig = figures.memory_line(Touched(problem="kernels are compiled here"))
    assert "compiled here" in texts(fig.axes[0])[0]


@interpreted_only
def test_programs_of_a_matrix_and_a_store_made_twice():
    X, Y = torch.randn(5, 7), torch.randn(7, 5).T
    add = touched(lambda: matrix_add(X, Y, B_m=2, B_n=4))
    fig = figures.matrix_accesses({"add": add})
    assert title(fig) == "Each element of Out is stored by one of 6 programs, the masks hold back 39 addresses"
    assert texts(fig.axes[2]) == [str(2 * (i // 2) + j // 4) for i in range(5) for j in range(7)]
    nothing_falls_off(fig)
    both = Touched(add.tensors, add.accesses + [access._replace(program=(9, 9)) for access in add.of("Out")[:1]])
    fig = figures.matrix_accesses({"add": both})
    assert "8 of 35 elements of Out stored by several" in title(fig) and squares(fig.axes[2], WRONG) == 8
    fewer = Touched(add.tensors, [access for access in add.accesses if access.program != (2, 1)])
    assert "3 of 35 elements of Out never stored" in title(figures.matrix_accesses({"add": fewer}))


@interpreted_only
def test_pieces_of_a_tile_in_memory():
    X, Y = torch.randn(5, 7), torch.randn(7, 5).T
    fig = figures.memory_line(touched(lambda: matrix_add(X, Y, B_m=2, B_n=4)))
    assert title(fig) == "Program 0's tile lies in 2 pieces of X, 4 pieces of Y, 2 pieces of Out"
    assert texts(fig.axes[1])[:5] == ["0", "0", "2", "2", "4"]


@interpreted_only
def test_how_often_a_product_loads():
    A, B = torch.randn(48, 32), torch.randn(32, 80)
    fig = figures.times_touched({"product": touched(lambda: matmul(A, B, B_m=16, B_n=16, B_k=16))})
    assert title(fig) == "How often each element is touched: A 5, B 3, C 1"
    assert [texts(ax) for ax in fig.axes] == [["5×"], ["3×"], ["1×"]]


def test_tiles_and_the_elements_that_really_lie_where_they_stick_out():
    W = torch.arange(35).view(5, 7)
    fig = figures.tiles_and_addresses({"W": (W, (2, 2), (4, 4))})
    assert title(fig) == "W: 2 places stick out, 2 of them at the address of another element"
    assert squares(fig.axes[0], LOADED) == 6
    last = figures.tiles_and_addresses({"W": (W, (4, 2), (4, 4))})                    # right of the last row nothing lies any more
    assert "5 places stick out, 0 of them" in title(last)
    given = torch.tensor([[18, 19, 20, 21], [25, 26, 27, 29]])
    fig = figures.tiles_and_addresses({"W": (W, (2, 2), (4, 4))}, offsets={"W": given})
    assert title(fig) == "W: 1 of your addresses are wrong" and squares(fig.axes[0], WRONG) == 1
    for other in (given[0], None, "offsets"):
        assert "your" not in title(figures.tiles_and_addresses({"W": (W, (2, 2), (4, 4))}, offsets={"W": other}))
    T = torch.arange(12).view(3, 4)
    fig = figures.tiles_and_addresses({"T": (T, (1, 2), (2, 2)), "T.T": (T.T, (1, 2), (1, 2))})
    assert title(fig) == "T: the tile lies at 6, 7, 10, 11; T.T: the tile lies at 5, 9, 6, 10"


def test_only_a_straight_walk_is_one_stride():
    T = torch.arange(12).view(3, 4)
    fig = figures.address_walk({"T": T, "T.T": T.T})
    assert title(fig) == "One stride describes T and none describes T.T, read row by row"
    assert fig.axes[1].lines[0].get_ydata().tolist()[:4] == [0, 4, 8, 1]


def test_elements_of_a_thread():
    layout = Layout("load", (1024,), (4,), (32,), (4,), (0,))
    warp, lane = layout.holders()
    assert [(int(warp[e]), int(lane[e])) for e in (0, 3, 4, 127, 128, 511, 512)] == \
        [(0, 0), (0, 0), (0, 1), (0, 31), (1, 0), (3, 31), (0, 0)]
    assert title(figures.elements_of_threads(layout)) == "Thread 0 takes 8 of the 1024 elements, in 2 pieces of 4"


def test_lanes_follow_the_fastest_dimension():
    row = Layout("load", (32, 64), (1, 4), (2, 16), (4, 1), (1, 0))
    column = Layout("load", (32, 64), (4, 1), (8, 4), (1, 4), (0, 1))
    assert row.holders()[1][0, ::4].tolist() == list(range(16)) and column.holders()[1][::4, 0].tolist() == list(range(8))
    fig = figures.lanes_of_tiles({"X": row, "Y": column})
    assert title(fig) == "Neighbouring lanes go along a row of X, down a column of Y"
    nothing_falls_off(fig)


def test_branches_left_in_code():
    fig = figures.branches_in_code({"constexpr": {"ex2": 8, "bra": 0}, "run-time": {"ex2": 8, "bra": 3}})
    assert title(fig) == "1 of 2 compiled kernels hold a branch" and texts(fig.axes[0]) == ["8", "0", "8", "3"]


def test_sums_that_stop():
    fig = figures.running_sums({"float16": [1, 2, 3, 3], "float32": [1, 2, 3, 4]}, added=1)
    assert title(fig).startswith("float16 stops at 3, where its numbers are") and "float32" not in title(fig)
    assert title(figures.running_sums({"float32": [1, 2]}, added=1)) == "Every sum arrives"


def test_numbers_that_float16_has_no_room_for():
    for value in (1e-8, 2.9e-8, 65520.0, 1e6):
        assert torch.tensor(value).half() in (0, torch.inf)
        assert title(figures.float16_range({"it": value, "one": 1.0})) == "float16 has no room for it"
    for value in (3.1e-8, 6e-8, 65504.0):
        assert 0 < torch.tensor(value).half() < torch.inf
        assert title(figures.float16_range({"it": value})) == "float16 holds all of these"


def test_slowdown_by_stride_with_a_learners_count():
    rows = [{"stride": stride, "ms": ms} for stride, ms in ((1, 1.0), (2, 2.0), (4, 4.0), (8, 7.0), (16, 14.0))]
    fig = figures.slower_with_stride(rows, "Invented.", {stride: (min(32, 4 * stride), True) for stride in (1, 2, 4, 8, 16)})
    assert title(fig) == "The same number of elements takes 7.0 times as long at stride 8, 14 times at stride 16"
    assert fig.axes[0].lines[1].get_ydata().tolist() == [1, 2, 4, 8, 8]
    for nothing in (None, {1: None, 2: None}, {1: (), 2: 5}):
        assert len(figures.slower_with_stride(rows, "Invented.", nothing).axes[0].lines) == 1
    nothing_falls_off(fig)


def test_softmax_against_a_copy():
    rows = [{"N": N, "dtype": "float16", "by": by, "ms": ms} for N in (256, 4096) for by, ms in
            (("kernel", 1.0 + (N == 256)), ("torch", 4.0), ("copy", 1.0))]
    fig = figures.share_of_copy(rows, "Invented.")
    assert title(fig) == "The fused softmax runs at 50 to 100 % of a copy's speed (float16)"
    nothing_falls_off(fig)


def test_products_against_the_library():
    rows = [{"n": n, "by": by, "tflops": tflops} for n, found in ((1024, (100, 30, 40)), (4096, (700, 600, 650)))
            for by, tflops in zip(("torch", "pointers", "descriptors"), found, strict=True)]
    said = title(figures.share_of_library(rows, "Invented."))
    assert "at 4096³: pointers 86 %, descriptors 93 %; at 1024³ both are far behind" in said
    rows[1]["tflops"] = 90
    assert "behind" not in title(figures.share_of_library(rows, "Invented."))


def test_precision_order_and_bars():
    rows = [{"by": "kernel", "precision": "ieee", "tflops": 40, "mean_error": 1e-6},
            {"by": "kernel, B by columns", "precision": "tf32", "tflops": 240, "mean_error": 1e-3},
            {"by": "torch", "precision": "tf32", "tflops": 300, "mean_error": 3e-4}]
    assert title(figures.speed_and_error(rows, "Invented.")).startswith("TF32 runs up to 7.5 times as fast")
    times = [{"group": 1, "ms": 2.0}, {"group": 8, "ms": 1.9}]
    read = [{"group": 1, "dram_read": 2e9}, {"group": 8, "dram_read": 1e9}]
    said = title(figures.order_and_time(times, read, "Invented."))
    assert said == "Groups of 8 read 50 % of the bytes and take 95 % of the time of row by row"
    fig = figures.bars({"a": 1.0, "b": 300.0}, "b takes 300 times as long", "Invented.", "ms", log=True, worse=("b",))
    assert texts(fig.axes[0]) == ["1", "300"] and squares(fig.axes[0], "#D55E00") == 1
    nothing_falls_off(fig)
