"""The four plots that the chapters' pictures are made of: curves, bars, cells and timelines.

Each chapter's module draws with them and computes the title from its data.
"""

import re

import matplotlib.pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from flashlab_course.figures.colors import BLUE, FAINT, INK, ORANGE, READ, ink_on
from flashlab_course.figures.style import HALO, bare, byte_axis, figure, finish, note, plain_log, set_ticks


def panel(width=8, height=4):
    """A new figure of so many inches and its axes."""
    return plt.subplots(figsize=(width, height))


def panels(columns, rows=1, size=(8, 4), **options):
    """A new figure and the list of its axes, row by row."""
    fig, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, **options)
    return fig, list(axes.flat)


@figure
def curves(lines, title, source, x, y, *, size=(8, 4), ceilings=(), walls=(), **look):
    """A line chart of one panel.

    lines: tuples, the arguments of `plot`; ceilings, walls: dashed lines across and up, words -> place; look: as `axes`
    takes it
    """
    fig, ax = panel(*size)
    for line in lines:
        plot(ax, *line)
    axes(ax, x, y, **look)
    for words in ceilings:
        ceiling(ax, words, ceilings[words])
    for words in walls:
        wall(ax, words, walls[words])
    return finish(fig, title, source)


def plot(ax, name, points, colour=READ, style="o-", fill=None, **look):
    """One line through points, a dict or pairs (x, y), with its name at its end.

    fill: the colour inside the markers.
    """
    points = list(points.items() if isinstance(points, dict) else points)
    if points:
        ax.plot(*zip(*points, strict=True), style, color=colour, mfc=fill or colour, label=name or None, **look)


def axes(ax, xlabel="", ylabel="", log="", byte="", ticks=None, names="{:.0f}".format, **limits):
    """Labels, scales and ticks.

    log, byte: of the letters x and y, the axes that are logarithmic, or in bytes; ticks: places on the x axis, named by
    `names`
    """
    ax.set(xlabel=xlabel, ylabel=ylabel, **{f"{letter}scale": "log" for letter in log}, **limits)
    for letter, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
        if letter in byte:
            byte_axis(axis)
        elif letter in log:
            plain_log(axis)
    if ticks is not None:
        set_ticks(ax.xaxis, list(ticks), names)
    ax.grid(axis="y")


def ceiling(ax, words, height, side="left", colour=INK):
    """A dashed line across, its words above it at one side."""
    ax.axhline(height, ls="--", color=colour, lw=1.2)
    place, right = (0, 4) if side == "left" else (1, -4)
    note(ax, words, place, height, right, 4, xycoords=ax.get_yaxis_transform(), ha=side, va="bottom", path_effects=HALO)


def wall(ax, words, place, colour=INK):
    """A dashed line upwards, its words at the top to its right."""
    ax.axvline(place, ls="--", color=colour, lw=1.2)
    note(ax, words, place, 1, 5, -2, xycoords=ax.get_xaxis_transform(), va="top", path_effects=HALO)


@figure
def bars(values, title, source, xlabel, *, log=False, worse=()):
    """A bar for each name with its number behind it.

    worse: names in the colour of what goes wrong; source: where it comes from.
    """
    fig, ax = panel(8.6, 1 + 0.42 * max(1, len(values)))
    numbers = [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values.values()]
    stack(ax, {name: [(value, ORANGE if name in worse else BLUE)] for name, value in values.items()}, numbers, xlabel)
    if log:
        ax.set(xscale="log", xlim=(min(values.values()) / 2, 4 * max(values.values())))
        plain_log(ax.xaxis)
    return finish(fig, title, source)


def stack(ax, rows, behind=(), xlabel="", room=1.14, height=0.66, byte=False, title="", colour=INK):
    """Bars from left to right, one row below the other.

    rows: name -> [(length, colour, text inside, if any)]; behind: a text after each bar; room: the axis over the
    longest bar
    """
    longest = max((sum(part[0] for part in parts) for parts in rows.values()), default=1)
    for y, parts in enumerate(rows.values()):
        left = 0
        for length, fill, *text in parts:
            ax.barh(y, length, height, left=left, color=fill)
            if text and length > 0.0095 * longest * max(map(len, text[0].split("\n"))):      # there is room for it
                write(ax, left + length / 2, y, text[0], 8, color=ink_on(fill))
            left += length
        if behind:
            note(ax, behind[y], left, y)
    ax.set(ylim=(len(rows) - 0.4, -0.6), xlim=(0, room * longest), xlabel=xlabel)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.tick_params(axis="y", length=0)
    if byte:
        byte_axis(ax.xaxis)
    heading(ax, title, colour)


def canvas(ax, across, down, equal=True):
    """Axes for a drawing: limits in both directions and nothing around them."""
    ax.set(xlim=across, ylim=down, aspect="equal" if equal else "auto")
    ax.axis("off")


def write(ax, x, y, text, size=9, **look):
    """Text in the middle of the point (x, y)."""
    ax.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": size} | look)


def heading(ax, title, colour=INK):
    """The title of a panel."""
    ax.set_title(title, color=colour, fontweight="bold")


def box(ax, x, y, width=1, height=1, fill=FAINT, text="", edge="white", size=9, ink=None, **look):
    """A rectangle with its upper left corner at (x, y) and text in the middle."""
    ax.add_patch(Rectangle((x, y), width, height, fc=fill, ec=edge, **{"lw": 1} | look))
    if text != "":
        write(ax, x + width / 2, y + height / 2, text, size, color=ink or ink_on(fill))


def cells(ax, fills, texts=(), gap=0, size=9, **look):
    """A grid of cells, the first row on top.

    fills: rows of colours, None for no cell; texts: rows of what stands in the cells; look: as `grid` takes it
    """
    for y, row in enumerate(fills):
        for x, fill in enumerate(row):
            if fill is not None:
                edge = FAINT if fill == "white" else "white"
                box(ax, x + gap, y + gap, 1 - 2 * gap, 1 - 2 * gap, fill, texts[y][x] if texts else "", edge, size)
    grid(ax, len(fills[0]), len(fills), **look)


def grid(ax, width, height, xlabel="", ylabel="", columns=(), rows=(), title="", colour=INK, equal=False, size=8):
    """The axes around cells: limits, names in the middle of columns and rows, no spines.

    columns, rows: {number: name} or names.
    """
    ax.set(xlim=(-0.05, width + 0.05), ylim=(height + 0.05, -0.05), xlabel=xlabel, ylabel=ylabel)
    for set_names, names in ((ax.set_xticks, columns), (ax.set_yticks, rows)):
        named = names if isinstance(names, dict) else dict(enumerate(names))
        look = {"labels": list(named.values()), "fontsize": size} if named else {}
        set_names([n + 0.5 for n in named], **look)
    if equal:
        ax.set_aspect("equal")
    bare(ax)
    heading(ax, title, colour)


def first_and_last(count):
    """The names of the first and the last of so many cells."""
    return {0: 0, count - 1: count - 1}


KINDS = {"load": "#8FA3B8", "copy": "#8FA3B8", "multiply": BLUE, "tensor": BLUE, "compute": BLUE,
         "exponentials": "#E0A100", "softmax": "#E0A100", "store": "#5E8C1F"}      # by the first word of a unit's name


def timeline(ax, spans):
    """A row for each unit, a bar for each Span of flashlab_course.gpu.schedule: loads on top, stores at the bottom."""
    kind = lambda unit: unit.replace(",", "").split()[0]
    place = lambda unit: (list(KINDS).index(kind(unit)) if kind(unit) in KINDS else len(KINDS), unit)
    units = sorted({span.unit for span in spans}, key=place)
    for span in spans:
        strength = 1 if int(re.sub(r"\D", "", span.name) or 0) % 2 else 0.75
        fill = tuple(1 - (1 - part) * strength for part in to_rgb(KINDS.get(kind(span.unit), "#777777")))
        box(ax, span.start, units.index(span.unit) - 0.4, span.end - span.start, 0.8, fill, span.name, size=8)
    ax.axvline(max(span.end for span in spans), color=INK, ls="--", lw=1)
    ax.set(ylim=(len(units) - 0.4, -0.6))
    ax.set_yticks(range(len(units)), units)
    bare(ax)
