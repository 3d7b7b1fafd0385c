"""How the pictures look: one style, titles and sources, names at the ends of lines, ticks in bytes."""

import functools
import math
import re
import sys
import textwrap

import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from flashlab_course.figures.colors import INK
from flashlab_course.figures.words import bytes_text, power_text

STYLE = {
    # a light card on a dark page
    "figure.facecolor": "white", "savefig.facecolor": "white", "axes.facecolor": "white",
    "figure.dpi": 100, "savefig.dpi": 130, "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.08, "figure.constrained_layout.w_pad": 0.08,
    # comes with matplotlib: the same picture on every machine
    "font.family": "DejaVu Sans", "font.size": 10,
    "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.edgecolor": "#777777",
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10, "axes.titlelocation": "left",
    "axes.grid": False, "grid.color": "#E6E6E6", "grid.linewidth": 0.8, "axes.axisbelow": True,
    "lines.linewidth": 1.8, "lines.markersize": 6,
}
BLANK = {"fc": "white", "ec": "none", "pad": 0}                # keeps text readable where a line passes behind it


def sharpen():
    """Draw with twice the pixels at the same size where a notebook shows the pictures."""
    if "IPython" not in sys.modules or (shell := sys.modules["IPython"].get_ipython()) is None:
        return
    from matplotlib_inline.config import InlineBackend  # comes with IPython

    InlineBackend.instance(parent=shell).figure_formats = {"retina"}


def figure(function):
    """Draw in the course's style and close the figure: a notebook shows what is returned, and shows it once."""
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


def finish(fig, title, source, roof=math.inf):
    """Title on top, source at the bottom, and the name of each labelled line at its right end."""
    fig.add_artist(plt.Rectangle((0, 0), 1, 1, fill=False, lw=0))        # a notebook crops the page to what is drawn
    width = fig.get_figwidth()
    fig.suptitle(wrap(title, 9.8 * width), x=0.01, ha="left", fontsize=12, fontweight="bold")
    fig.supxlabel(wrap(source, 16 * width), x=0.01, ha="left", fontsize=8, color="#555555")
    for ax in fig.axes:
        label_ends(ax, roof)
    fig._repr_mimebundle_ = lambda **_: ({"text/plain": title}, {})      # for those who do not see the picture
    return fig


def wrap(text, width):
    """Lines of at most `width` characters; a number stays with its unit, and 'N = 64' in one piece."""
    tied = re.sub(r"(?<=\d) (?=[KMGT]?i?B\b|%|ms\b|TFLOP|times\b)|(?<=[=×]) | (?=[=×])", "\N{NO-BREAK SPACE}", text)
    return textwrap.fill(tied, int(width)).replace("\N{NO-BREAK SPACE}", " ")


def label_ends(ax, roof=math.inf):
    """The name of each line beside its last visible point, above a roof that it touches, moved where names overlap."""
    low, high = sorted(ax.get_ylim())
    named = [line for line in ax.lines if not line.get_label().startswith("_")]       # "_": a line without a name
    if not named:
        return
    ax.figure.draw_without_rendering()                                   # fixes the layout that pixels refer to
    point = ax.figure.dpi / 72
    labels = []
    for line in named:
        end = max(xy for xy in map(tuple, line.get_xydata().tolist()) if low <= xy[1] <= high)
        left, height = ax.transData.transform(end) + (0, 15 * point * (end[1] > 0.85 * roof))
        labels.append((left, left + 6.5 * point * len(line.get_label()), height, line, end))
    labels.sort(key=lambda label: label[2])
    gap, floor = 13 * point, ax.bbox.y0 + 6 * point                      # floor: above the names of the ticks
    up = spread([label[:3] for label in labels], gap)
    down = spread([(left, right, -height) for left, right, height, *_ in reversed(labels)], gap)[::-1]
    middle = [(left, right, max(floor, (a - b) / 2))
              for (left, right, *_), a, b in zip(labels, up, down, strict=True)]
    for (*_, line, end), place in zip(labels, spread(middle, gap), strict=True):
        note(ax, line.get_label(), *end, 9, (place - ax.transData.transform(end)[1]) / point, annotation_clip=False,
             color=line.get_color(), fontweight="bold", zorder=5, bbox=BLANK)


def spread(places, gap):
    """The heights of places (left, right, height), lowest first, moved up so that none lies on another."""
    done = []
    for left, right, height in places:
        above = [other + gap for a, b, other in done if a < right and left < b]
        done.append((left, right, max([height, *above])))
    return [height for *_, height in done]


def note(ax, text, x, y, right=4, up=0, **look):
    """Text beside the point (x, y), so many points to the right and up."""
    ax.annotate(text, (x, y), (right, up), textcoords="offset points", **{"va": "center", "fontsize": 9} | look)


def bare(ax):
    """No spines and no tick marks: the squares drawn are the axes."""
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def byte_axis(axis):
    """Ticks in B, KiB, MiB: at powers of 2, 4 or 16 on a log axis, at four to eight round places on a linear one."""
    low, high = axis.get_view_interval()
    if axis.get_scale() == "log":
        places = LogLocator(base=next((base for base in (2, 4) if math.log(high / low, base) < 6), 16))
    else:
        step = 2 ** math.floor(math.log2(max(high, low, 4) / 4))
        places = [n * step for n in range(int(max(high, low) / step) + 1)]
    set_ticks(axis, places, bytes_text)


def plain_log(axis):
    """Ticks at 1, 2 and 5 where there is room for them; as powers of ten where the axis reaches far."""
    low, high = axis.get_view_interval()
    set_ticks(axis, LogLocator(subs=(1, 2, 5) if high / low < 1000 else (1,)),
              power_text if low < 1e-3 or high > 1e6 else "{:g}".format)


def set_ticks(axis, places, text="{:g}".format):
    axis.set_major_locator(FixedLocator(places) if isinstance(places, list) else places)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda x, _: text(x)))
