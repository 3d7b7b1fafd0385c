"""Figures: they render, their titles tell the truth about their data, and no text falls off the page."""

import ast
import re
from pathlib import Path

import matplotlib
import pytest

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402

import flashlab_course.figures.__main__ as command  # noqa: E402
from flashlab_course import figures, sweeps  # noqa: E402
from flashlab_course.figures import colors, style, words  # noqa: E402
from tests import pictures as data  # noqa: E402
from tests.pictures import CALLS, title  # noqa: E402

DRAWN = [name for name, f in vars(figures).items() if hasattr(f, "__wrapped__")]


def boxes_overlap(fig, texts):
    renderer = FigureCanvasAgg(fig).get_renderer()
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts if text.get_visible()
             and text.get_text()]
    return [(a, b) for n, (a, box_a) in enumerate(boxes) for b, box_b in boxes[n + 1:]
            if box_a.x0 < box_b.x1 - 1 and box_b.x0 < box_a.x1 - 1 and box_a.y0 < box_b.y1 - 2
            and box_b.y0 < box_a.y1 - 2]


@pytest.mark.parametrize("name", CALLS)
def test_says_what_it_draws_and_nothing_falls_off_the_page(name):
    draw, expected = CALLS[name]
    fig = draw()
    assert not plt.get_fignums(), "pyplot still holds the figure: a notebook would show it twice"
    assert title(fig) == expected
    source = fig.get_supxlabel()
    assert re.match(r"(Modelled|Measured here|Recorded on|Published|Definition)", source), "where the numbers come from"
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    everything = fig.get_tightbbox(canvas.get_renderer())                # inches
    width, height = fig.get_size_inches()
    assert min(everything.x0, everything.y0, width - everything.x1, height - everything.y1) > -0.02
    written = [fig._suptitle, fig._supxlabel]
    for ax in fig.axes:
        written += [ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label, *ax.texts]
    assert boxes_overlap(fig, written) == []


def test_every_picture_is_in_the_table():
    assert {name.split(":")[0] for name in CALLS} == set(DRAWN) - {"curves"}, "curves is what others are drawn with"


REFUSED = {
    "N must be an integer >= 1, got 0": lambda: figures.jacobian_of_product(0, 2, 2),
    "block must be": lambda: figures.grid_and_guard(70, 0),
    "name must be one of A100, H100": lambda: figures.gpu_drawn("RTX"),
    "name must be one of fa1_backward, fa2_backward, got 'fa3'": lambda: figures.algorithm_beside_code("fa3"),
    "i must be one of the 3 blocks": lambda: figures.attention_tiles(3, 2, i=3),
    "must be of N_q = 16 queries and N_k = 64 keys, got one of 64 and 64":
        lambda: figures.tile_traversal(data.logs(), 16, 64),
    "views must share one storage": lambda: figures.layout_addresses({"T": data.A, "copy": data.A.T.contiguous()}),
    "the log of 'window' must have loads of Q and of K": lambda: figures.tile_grids({"window": [([], 0)]}, 96),
    "no measured 'tflops' for d = 64, causal = True": lambda: figures.tflops(data.forward(), d=64, causal=True),
    "no measured 'tflops' for d = 128, causal = False": lambda: figures.tflops(data.backward() | {"what": "forward"}),
    "no row with counters": lambda: figures.model_vs_counters(data.results("counters", [])),
    "'fa2_pipelined_forward' and 'fa2_tuned_forward' were both measured":
        lambda: figures.gain_of_rung(data.climb(), "fa2_pipelined_forward"),
    "d = 128, N = 512": lambda: figures.kernels_beside_peers(data.climb(), 128, 512, False),
    "no times of 'fa2_tuned_forward' for d = 64, N = 4096, causal = True":
        lambda: figures.times_of_tiles(data.search(), causal=True),
    "no decode step of H_q = 32, H_kv = 4": lambda: figures.decode_steps(data.decode(skipped=("decode",))),
    "no decode step of H_q = 16, H_kv = 16": lambda: figures.decode_steps(data.decode(), H_q=16, H_kv=16),
    "times of fp8 kernel, flash_attention_fp8, fa2_hopper_forward":
        lambda: figures.fp8_times(data.fp8(("flash_attention_fp8",))),
    "rings of two GPUs or more": lambda: figures.ring_speedup(data.rings() | {"rows": []}),
    "rows of mode 'all'": lambda: figures.ring_memory(data.rings() | {"rows": []}, mode="all"),
}


@pytest.mark.parametrize("words", REFUSED)
def test_data_that_cannot_be_drawn_are_refused(words):
    with pytest.raises(ValueError, match=re.escape(words)):
        REFUSED[words]()


def test_a_line_that_left_the_source_is_missed(monkeypatch):
    from flashlab_course.figures import published

    where = published.PUBLISHED["fa1_backward"]
    monkeypatch.setitem(published.PUBLISHED, "fa1_backward", (*where[:3], [(1, "x", "no such line", "")]))
    with pytest.raises(ValueError, match="has no line 'no such line' any more"):
        figures.algorithm_beside_code("fa1_backward")


def test_every_implementation_has_one_color_of_its_own():
    names = {rung.name for rung in data.RUNGS} | {"sdpa_math", "sdpa_efficient", "sdpa_flash", "sdpa_cudnn"}
    assert all(words.label(name) != name for name in names)
    assert len({colors.color(name) for name in names}) == len(names)
    for name in ("naive", "fa1", "fa2", "fa2_triton"):
        assert colors.color(f"{name}_backward") == colors.color(f"{name}_forward")


def test_figures_measure_nothing_and_judge_nothing():
    for path in Path(figures.__file__).parent.glob("*.py"):
        imports = [node for node in ast.walk(ast.parse(path.read_text()))
                   if isinstance(node, ast.ImportFrom | ast.Import)]
        modules = {getattr(node, "module", None) or node.names[0].name for node in imports}
        assert not [m for m in modules if m.startswith(("flashlab_course.bench", "flashlab_course.check"))], path.name
    assert "matplotlib" not in Path(sweeps.__file__).read_text()


def test_a_figure_leaves_the_callers_style_alone():
    before = dict(plt.rcParams)
    figures.memory_hierarchy()
    assert dict(plt.rcParams) == before


def test_text_wraps_between_words_but_not_inside_a_quantity():
    assert style.wrap("moves 29 MiB at N = 4096", 14).split("\n") == ["moves 29 MiB", "at N = 4096"]


def test_command_line_draws_into_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sweeps, "over_N", lambda Ns: [point for point in OVER_N(Ns[:2])])
    with pytest.raises(SystemExit, match="OUT_DIR must be a folder that is there, got"):
        command.main([str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
    command.main([str(tmp_path)])
    assert (tmp_path / "traffic.png").stat().st_size > 5000
    with pytest.raises(SystemExit, match="usage"):
        command.main(["--nonsense"])


OVER_N = sweeps.over_N
