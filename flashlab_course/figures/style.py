"""How the pictures look: one style, titles and provenance, names at the lines' ends, axes in bytes.

A rung's or a peer's name, colour and marker are those of flashlab.ladder.
"""

import functools
import math
import re
import sys
import textwrap

import matplotlib.pyplot as plt
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from flashlab.ladder import find
from flashlab_course.figures.words import bytes_text

INK, FAINT, READ, WRITTEN = "#222222", "#D9D9D9", "#4A5568", "#B4BDCB"
YOURS = "#C2185B"               # what the learner predicted or wrote; of nothing else
STYLE = {
    "figure.facecolor": "white", "savefig.facecolor": "white", "axes.facecolor": "white",    # a light card on a dark page
    "figure.dpi": 110, "savefig.dpi": 130, "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.08, "figure.constrained_layout.w_pad": 0.08,
    "font.family": "DejaVu Sans", "font.size": 10,             # comes with matplotlib: the same picture on every machine
    "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.edgecolor": "#777777",
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10, "axes.titlelocation": "left",
    "axes.grid": False, "grid.color": "#E6E6E6", "grid.linewidth": 0.8, "axes.axisbelow": True,
    "lines.linewidth": 1.8, "lines.markersize": 6, "hatch.color": "#BBBBBB", "hatch.linewidth": 0.8,
}
HALO = [withStroke(linewidth=3, foreground="white")]           # text stays readable where a line passes


def sharpen():
    """In a notebook: pictures with twice the pixels at the same size, sharp on any screen. Elsewhere nothing."""
    if "IPython" not in sys.modules or (shell := sys.modules["IPython"].get_ipython()) is None:
        return
    from matplotlib_inline.config import InlineBackend  # comes with IPython

    InlineBackend.instance(parent=shell).figure_formats = {"retina"}


def figure(function):
    """Draw in the course's style, then let go of the figure: it is shown by being returned, and never a second time."""
    @functools.wraps(function)
    def draw(*args, **kwargs):
        before = set(plt.get_fignums())
        with plt.rc_context(STYLE):
            try:
                return function(*args, **kwargs)
            finally:
                for number in set(plt.get_fignums()) - before:
                    plt.close(number)
    return draw


def label(name):
    """The title of a rung or peer; a name that the ladder does not know stays as it is."""
    return one.title if (one := find(name)) else name


def color(name):
    return one.color if (one := find(name)) else YOURS if str(name).startswith("yours") else READ


def marker(name):
    return one.marker if (one := find(name)) else "*" if str(name).startswith("yours") else "o"


def ramp(dark, lightest):
    """A colour map from a tint that holds `lightest` of the colour, the rest white, up to the colour itself."""
    return LinearSegmentedColormap.from_list(dark, [tuple(1 - lightest * (1 - c) for c in to_rgb(dark)), dark])


def ink_on(shade):
    """White or INK, whichever can be read on that shade."""
    return "white" if 0.299 * shade[0] + 0.587 * shade[1] + 0.114 * shade[2] < 0.55 else INK


def finish(fig, title, provenance, note="", ends=None):
    """Title on top, provenance below, in the width there is; then the names at the lines' ends. ends: ax -> as label_ends."""
    width = fig.get_figwidth()
    fig.suptitle(wrap(title, 9.8 * width), x=0.01, ha="left", fontsize=12, fontweight="bold")
    below = wrap(provenance, 16 * width) + (f"\n{wrap(f'Missing: {note}.', 16 * width)}" if note else "")
    fig.supxlabel(below, x=0.01, ha="left", fontsize=8, color="#555555")
    for ax, labels in (ends or {}).items():
        label_ends(ax, labels)
    return fig


def wrap(text, width):
    """Lines of at most `width` characters; a number stays with its unit, and 'N = 64' in one piece."""
    tied = re.sub(r"(?<=\d) (?=[KMGT]?i?B\b|%|ms\b|TFLOP|times\b)|(?<=[=×]) | (?=[=×])", "\N{NO-BREAK SPACE}", text)
    return textwrap.fill(tied, int(width)).replace("\N{NO-BREAK SPACE}", " ")


def label_ends(ax, ends):
    """Names at the ends of lines, (x, y, text, colour) each; those in one column are pushed apart until none overlaps."""
    ax.figure.draw_without_rendering()                                   # fixes the layout that pixels refer to
    per_point = ax.figure.dpi / 72
    gap, height = 13 * per_point, lambda end: ax.transData.transform(end[:2])[1]
    for column in (sorted((end for end in ends if end[0] == x), key=height) for x in dict.fromkeys(end[0] for end in ends)):
        at = [height(end) for end in column]
        for _ in range(100):
            at[0] = max(at[0], ax.bbox.y0 + gap / 2)                     # not into the tick labels
            for n in range(len(at) - 1):
                push = max(0, gap - (at[n + 1] - at[n]))
                at[n], at[n + 1] = at[n] - push / 2, at[n + 1] + push / 2
        for (x, y, text, colour), place in zip(column, at, strict=True):
            ax.annotate(text, (x, y), (9, (place - height((x, y))) / per_point), textcoords="offset points", va="center",
                        color=colour, fontweight="bold", fontsize=9, annotation_clip=False, zorder=5, path_effects=HALO)


def bare(ax):
    """No spines and no tick marks: the squares drawn are the axes."""
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def log_axes(ax, ticks, xlabel, ylabel):
    ax.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
    _ticks(ax.xaxis, FixedLocator(ticks), "{:.0f}".format)
    ax.grid(axis="y")


def byte_axis(axis, linear_to=None):
    """Ticks in B, KiB, MiB: at powers of 2, 4 or 16 on a log axis, at four to eight round places on a linear one."""
    if linear_to is None:
        low, high = axis.get_view_interval()
        places = LogLocator(base=next((base for base in (2, 4) if math.log(high / low, base) < 6), 16))
    else:
        step = 2 ** math.floor(math.log2(max(linear_to, 4) / 4))
        places = FixedLocator([n * step for n in range(int(linear_to / step) + 1)])
    _ticks(axis, places, bytes_text)


def plain_log(axis, text="{:g}".format):
    """Numbers instead of powers of ten, at 1, 2 and 5 where there is room for them."""
    low, high = axis.get_view_interval()
    _ticks(axis, LogLocator(subs=(1, 2, 5) if high / low < 1000 else (1,)), text)


def _ticks(axis, places, text):
    axis.set_major_locator(places)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda x, _: text(x)))
