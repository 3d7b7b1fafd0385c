"""play(): recordings as one page of HTML, SVG and a small script, with a picture for where scripts do not run."""

import base64
import hashlib
import html
import json
import re
from functools import partial
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

from flashlab.ladder import find
from flashlab_course.player.parts import draw_chip, draw_numbers, draw_source, draw_traffic
from flashlab_course.player.recording import Recording
from flashlab_course.player.scene import Scene
from flashlab_course.player.tensors import draw_tensors

CSS, JS = ((files("flashlab_course.player") / name).read_text(encoding="utf-8") for name in ("player.css", "player.js"))
OTHER = "#5A4FCF"                      # the colour of a function that is no rung, a learner's mostly
WIDEST, SCALES = 372, (1, 0.85, 0.75)  # pixels of a picture, and its scale if it stands alone, beside one, beside more
SECONDS = 20                           # of a run of several lanes, tile by tile
LINES, CODE = 28, 17.25                # the still picture's lines of code at most, and the height of one
BUTTONS = {"first": ("To the start", "M2 2h2v12H2zM14 2v12L5 8z"), "back": ("Back", "M10 2l2 2-4 4 4 4-2 2-6-6z"),
           "play": ("Play", "M4 2v12l9-6z"),
           "on": ("Forward", "M6 2L4 4l4 4-4 4 2 2 6-6z"), "last": ("To the end", "M12 2h2v12h-2zM2 2v12l9-6z")}
KEYS = """<span>Space plays; ← → step, with Shift by tile; Home, End</span>
<span><b class="moving"></b>moves or is made in this line</span>
<span><b class="kept"></b>on chip, or visited before</span>
<span><b class="stored"></b>stored</span>"""
CROSSED = '<span><b class="crossed"></b>never visited in this run</span>'
WRONG = '<span><b class="wrong"></b>the element in question</span>'
CLOCK = "<span>One clock: all have moved about as many bytes.</span>"


def play(*recordings, start=None, at=None, end=""):
    """A player of one recording, or of several side by side. In a notebook it shows itself.

    start    the step to open at, from 0; of several, that of the first
    at       (name, index), as ("O", (3, 1)): mark this element, and without start open where the first recording
             last stores it
    end      a sentence that appears after the last step

    Several share a clock: at each moment all have moved as many bytes of HBM traffic, as far as their lines allow.
    Tile by tile, a run of several takes SECONDS.
    Raises: TypeError, ValueError that names the argument
    """
    if not recordings or not all(isinstance(one, Recording) for one in recordings):
        raise TypeError("play takes recordings: play(record(fa2_forward, Q, K, V, B_r=4, B_c=4))")
    if at is not None:
        stored = recordings[0].storing(*at)
        start = stored if start is None else start
    steps = len(recordings[0].steps)
    if start is not None and not 0 <= start < steps:
        raise ValueError(f"start must be a step of the first recording, 0 to {steps - 1}, got {start}")
    total, scale = max(max(one.read, one.written) for one in recordings), SCALES[min(len(recordings), 3) - 1]
    scenes = [picture(one, total, at if n == 0 else None, scale) for n, one in enumerate(recordings)]
    tallest = max(scene.height for scene in scenes)
    for scene in scenes:
        scene.height = tallest
    return Player(scenes, start or 0, marked=at is not None, end=end)


def picture(recording, total, mark=None, scale=1.0):
    """The Scene of a recording: its parts, one below the other.

    total   the bytes at which bars are full
    mark    (name, index) of an element to point at
    scale   less than 1 if several stand side by side
    """
    rung = find(recording.rung)
    scene = Scene(recording.title, rung.color if rung else OTHER, WIDEST * scale)
    bottom, row = draw_tensors(scene, recording, 40, mark, scale)
    draw_traffic(scene, recording, total)
    bottom = draw_chip(scene, recording, bottom + 6, row)
    scene.height = draw_numbers(scene, recording, bottom + 6)
    draw_source(scene, recording)
    scene.moved = [step.read + step.written for step in recording.steps]
    tiled = any(step.tile for step in recording.steps)
    where = [(step.tile, step.phase, step.head) if tiled else n for n, step in enumerate(recording.steps)]
    ends = [n for n, here in enumerate(where) if where[n + 1:n + 2] != [here]]
    stores = [n for n, step in enumerate(recording.steps) if any(move.kind == "store" for move in step.moves)]
    scene.tiles = [max((n for n in stores if start < n <= end), default=end) for start, end in pairwise([-1, *ends])]
    return scene


class Player:
    """Shows itself in a notebook. save(path) writes a page that needs nothing else.

    keys: what the line below the picture explains; units: what a step is, and a larger one; stops: (step, name) of
    places to look at, which get a button each; end: shown after the last step; told: each step is told in a sentence
    """

    def __init__(self, scenes, start=0, marked=False, keys=KEYS, units=("line", "tile"), stops=(), end="", told=False):
        self.scenes, self.marked, self.keys, self.units, self.end, self.told = scenes, marked, keys, units, end, told
        self.title = html.escape(", ".join(scene.title for scene in scenes))
        self.ticks = _ticks(scenes)
        self.start, *stopping = (next(n for n, tick in enumerate(self.ticks) if tick[0] >= step)
                                 for step in (start, *(step for step, _ in stops)))
        self.stops = list(zip(stopping, (name for _, name in stops), strict=True))
        ends, before = [set(scene.tiles) for scene in scenes], [[None] * len(scenes), *self.ticks]
        self.tiles = [t for t, tick in enumerate(self.ticks)       # where a lane is at the end of a tile
                      if any(step in end and step != old for end, step, old in zip(ends, tick, before[t], strict=True))]

    def __repr__(self):
        names = ", ".join(f"{one.title} ({len(one.moved)} steps)" for one in self.scenes)
        return f"Player of {names}; in a notebook it shows itself, .save(\"player.html\") writes a page"

    def _repr_html_(self):
        data = {"lanes": [_changes(scene) for scene in self.scenes], "ticks": self.ticks, "tiles": self.tiles,
                "clock": self.clock(), "start": self.start, "told": self.told,
                "html": f"<style>{CSS}</style>{_stage(self)}"}
        data["id"] = hashlib.sha1(json.dumps(data).encode()).hexdigest()[:12]
        written = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        written = written.replace("</", "<\\/").replace("<!--", "<\\!--")
        image = base64.b64encode(self.still().encode()).decode()
        return (f'<div class="flashlab-player" data-flashlab="{data["id"]}"><img style="max-width:100%" '
                f'alt="{self.title}: one step of a run, as a still picture" '
                f'src="data:image/svg+xml;base64,{image}"></div><script>{JS.strip()}({written});</script>')

    def clock(self):
        """Milliseconds until each place of the slider, where several lanes share a clock of bytes; else None."""
        if len(self.scenes) == 1:
            return None
        moved = [max(scene.moved[n] for scene, n in zip(self.scenes, tick, strict=True)) for tick in self.ticks]
        return [round(1000 * SECONDS * n / max(moved[-1], 1)) for n in moved]

    def save(self, path):
        """Write a page of its own."""
        head = (f'<meta charset="utf-8"><title>{self.title}</title><meta name="viewport" content="width=device-width">'
                '<meta name="color-scheme" content="light dark">')
        page = f'<!DOCTYPE html><html lang="en"><head>{head}</head><body>{self._repr_html_()}</body></html>'
        Path(path).write_text(page, encoding="utf-8")

    def still(self):
        """The step it opens at as an SVG image; if that is the first, which shows little, one from the middle."""
        moved = self.scenes[0].moved
        busy = [step for step, _ in self.stops] or [
            t for t in self.tiles if moved[n := self.ticks[t][0]] > moved[n - 1]] or self.tiles
        tick = self.ticks[self.start or busy[len(busy) // 2]]
        alone = len(self.scenes) == 1                  # the source is shown then
        lanes = "".join(_lane(scene, n, alone * LINES) for scene, n in zip(self.scenes, tick, strict=True))
        shown = alone * min(LINES, sum(item.kind == "code" for item in self.scenes[0].items))
        width = sum(scene.width + 28 for scene in self.scenes) + 32 + 600 * alone
        height = 60 + max(self.scenes[0].height + 60 * (not alone), 60 + CODE * shown)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}">'
                f'<foreignObject width="100%" height="100%"><div xmlns="http://www.w3.org/1999/xhtml" '
                f'class="flashlab-player"><style>{CSS}</style><div class="stage still{" several" * (not alone)}">'
                f'<div class="lanes">{lanes}</div></div></div></foreignObject></svg>')


def _ticks(scenes):
    """The step of each lane, for each place of the slider. The lane goes on that has moved the fewest bytes then."""
    ticks = [[0] * len(scenes)]
    while True:
        at = list(ticks[-1])
        then = {n: scene.moved[at[n] + 1] for n, scene in enumerate(scenes) if at[n] + 1 < len(scene.moved)}
        if not then:
            return ticks
        for n, moved in then.items():
            at[n] += moved == min(then.values())
        ticks.append(at)


def _changes(scene):
    """For the script: the slots that move, and for each step [slot, value, ...] of those that change."""
    slots = {(n, name): values for n, item in enumerate(scene.items) for name, values in item.moving().items()}
    steps = [[x for slot, values in enumerate(slots.values()) if not n or values[n] != values[n - 1]
              for x in (slot, values[n])] for n in range(len(scene.moved))]
    return {"slots": list(slots), "steps": steps}


# ---- HTML

def _stage(player):
    several = len(player.scenes) > 1
    crossed = any(item.kind == "stroke" for scene in player.scenes for item in scene.items)
    told = player.told or any(item.look == "told" for scene in player.scenes for item in scene.items)
    buttons = "".join(f'<button type="button" class="{name}" data-do="{name}" aria-label="{label}">'
                      f'<svg viewBox="0 0 16 16"><path d="{path}"/></svg></button>'
                      for name, (label, path) in BUTTONS.items())
    bar = (f'{buttons}<input type="range" min="0" value="0" aria-label="Step"><select aria-label="Each step is">'
           f'<option value="line">by {player.units[0]}</option>'
           f'<option value="tile"{" selected" * several}>by {player.units[1]}</option>'
           '</select><output></output>' + '<label><input type="checkbox" checked> explain</label>' * told)
    stops = "".join(f'<button type="button" data-to="{tick}">{name}</button>' for tick, name in player.stops)
    keys = re.sub(r'<b class="(?:moving|kept)"></b>', partial(_in_every_color, player), player.keys)
    verdict = f'<p class="verdict" hidden>{html.escape(player.end)}</p>' * bool(player.end)
    look = f'<div class="bar stops" role="group" aria-label="Stop and look">Stop and look: {stops}</div>' * bool(stops)
    return (f'<div class="stage{" several" * several}{" sentences" * player.told}" tabindex="0" role="group" '
            f'aria-label="Player: {player.title}" data-lm-suppress-shortcuts="true"><div class="bar">{bar}</div>{look}'
            f'<div class="lanes">{"".join(map(_lane, player.scenes))}</div>'
            f'{verdict}<p class="keys">{keys}{CROSSED * crossed}{WRONG * player.marked}{CLOCK * several}</p></div>')


def _in_every_color(player, found):
    """A box of the legend in the color of each lane."""
    box = found[0]
    return "".join(box.replace(">", f' style="--accent:{scene.color}">', 1) for scene in player.scenes)


def _lane(scene, step=0, lines=None):
    """A scene at a step, with at most so many lines of its source, those around the one that runs."""
    drawn = {"picture": [], "code": [], "status": []}
    for n, item in enumerate(scene.items):
        drawn[item.kind if item.kind in drawn else "picture"].append(_drawn(n, item.at(step)))
    if lines is not None:
        now = next((n for n, line in enumerate(drawn["code"]) if " now" in line), 0)
        first = max(0, min(now - lines // 2, len(drawn["code"]) - lines))
        drawn["code"] = drawn["code"][first:first + lines]
    w, h = round(scene.width), round(scene.height)
    svg = (f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" role="img" width="{w}" height="{h}" '
           f'aria-label="{html.escape(scene.title)}" viewBox="-1 -1 {w + 2} {h + 2}">'
           f'{"".join(drawn["picture"])}</svg>')
    source = f'<div class="source" tabindex="-1">{"".join(drawn["code"])}</div>'
    return (f'<section class="lane" style="--accent:{scene.color};--wide:{w}px"><h4>{html.escape(scene.title)}</h4>'
            f'<div class="views">{svg}<div class="said">{"".join(drawn["status"])}{source}</div></div></section>')


def _drawn(n, item):
    x, y, w, h = (f"{round(value, 1):g}" for value in (item.x, item.y, item.w, item.h))
    mark, said = f'class="{item.look}" data-i="{n}"', html.escape(item.text)
    if item.kind == "code":
        code, comment, rest = said.partition("  # ")
        return f'<div {mark}><i>{item.number or ""}</i>{code}<em>{comment + rest}</em></div>'
    if item.kind == "status":
        return f'<p {mark} aria-live="polite">{said}</p>'
    if item.kind == "text":
        return f'<text x="{x}" y="{y}" {mark}>{said}</text>'
    if item.kind == "stroke":
        return f'<path d="M{x} {y}l{w} {h}" {mark}/>'
    return f'<rect x="{x}" y="{y}" width="{w}" height="{h}" {mark}/>'
