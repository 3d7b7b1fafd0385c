"""Figures: they render, their titles tell the truth about their data, and no text falls off the page."""

import re

import matplotlib
import pytest

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402

from flashlab_course import figures  # noqa: E402
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
    (draw, expected), before = CALLS[name], dict(plt.rcParams)
    fig = draw()
    assert dict(plt.rcParams) == before, "the caller's style has changed"
    assert not plt.get_fignums(), "pyplot still holds the figure: a notebook would show it twice"
    assert expected in title(fig) and expected in fig._repr_mimebundle_()[0]["text/plain"]
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
    assert {name.split(":")[0] for name in CALLS} == set(DRAWN)


REFUSED = {
    "B_m must be": lambda: figures.block_product(8, 8, 8, 0, 2, 2),
    "no measured 'tflops' for d = 64, causal = True": lambda: figures.benchmark(data.forward(), "tflops", 64, True),
    "no measured 'tflops' for d = 128, causal = False":
        lambda: figures.benchmark(data.backward() | {"what": "forward"}, "tflops"),
    "no row with counters": lambda: figures.model_vs_counters(data.results("counters", [])),
    "'fa2_pipelined_forward' and 'fa2_tuned_forward' were both measured":
        lambda: figures.gain_of_rung(data.climb(), "fa2_pipelined_forward"),
    "d = 128, N = 512": lambda: figures.kernels_beside_peers(data.climb(), 128, 512, False),
}


@pytest.mark.parametrize("words", REFUSED)
def test_data_that_cannot_be_drawn_are_refused(words):
    with pytest.raises(ValueError, match=re.escape(words)):
        REFUSED[words]()


def test_every_implementation_has_one_color_of_its_own():
    names = {rung.name for rung in data.RUNGS} | {"sdpa_math", "sdpa_efficient", "sdpa_flash", "sdpa_cudnn"}
    assert all(words.label(name) != name for name in names)
    assert len({colors.color(name) for name in names}) == len(names)
    for name in ("naive", "fa1", "fa2", "fa2_triton"):
        assert colors.color(f"{name}_backward") == colors.color(f"{name}_forward")


def test_text_wraps_between_words_but_not_inside_a_quantity():
    assert style.wrap("moves 29 MiB at N = 4096", 14).split("\n") == ["moves 29 MiB", "at N = 4096"]
