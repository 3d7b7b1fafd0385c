"""The plots of the course: curves, bars and matrices, which notebooks call with their own data, and their parts."""

import itertools

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from flashlab_course.figures.colors import BLUE, CYCLE, INK, ORANGE, PALE, READ, WRITTEN, color, ink_on, marker, ramp
from flashlab_course.figures.style import BLANK, bare, byte_axis, figure, finish, note, plain_log, set_ticks
from flashlab_course.figures.words import bytes_text, label, power_text


def panel(width=8, height=4):
    """A new figure of so many inches and its axes."""
    return plt.subplots(figsize=(width, height))


def panels(columns, rows=1, size=(8, 4), **options):
    """A new figure and the list of its axes, row by row."""
    fig, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, **options)
    return fig, list(axes.flat)


@figure
def curves(lines, title, source, x="", y="", *, dashed=None, dots=False, ceilings=None, walls=None, **look):
    """A line for each name, which stands at its end.

    lines: name -> {x: y}; a rung's name gets the rung's title and colour
    dashed: the same for formulas and bounds; a name in both is drawn as a dashed line with marks for its numbers
    dots: draw the numbers as marks without lines; ceilings, walls: dashed lines across and up, words -> place
    look: the arguments of `axes`
    """
    fig, ax = panel(8, 4.2)
    dashed = dashed or {}
    names = list(dict.fromkeys([*lines, *dashed]))
    for name, colour in zip(names, colours_of(names), strict=True):
        words = label(name) or None
        if points := lines.get(name):
            ax.plot(*zip(*points.items(), strict=True), ls="" if dots or name in dashed else "-", color=colour,
                    marker=marker(name) if dots or len(points) <= 30 else "", label=None if name in dashed else words,
                    zorder=6 if dots else 2)                             # no name hides a number
        if points := dashed.get(name):
            ax.plot(*zip(*points.items(), strict=True), "--", lw=1.4, color=colour, label=words)
    for height in (ceilings or {}).values():
        ax.axhline(height, ls="--", color=INK, lw=1.2)
    for words, place in (walls or {}).items():
        wall(ax, words, place)
    places = sorted({place for points in lines.values() for place in points})
    few = len(places) <= 10 and "x" not in look.get("byte", "")
    axes(ax, x, y, **{"ticks": places if few else None} | look)
    for words, height in (ceilings or {}).items():
        ceiling(ax, words, height)
    return finish(fig, title, source)


def colours_of(names):
    """A colour for each name: a rung's own, the learner's, or the next of a cycle."""
    rest = itertools.cycle(CYCLE)
    return [color(name, "") or next(rest) for name in names]


def axes(ax, xlabel="", ylabel="", log="", byte="", ticks=None, names="{:g}".format, **limits):
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


def ceiling(ax, words, height):
    """The words of a dashed line across: at its left or right end, above or below it, where least stands in the way."""
    ax.autoscale_view()
    to_axes, wide = ax.transAxes.inverted(), 0.02 + 0.012 * len(words)
    own = (ax.transData + to_axes).transform((1, height))[1]
    x, y = np.vstack([(line.get_transform() + to_axes).transform(line.get_xydata()) for line in ax.lines]).T
    crowd = {(right, up): (own < -0.09 * up) + ((abs(x - right) < wide) & (abs(up * (y - own) - 0.04) < 0.03)).sum()
             for up in (1, -1) for right in (0, 1)}
    right, up = min(crowd, key=crowd.get)
    note(ax, words, right, height, 4 - 8 * right, 4 * up, xycoords=ax.get_yaxis_transform(),
         ha="right" if right else "left", va="bottom" if up > 0 else "top", bbox=BLANK)


def wall(ax, words, place):
    """A dashed line upwards with its words above its end."""
    ax.axvline(place, ls="--", color=INK, lw=1.2)
    note(ax, words, place, 1, 0, 3, xycoords=ax.get_xaxis_transform(), ha="center", va="bottom")


@figure
def bars(values, title, source, xlabel, *, log=False, byte=False, worse=(), walls=None, behind=None):
    """A bar for each name with its number behind it, or a bar in parts.

    values: name -> number, or name -> {part: number}; worse: names in the colour of what goes wrong; walls: dashed
    lines upwards, words -> place; behind: texts in place of the numbers
    """
    rows = [value if isinstance(value, dict) else {"": value} for value in values.values()]
    totals = [sum(row.values()) for row in rows]
    parts = list(dict.fromkeys(part for row in rows for part in row))
    fig, ax = panel(8.6, 1.2 + 0.42 * max(1, len(rows)) + 0.3 * (len(parts) > 1) + 0.2 * bool(walls))
    starts = np.zeros(len(rows))
    fills = (READ, WRITTEN) if parts == ["read", "written"] else [*CYCLE, *(ramp(fill)(0.25) for fill in CYCLE)]
    if parts == [""]:
        fills = [[ORANGE if name in worse else color(name, BLUE) for name in values]]
    for part, fill in zip(parts, fills, strict=False):
        widths = np.array([row.get(part, 0) for row in rows])
        ax.barh(range(len(rows)), widths, 0.66, left=starts, color=fill, label=part or None)
        starts += widths
    small = lambda n: power_text(n, 2) if 0 < n < 1e-3 else f"{n:.3g}"
    number = bytes_text if byte else lambda n: f"{n:,.0f}" if n >= 100 else small(n)
    for y, text in enumerate(behind or map(number, totals)):
        note(ax, text, totals[y], y, 6, fontsize=8.5, bbox=BLANK)
    ax.set(xlabel=xlabel, ylim=(len(rows) - 0.4, -0.6))
    ax.set_xlim(right=1.2 * max([*totals, *(walls or {}).values()]) or 1)
    if log:
        ax.set(xscale="log", xlim=(min(totals) / 2, 4 * max(totals)))
        plain_log(ax.xaxis)
    if byte:
        byte_axis(ax.xaxis)
    ax.set_yticks(range(len(rows)), map(label, values))
    for words, place in (walls or {}).items():
        wall(ax, words, place)
    if len(parts) > 1:
        above = 1 + 0.45 * bool(walls) / len(rows)                       # the words of a wall
        ax.legend(ncols=9, loc="lower left", bbox_to_anchor=(0, above), frameon=False, fontsize=8.5, handlelength=1)
    return finish(fig, title, source)


@figure
def matrices(found, title, source, x="", y="", *, rows=(), columns=(), number="{:g}", top=None):
    """Matrices side by side, darker where a number is larger, orange where it is negative, white where it is NaN.

    found: name -> rows of numbers, or (rows of numbers, rows of the texts in their cells); a mask's cells stay empty
    rows, columns: their names; number: the format of a number in a cell; top: the number that is
    drawn darkest, by default the largest
    """
    pairs = [pair if isinstance(pair, tuple) else (pair, None) for pair in found.values()]
    numbers = [np.asarray(values) for values, _ in pairs]
    top = top or max(1e-30, *(np.nanmax(np.abs(one.astype(float))) for one in numbers))
    height, across = max(one.shape[0] for one in numbers), sum(one.shape[1] for one in numbers)
    cell = min(0.42, 3.6 / height, 8.4 / across)
    fig, axs = panels(len(found), size=(9, 1.7 + max(0.8, cell * height)),
                      width_ratios=[one.shape[1] for one in numbers])
    for ax, name, one, (_, texts) in zip(axs, found, numbers, pairs, strict=True):
        if texts is None and one.dtype != bool and one.size <= 300:
            texts = [["" if np.isnan(value) else number.format(value) for value in row] for row in one.astype(float)]
        heat_map(ax, one.astype(float) / top, texts)
        ax.set(xlabel=x, title=name)
        axis_names(ax.set_xticks, columns, one.shape[1])
        axis_names(ax.set_yticks, rows, one.shape[0])
    axs[0].set_ylabel(y)
    return finish(fig, title, source)


def heat_map(ax, shares, texts=None):
    """A matrix of numbers from -1 to 1 as cells, with their texts."""
    fills = ramp(BLUE)(shares)[..., :3]
    fills[shares < 0] = ramp(ORANGE)(-shares[shares < 0])[..., :3]
    fills[shares == 0] = to_rgb(PALE)
    fills[np.isnan(shares)] = to_rgb("white")
    height, width = shares.shape
    ax.imshow(fills, extent=(0, width, height, 0), aspect="equal" if width < 6 * height else "auto",
              interpolation="nearest")
    if shares.size <= 2500:
        ax.hlines(range(height + 1), 0, width, color="white", lw=1)
        ax.vlines(range(width + 1), 0, height, color="white", lw=1)
    size = 8 if max(shares.shape) < 14 else 6
    for y, row in enumerate(np.asarray(texts) if texts is not None else ()):
        for x, text in enumerate(row):
            write(ax, x + 0.5, y + 0.5, text, size, color=ink_on(fills[y, x]))
    bare(ax)


def axis_names(set_names, names, count):
    """Names in the middle of cells; without any, the numbers of the first and of the last."""
    named = dict(enumerate(names)) or {0: 0, count - 1: count - 1}
    set_names([n + 0.5 for n in named], list(named.values()), fontsize=8)


def canvas(ax, across, down, equal=True):
    """Axes for a drawing: limits in both directions and nothing around them."""
    ax.set(xlim=across, ylim=down, aspect="equal" if equal else "auto")
    ax.axis("off")


def write(ax, x, y, text, size=9, **look):
    """Text in the middle of the point (x, y)."""
    ax.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": size} | look)


def box(ax, x, y, width=1, height=1, fill=PALE, text="", size=9, **look):
    """A rectangle with its upper left corner at (x, y) and text in the middle. Returns the rectangle."""
    patch = ax.add_patch(Rectangle((x, y), width, height, fc=fill, **{"ec": "white", "lw": 1} | look))
    if text != "":
        write(ax, x + width / 2, y + height / 2, text, size, color=ink_on(fill), zorder=patch.zorder + 1)
    return patch
