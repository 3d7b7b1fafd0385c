"""One step of a player as a PNG image: for pages where no script runs, and for print. On white, as the figures are."""

import io

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.patches import Rectangle

SHARP = 100                            # pixels an inch; the page's pixels are points here, 72 an inch
LEVELS = 17                            # colours are rounded to multiples of it, which halves the file
INK, QUIET, BAD, EDGE, GREY = "#222222", "#666666", "#B3261E", "#BBBBBB", "#9E9E9E"
# By the last word of a rectangle's look, as player.css has them: how much of the lane's colour, or which other one.
SHARES = {"lit": 1, "load": 1, "store": 1, "new": 1, "live": 1, "here": 0.4, "peak": 0.35, "seen": 0.28, "block": 0.24}
GREYS = {"rail": "#EEEEEE", "read": "#5B5B5B", "written": GREY, "stored": GREY, "budget": BAD}
EDGES = {"store": (INK, 1.4), "new": (INK, 1.4), "mark": (BAD, 2)}
MARGIN, BESIDE, HEAD = 14, 28, 26
PITCH, LINES, WIDE = 16.5, 30, 560     # a line of code; at most so many; the pixels that they get beside the picture
WIDTH = 85                             # letters of a line


def still(scenes, tick):
    """The scenes at a tick, side by side; a single one with its source."""
    now = [(scene, scene.at(step)) for scene, step in zip(scenes, tick, strict=True)]
    code = _lines_around(now[0][1]) if len(scenes) == 1 else []
    width = sum(scene.width + BESIDE for scene in scenes) + (WIDE if code else 0) + 2 * MARGIN
    height = HEAD + 2 * MARGIN + max(scenes[0].height + 40, 50 + PITCH * len(code))
    fig = Figure(figsize=(width / 72, height / 72), dpi=SHARP)
    ax = fig.add_axes([0, 0, 1, 1], xlim=(0, width), ylim=(height, 0))
    ax.axis("off")
    x = MARGIN
    for scene, items in now:
        ax.text(x, MARGIN + 14, scene.title, size=15, color=scene.color, weight="bold")
        for item in items:
            _draw(ax, item, x, HEAD + MARGIN, scene.color)
        says = (x + scene.width + BESIDE, HEAD + MARGIN + 10) if code else (x, HEAD + MARGIN + scene.height + 22)
        _say(ax, items, *says)
        x += scene.width + BESIDE
    if code:
        _write(ax, code, x, HEAD + MARGIN + 40, scenes[0].color)
    return _png(fig)


def _png(fig):
    canvas, file = FigureCanvasAgg(fig), io.BytesIO()
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3].astype(int) + LEVELS // 2
    imsave(file, (pixels - pixels % LEVELS).astype(np.uint8), format="png", metadata={"Software": None})
    return file.getvalue()


def _lines_around(items):
    """The lines of source, or those around the running one."""
    lines = [item for item in items if item.kind == "code"]
    now = next((n for n, line in enumerate(lines) if " now" in line.look), 0)
    first = max(0, min(now - LINES // 2, len(lines) - LINES))
    return lines[first:first + LINES]


def _say(ax, items, x, y):
    status = next(item for item in items if item.kind == "status")
    ax.text(x, y, "\n".join(text[:WIDE // 7] for text in status.text.split("\n")[:2]), size=12, va="center",
            color=BAD if "bad" in status.look else INK)


def _write(ax, lines, x, y, color):
    ax.add_patch(Rectangle((x, y), WIDE, PITCH * len(lines) + 8, fc="#EEEEEE"))
    for n, line in enumerate(lines):
        top = y + 4 + PITCH * n
        if " now" in line.look:
            ax.add_patch(Rectangle((x, top), WIDE, PITCH, fc=_tint(BAD if "bad" in line.look else color, 0.24)))
        font = {"size": 10, "family": "monospace", "parse_math": False}
        ax.text(x + 30, top + 12, str(line.number or ""), color=QUIET, ha="right", **font)
        ax.text(x + 38, top + 12, line.text[:WIDTH], color=QUIET if "idle" in line.look else INK, **font)


def _draw(ax, item, x, y, color):
    x, y, look = x + item.x, y + item.y, item.look.split()
    if item.kind == "text":
        ax.text(x, y, item.text, parse_math=False, color=QUIET if "off" in look else INK,
                size=12.5 if "name" in look else 11, family="monospace" if "digits" in look else "sans-serif",
                ha="center" if "mid" in look else "right" if "end" in look else "left",
                weight="bold" if {"name", "head", "strong"} & set(look) else "normal")
    elif item.kind == "stroke":
        ax.plot([x, x + item.w], [y, y + item.h], color=EDGE, lw=1)
    elif item.kind == "rect":
        share = SHARES.get(look[-1])
        fill = GREYS.get(look[-1], "none") if share is None else _tint(color, share)
        edge, thick = EDGES.get(look[-1]) or (EDGE, 0.6 if look[0] in ("cell", "tensor", "block") else 0)
        dashed = look[-1] in ("absent", "off")
        ax.add_patch(Rectangle((x, y), item.w, item.h, fc=fill, ec=edge, lw=thick, ls="--" if dashed else "-"))


def _tint(color, share):
    """`share` of the colour, the rest white."""
    return tuple(1 - share * (1 - part) for part in to_rgb(color))
