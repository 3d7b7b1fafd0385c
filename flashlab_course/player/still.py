"""One step of a player as an image: for pages where no script runs, and for print. On white, as the figures are."""

from functools import cache
from pathlib import Path

from matplotlib import get_data_path
from PIL import Image, ImageColor, ImageDraw, ImageFont

SHARP = 1.6                            # pixels of the image for one of the page
INK, QUIET, BAD, EDGE, EMPTY, GREY = "#222222", "#666666", "#B3261E", "#BBBBBB", "#F8F8F8", "#9E9E9E"
CODE, HEAD, MARGIN, BESIDE = "#F5F6F8", 26, 14, 28
PITCH, LINES, WIDE = 16.5, 44, 560     # a line of code; at most so many; the pixels that they get beside a single picture
FEWER = 12                             # of them where pictures stand side by side
RANKS = ("#0072B2", "#D55E00", "#5E8C1F", "#E0A100", "#8E5EA2", "#4A5568", "#B03A6F", "#2A9D8F")      # player.css: own0 to own7


def still(scenes, tick):
    """The scenes at a tick: a PIL Image."""
    several = len(scenes) > 1
    now = [(scene, scene.at(step)) for scene, step in zip(scenes, tick, strict=True)]
    code = [_code(items, FEWER if several else LINES) for _, items in now]
    longest = max(len(lines) for lines in code)
    below = 58 + PITCH * longest
    width = sum(scene.width + BESIDE for scene in scenes) + (WIDE if longest and not several else 0) + 2 * MARGIN
    tallest = max(scene.height for scene in scenes)
    sheet = _Sheet(width, HEAD + 2 * MARGIN + (tallest + below if several or not longest else max(tallest, below)))
    x = MARGIN
    for (scene, items), lines in zip(now, code, strict=True):
        sheet.write(x, MARGIN + 14, scene.title, 15, scene.color, bold=True)
        for item in items:
            _draw(sheet, item, x, HEAD + MARGIN, scene.color)
        left, top = (x, HEAD + MARGIN + tallest + 12) if several or not lines else (x + scene.width + BESIDE, HEAD + MARGIN + 10)
        _say(sheet, items, lines, left, top, scene.color, scene.width if several or not lines else WIDE)
        x += scene.width + BESIDE
    return sheet.image


class _Sheet:
    """White paper, measured in the page's pixels."""

    def __init__(self, width, height):
        self.image = Image.new("RGB", (round(width * SHARP), round(height * SHARP)), "white")
        self.pen = ImageDraw.Draw(self.image)

    def write(self, x, y, text, size, color=INK, at="l", bold=False, mono=False):
        self.pen.text((x * SHARP, y * SHARP), text, color, _font(round(size * SHARP, 1), bold, mono), anchor=f"{at}s")

    def rect(self, x, y, w, h, fill=None, edge=None, thick=1.0, dashed=False):
        box = [round(v * SHARP) for v in (x, y, x + max(w, 0), y + max(h, 0))]
        if w > 0 and h > 0:
            self.pen.rectangle(box, fill, None if dashed else edge, max(1, round(thick * SHARP)) if edge and not dashed else 0)
        if dashed:
            (x0, y0, x1, y1), step = box, round(3 * SHARP)
            for at in range(x0, x1, 2 * step):
                self.pen.line([(at, y0), (min(at + step, x1), y0)], edge), self.pen.line([(at, y1), (min(at + step, x1), y1)], edge)
            for at in range(y0, y1, 2 * step):
                self.pen.line([(x0, at), (x0, min(at + step, y1))], edge), self.pen.line([(x1, at), (x1, min(at + step, y1))], edge)

    def half(self, x, y, w, h, fill):
        self.pen.polygon([(x * SHARP, y * SHARP), (x * SHARP, (y + h) * SHARP), ((x + w) * SHARP, (y + h) * SHARP)], fill)

    def stroke(self, x, y, w, h):
        self.pen.line([(x * SHARP, y * SHARP), ((x + w) * SHARP, (y + h) * SHARP)], EDGE, 1)


@cache
def _font(size, bold, mono):
    """DejaVu comes with matplotlib: the same image on every machine."""
    name = f"DejaVuSans{'Mono' if mono else ''}{'-Bold' if bold else ''}.ttf"
    return ImageFont.truetype(str(Path(get_data_path()) / "fonts" / "ttf" / name), size)


def _code(items, most):
    """The lines of source, or those around the running one."""
    lines = [item for item in items if item.kind == "code"]
    now = next((n for n, line in enumerate(lines) if " now" in line.look), 0)
    first = max(0, min(now - most // 2, len(lines) - most))
    return lines[first:first + most]


def _say(sheet, items, lines, x, y, color, width):
    status = next(item for item in items if item.kind == "status")
    for n, text in enumerate(status.text.split("\n")[:2]):
        sheet.write(x, y + n * 17, text[:int(width / 6.6)], 12, BAD if "bad" in status.look else INK)
    if not lines:
        return
    y += 30
    sheet.rect(x, y, width, PITCH * len(lines) + 8, CODE)
    for n, line in enumerate(lines):
        top = y + 4 + PITCH * n
        if " now" in line.look:
            sheet.rect(x, top, width, PITCH, _mix(BAD if "bad" in line.look else color, 0.24))
        sheet.write(x + 30, top + 12, str(line.number or ""), 10, QUIET, at="r", mono=True)
        sheet.write(x + 38, top + 12, line.text[:int((width - 44) / 6.05)], 10, QUIET if "idle" in line.look else INK, mono=True)


def _mix(color, share):
    """A tint: `share` of the colour, the rest white."""
    return tuple(round(255 - share * (255 - part)) for part in ImageColor.getrgb(color))


def _draw(sheet, item, x, y, color):
    look = item.look.split()
    if item.kind == "rect":
        fill, edge, thick = _style(item.look, color)
        if fill or edge:
            dashed = bool({"absent", "off", "masked"} & set(look))
            sheet.rect(x + item.x, y + item.y, item.w, item.h, fill, edge, thick, dashed)
    elif item.kind == "half":
        fill, *_ = _style(item.look, color)
        if fill:
            sheet.half(x + item.x, y + item.y, item.w, item.h, fill)
    elif item.kind == "stroke":
        sheet.stroke(x + item.x, y + item.y, item.w, item.h)
    elif item.kind == "text" and item.text:
        sheet.write(x + item.x, y + item.y, item.text, 12.5 if "name" in look else 11, QUIET if "off" in look else INK,
                    at="m" if "mid" in look else "r" if "end" in look else "l", bold=bool({"name", "head", "strong"} & set(look)),
                    mono="digits" in look)


def _style(look, color):
    """(fill, edge, thickness) of a rectangle's look; player.css says the same for the page."""
    if look.startswith("own"):
        shade = RANKS[int(look[3])]
        return (_mix(shade, 0.36) if " " in look else shade), None, 0
    return {
        "rail": ("#EEEEEE", None, 0), "read": ("#5B5B5B", None, 0), "written": (GREY, None, 0), "budget": (BAD, None, 0),
        "peak": (_mix(color, 0.35), None, 0), "live": (color, None, 0), "mark": (None, BAD, 2), "masked": (None, INK, 1),
        "cell": (EMPTY, EDGE, 0.6), "cell seen": (_mix(color, 0.28), EDGE, 0.6), "cell lit": (color, EDGE, 0.6),
        "tensor": (EMPTY, EDGE, 0.6), "tensor absent": (None, EDGE, 0.6), "tensor load": (color, EDGE, 0.6),
        "tensor store": (color, INK, 1.4), "span here": (_mix(color, 0.4), None, 0), "span load": (color, None, 0),
        "span store": (color, INK, 1.4), "span stored": (GREY, None, 0),
        "block": (_mix(color, 0.24), color, 0.6), "block new": (color, INK, 1.4), "block off": (None, EDGE, 0.6),
    }.get(look, (None, None, 0))
