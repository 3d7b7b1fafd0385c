"""The pictures of chapters 00 to 02: what their titles and marks say is what they were given."""

import matplotlib
import pytest
import torch
from matplotlib.patches import FancyArrow, Rectangle

matplotlib.use("Agg")

from flashlab.ladder import RUNGS  # noqa: E402
from flashlab.memory import A100_SRAM, KiB, Memory  # noqa: E402
from flashlab.rungs.naive import naive_forward  # noqa: E402
from flashlab_course import figures  # noqa: E402
from flashlab_course.figures.machine import CORE  # noqa: E402
from flashlab_course.gpu.simt import block_sum, launch  # noqa: E402


def title(fig):
    return fig.get_suptitle().replace("\n", " ")


def texts(ax):
    return [text.get_text() for text in ax.texts]


def squares(ax, color):
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)
            and matplotlib.colors.same_color(patch.get_facecolor(), color)]


def test_memories_are_drawn_as_large_as_they_are():
    left, right = figures.memory_hierarchy().axes
    large, small = (patch.get_width() * patch.get_height() for patch in left.patches)
    assert large / small == pytest.approx(40e9 / (108 * A100_SRAM))            # areas, not logarithms
    assert [bar.get_width() for bar in right.patches] == [1.5, 19]


def test_the_model_has_the_sram_of_the_gpu_that_is_drawn():
    A100 = figures.GPUS["A100"]
    assert A100["shared"] == A100_SRAM and A100["block"] < A100_SRAM
    fig = figures.gpu_drawn("A100")
    assert len([p for p in fig.axes[0].patches if p.get_width() == 0.84]) == A100["SMs"] == 108
    assert any("192 KiB" in text and "163 KiB" in text for text in texts(fig.axes[1]))
    with pytest.raises(ValueError, match="name must be one of A100, H100"):
        figures.gpu_drawn("RTX")


def test_every_crossing_of_an_N_x_N_matrix_is_an_arrow_and_no_other_is_counted():
    Q, K, V = (torch.randn(256, 16) for _ in range(3))
    with Memory() as mem:
        naive_forward(Q, K, V)
    fig = figures.crossings(mem)
    assert title(fig).startswith("An N × N matrix crosses HBM 7 times: 4 for the formula (orange), 2 for the scale (dark), 1 for L")
    arrows = [patch for patch in fig.axes[0].patches if isinstance(patch, FancyArrow)]
    assert len(arrows) == 10                                                   # one down and one up for each of five operations
    assert sum(matplotlib.colors.same_color(arrow.get_facecolor(), RUNGS[0].color) for arrow in arrows) == 4


def test_a_tile_needs_its_own_rows_and_no_others():
    fig = figures.tile_of_scores(7, 9, 3, 4, 2, 1)                             # the last tile of queries has one row
    assert title(fig) == "Tile (2, 1) of S needs 1 row of Q and 4 rows of K, and nothing else"
    d = 2
    assert len(squares(fig.axes[0], CORE)) == 1 * d + 4 * d + 1 * 4


def test_the_ladder_names_every_rung():
    said = " ".join(texts(figures.ladder().axes[0])).replace("\n", " ")
    assert all(rung.name in said and rung.new in said for rung in RUNGS)


def test_sizes_and_peaks_say_what_they_draw():
    assert title(figures.matrix_sizes([64, 128], 16)) == "At N = 128, S takes 8 times the bytes of Q"
    assert title(figures.peak_against_N({64: 100, 128: 390}, 16)) == "Twice the tokens, 3.9 times the memory"


def test_only_the_decoder_hides_keys():
    hidden = [len(squares(ax, "white")) for ax in figures.who_sees_whom(5, 4).axes]
    assert hidden == [0, 4 * 3 // 2, 0]


def test_an_sm_is_filled_until_one_limit_is_used_up():
    fig = figures.sm_filled(256, registers=128, shared=48 * KiB)
    assert title(fig) == "The SM has room for 2 blocks of 256 threads, 25% of all it could hold: registers allow no more"
    widths = [patch.get_width() for patch in squares(fig.axes[0], CORE)]
    assert widths == pytest.approx([1 / 8] * 2 + [1 / 32] * 2 + [1 / 2] * 2 + [49 / 228] * 2)


def test_littles_law_meets_the_bandwidth_where_the_title_says():
    rows = [{"each": 4, "in_flight": 2**n, "tb_s": 1.0} for n in (16, 22)]
    fig = figures.bytes_in_flight(rows, latency_ns=500, tb_s=2.097152, words="Recorded on paper.")
    assert title(fig).startswith("1 MiB have to be on their way")
    slope = fig.axes[0].lines[0]
    assert slope.get_xdata()[1] == pytest.approx(2**20) and slope.get_ydata()[1] == pytest.approx(2.097152)
    assert slope.get_ydata()[0] == pytest.approx(slope.get_xdata()[0] / 500e-9 / 1e12)        # bytes over seconds


def test_the_rounds_of_a_sum_are_those_of_the_kernel():
    values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]
    total = torch.zeros(1)
    launch(block_sum, 1, 8, shared=8)(torch.tensor(values), total)
    fig = figures.halving(values)
    assert texts(fig.axes[0])[-9] == f"{total.item():g}" == "31"               # the first number of the last row
    assert "in 3 rounds" in title(fig)


def test_operations_that_wait_for_their_bytes_are_counted():
    rows = [{"op": "a", "ms": 1, "bytes": 3 * 10**9, "flops": 1}, {"op": "b", "ms": 1, "bytes": 1, "flops": 6 * 10**11}]
    assert title(figures.op_times(rows, 3, 600, "Recorded on paper.")).startswith("1 of 2 operations need longer for their bytes")


def test_copies_are_part_of_the_time():
    ms = {("two copies to the GPU", "pageable"): 60.0, ("one copy back", "pageable"): 16.0, ("x + y on the GPU", ""): 0.2,
          ("two copies to the GPU", "pinned"): 10.0, ("one copy back", "pinned"): 5.0, ("x + y on the CPU", ""): 20.0}
    rows = [{"what": what, "memory": memory, "ms": took} for (what, memory), took in ms.items()]
    fig = figures.host_and_gpu(rows, "Recorded on paper.")
    assert {"20 ms", "15 ms", "76 ms"} <= set(texts(fig.axes[0]))
    assert "take 75 times as long" in title(fig)
