"""The pictures of chapters 02 and 09: they render, and their titles and marks tell the truth about what they draw."""

import matplotlib
import pytest
import torch

matplotlib.use("Agg")

from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402

from flashlab_course import figures  # noqa: E402
from flashlab_course.figures.gpu import BUSY  # noqa: E402
from flashlab_course.figures.style import READ, WRITTEN, color  # noqa: E402
from flashlab_course.gpu import simt  # noqa: E402
from flashlab_course.gpu.simt import launch  # noqa: E402


def title(fig):
    fig.canvas.draw()
    return fig._suptitle.get_text().replace("\n", " ")


def squares(ax, color):
    return sum(matplotlib.colors.same_color(patch.get_facecolor(), color) for patch in ax.patches if isinstance(patch, Rectangle))


def nothing_falls_off(fig):
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    everything, (width, height) = fig.get_tightbbox(canvas.get_renderer()), fig.get_size_inches()
    assert everything.x0 > -0.02 and everything.y0 > -0.02 and everything.x1 < width + 0.02 and everything.y1 < height + 0.02


def test_lanes_that_work_and_lanes_that_wait():
    A = torch.ones(8)
    fig = figures.warp_lanes(launch(simt.vector_add, 1, 64)(A, A, A.clone(), 8))
    assert title(fig) == "vector_add, block 0, warp 0: 75 % of the lanes work"
    assert squares(fig.axes[0], BUSY) == 32 + 32 + 8
    nothing_falls_off(fig)


def test_a_warp_that_diverges():
    fig = figures.warp_lanes(launch(simt.two_paths, 1, 32)(torch.ones(32), 32, 16, 3))
    assert "63 %" in title(fig)
    nothing_falls_off(fig)


def test_threads_that_the_guard_stops():
    fig = figures.grid_and_guard(70, 32)
    assert title(fig) == "⌈70/32⌉ = 3 blocks of 32 are 96 threads for 70 elements: the guard stops 26"
    assert squares(fig.axes[0], BUSY) == 70
    fig = figures.grid_and_guard((10, 20), (4, 8))
    assert "3 × 3 blocks are 288 threads for 200 elements: the guard stops 88" in title(fig)
    assert squares(fig.axes[0], BUSY) == 200
    nothing_falls_off(fig)
    with pytest.raises(ValueError, match="block must be"):
        figures.grid_and_guard(70, 0)


def test_addresses_of_views_and_not_of_copies():
    T = torch.arange(12).view(3, 4)
    fig = figures.layout_addresses({"T": T, "T.T": T.T})
    numbers = [text.get_text() for text in fig.axes[1].texts]
    assert [n for n in numbers if n.isdigit()] == [str(T[i, j].item()) for i in range(3) for j in range(4)] + \
        [str(T[j, i].item()) for i in range(4) for j in range(3)]
    nothing_falls_off(fig)
    with pytest.raises(ValueError, match="one storage"):
        figures.layout_addresses({"T": T, "copy": T.T.contiguous()})


def test_sectors_along_a_row_and_down_a_column():
    A, B, C = (torch.zeros(64, 64) for _ in range(3))
    along = launch(simt.matrix_add, (2, 64), (32, 1))(A, B, C, 64, 64)
    down = launch(simt.matrix_add_down_columns, (2, 64), (32, 1))(A, B, C, 64, 64)
    fig = figures.sectors_touched({"along a row": along, "down a column": down}, columns=64)
    assert title(fig) == "A load of 32 numbers moves 4 sectors along a row, 32 sectors down a column"
    assert [squares(ax, BUSY) for ax in fig.axes] == [32, 32]
    assert [squares(ax, WRITTEN) for ax in fig.axes] == [4, 32]


def test_strips_that_programs_share():
    by_rows = [(i, j) for i in range(4) for j in range(4)]
    grouped = [(0, 0), (1, 0), (0, 1), (1, 1), *by_rows[8:], *by_rows[2:4], *by_rows[6:8]]
    fig = figures.tile_order({"rows": by_rows, "groups": grouped}, wave=4)
    assert title(fig).startswith("4 programs at a time read 5 or 4 strips")
    assert [squares(ax, BUSY) for ax in fig.axes] == [4, 4]


def test_a_roofline_counts_what_waits_for_memory_and_tells_measured_from_modelled():
    points = [{"op": "add", "flops": 1, "bytes": 12, "tflops": 0.2}, {"op": "one", "flops": 60, "bytes": 1, "tflops": 100},
              {"op": "two", "flops": 61, "bytes": 1, "tflops": 101}, {"op": "matmul", "flops": 1000, "bytes": 1}]
    fig = figures.roofline(points, 3, 600, "Invented.")
    assert title(fig) == "Below 200 FLOPs a byte memory is the limit: so for 3 of these 4 operations"
    names = [text.get_text() for text in fig.axes[0].texts]
    assert "one, two" in names                              # on top of each other: one line of text
    hollow = [line for line in fig.axes[0].lines if line.get_marker() == "o" and line.get_markerfacecolor() == "white"]
    assert len(hollow) == 1 and hollow[0].get_ydata()[0] == 600 and "hollow: at best" in fig.get_supxlabel()
    fig.draw_without_rendering()
    name = next(text for text in fig.axes[0].texts if text.get_text() == "matmul").get_window_extent()
    assert name.y0 > fig.axes[0].transData.transform((1, 600))[1], "the roof crosses the name out"
    nothing_falls_off(fig)


def test_a_roofline_gives_rungs_their_colour_and_speaks_of_hollow_dots_only_where_there_are_some():
    points = [{"op": "naive, N = 64", "rung": "naive_forward", "flops": 10, "bytes": 1, "tflops": 20},
              {"op": "FA2 (Triton)", "flops": 1000, "bytes": 1, "tflops": 300},
              {"op": "add", "flops": 1, "bytes": 12, "tflops": 0.2}]
    fig = figures.roofline(points, 3, 600, "Invented.")
    dots = [line.get_color() for line in fig.axes[0].lines if line.get_marker() == "o"]
    assert dots == [color("naive_forward"), color("fa2_triton_forward"), READ]
    assert "hollow" not in fig.get_supxlabel()


def test_bandwidth_leaves_shared_memory_out():
    rows = [{"level": "cache or HBM", "footprint": 2**20, "tb_s": 6.0}, {"level": "cache or HBM", "footprint": 2**30, "tb_s": 3.0},
            {"level": "shared memory", "footprint": 2**15, "tb_s": 30.0}]
    fig = figures.bandwidth_by_footprint(rows, "Invented.", l2_bytes=50 * 2**20)
    assert title(fig) == "1 MiB that the L2 cache holds come 2.0 times as fast as 1 GiB from HBM"
    nothing_falls_off(fig)
