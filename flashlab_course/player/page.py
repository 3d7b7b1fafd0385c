"""play(): recordings as one page of HTML, SVG and a small script, with a picture for where scripts do not run."""

import base64
import hashlib
import html
import io
import json
from importlib.resources import files
from pathlib import Path

from PIL import Image

from flashlab_course.player.picture import picture
from flashlab_course.player.recording import Recording
from flashlab_course.player.ring import Ring
from flashlab_course.player.still import still

CSS, JS = (files("flashlab_course.player").joinpath(name).read_text(encoding="utf-8") for name in ("player.css", "player.js"))
SCALES = {1: 1, 2: 0.85}               # of the pictures, if so many stand side by side
COLORS = 48                            # of the still in a page: flat surfaces and soft edges need no more
ICONS = {"first": ("To the start", "M2 2h2v12H2zM14 2v12L5 8z"), "back": ("Back", "M10 2l2 2-4 4 4 4-2 2-6-6z"),
         "on": ("Forward", "M6 2L4 4l4 4-4 4 2 2 6-6z"), "last": ("To the end", "M12 2h2v12h-2zM2 2v12l9-6z")}
PLAY = ('<svg class="go" viewBox="0 0 16 16"><path d="M4 2v12l9-6z"/></svg>'
        '<svg class="pause" viewBox="0 0 16 16"><path d="M3 2h4v12H3zM9 2h4v12H9z"/></svg>')


def play(*recordings, titles=None, start=None, at=None):
    """A player of one recording, or of several side by side. In a notebook it shows itself.

    titles   one for each recording, in place of the recordings' own
    start    the step to open at, from 0; of several, that of the first
    at       (name, index): open where T[index] of the first recording got its last value, and point at it: ("O", (3, 1))

    Several share a clock: at each moment all have moved as many bytes of HBM traffic, as far as their lines allow. Of rings,
    which take no `at`, it is the time of their slowest ranks.
    Raises: TypeError, ValueError that names the argument
    """
    if not recordings or not any(all(isinstance(one, kind) for one in recordings) for kind in (Recording, Ring)):
        raise TypeError("play takes recordings, or rings: play(record(fa2_forward, Q, K, V, B_r=4, B_c=4))")
    if titles is not None and len(titles) != len(recordings):
        raise ValueError(f"titles must be one for each of the {len(recordings)} recordings, got {len(titles)}")
    if start is not None and at is not None:
        raise ValueError("give start or at, not both: at finds the step by itself")
    if at is not None and isinstance(recordings[0], Ring):
        raise ValueError(f"at names a place in a tensor of a recording, of which a ring has none, got {at!r}: give start")
    if at is not None:
        start = recordings[0].storing(*at)
    steps = len(recordings[0].steps)
    if start is not None and not 0 <= start < steps:
        raise ValueError(f"start must be a step of the first recording, 0 to {steps - 1}, got {start}")
    total = max(one.total for one in recordings)
    scenes = [picture(one, total, at if n == 0 else None, SCALES.get(len(recordings), 0.75)) for n, one in enumerate(recordings)]
    tallest = max(scene.height for scene in scenes)
    for scene, title in zip(scenes, titles or [one.title for one in recordings], strict=True):
        scene.title, scene.height = title, tallest
    return Player(scenes, start, marked=at is not None)


class Player:
    """Shows itself in a notebook. save(path) writes a page that needs nothing else; still(step) draws one step."""

    def __init__(self, scenes, start=None, marked=False):
        self.scenes, self.marked = scenes, marked
        self.ticks = _ticks(scenes)
        opened = 0 if start is None else start
        self.start = next(n for n, tick in enumerate(self.ticks) if tick[0] >= opened)
        self._html = None

    def __repr__(self):
        names = ", ".join(f"{scene.title} ({scene.summary})" for scene in self.scenes)
        return f"Player of {names}; in a notebook it shows itself, .save(\"player.html\") writes a page"

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _repr_html_(self):
        if self._html is None:
            data = _data(self)
            written = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/").replace("<!--", "<\\!--")
            title = html.escape(", ".join(scene.title for scene in self.scenes))
            self._html = (f'<div class="flashlab-player" data-flashlab="{data["id"]}"><img style="max-width:100%" '
                          f'alt="{title}: one step of a run, as a still picture" src="data:image/png;base64,{self._png()}"></div>'
                          f"<script>{JS.strip()}({written});</script>")
        return self._html

    def save(self, path):
        """Write a page of its own."""
        title = html.escape(", ".join(scene.title for scene in self.scenes))
        Path(path).write_text(f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
                              '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
                              f"</head><body>{self._repr_html_()}</body></html>", encoding="utf-8")

    def still(self, step=None):
        """An image of one place of the slider, from 0; None: the one that the player opens at. `.save("still.png")` keeps it."""
        if step is not None and not 0 <= step < len(self.ticks):
            raise ValueError(f"step must be a place of the slider, 0 to {len(self.ticks) - 1}, got {step}")
        return still(self.scenes, self.ticks[self.start if step is None else step])

    def _png(self):
        file, ends = io.BytesIO(), _tiles(self)
        middle = self.start if self.start else max(0, ends[len(ends) * 3 // 5] - 1)    # the first step of all shows little
        self.still(middle).quantize(COLORS, Image.Quantize.MAXCOVERAGE).save(file, format="png", optimize=True)
        return base64.b64encode(file.getvalue()).decode()


def _ticks(scenes):
    """The steps at which the lanes are, for each place of the slider: [step of the first lane, of the second, ...]."""
    if len(scenes) == 1:
        return [[n] for n in range(len(scenes[0].frames))]
    times = [_times(scene.moved) for scene in scenes]
    ticks, at = [], [0] * len(scenes)
    for now in sorted({time for lane in times for time in lane}):
        for n, lane in enumerate(times):
            while at[n] + 1 < len(lane) and lane[at[n] + 1] <= now:
                at[n] += 1
        if not ticks or ticks[-1] != at:
            ticks.append(list(at))
    return ticks


def _times(moved):
    """When each step is over: bytes moved, with the lines between two moves spread over the second."""
    times, n = [], 0
    while n < len(moved):
        stop = next((k for k in range(n, len(moved)) if moved[k] > moved[n]), len(moved))
        after = moved[stop] if stop < len(moved) else moved[n] + 1
        times += [moved[n] + (after - moved[n]) * (k - n) / (stop - n) for k in range(n, stop)]
        n = stop
    return times


# ---- what the script gets

def _data(player):
    words, lanes = {}, []

    def word(value):
        return words.setdefault(value, len(words))

    for scene in player.scenes:
        slots = {slot: n for n, slot in enumerate(dict.fromkeys(slot for frame in scene.frames for slot in frame))}
        values, steps = {}, []
        for frame in scene.frames:
            changed = {slot: value for slot, value in frame.items() if values.get(slot) != value}
            steps.append([x for slot, value in changed.items() for x in (slots[slot], word(value))])
            values |= changed
        first = [word("")] * len(slots)
        first[:] = [word(scene.frames[0].get(slot, "")) for slot in slots]
        lanes.append({"slots": list(slots), "first": first, "steps": steps})
    data = {"lanes": lanes, "words": list(words), "ticks": player.ticks, "tiles": _tiles(player), "start": player.start,
            "milliseconds": player.scenes[0].words.milliseconds, "html": f"<style>{CSS}</style>{_stage(player)}"}
    return {"id": hashlib.sha1(json.dumps(data).encode()).hexdigest()[:12]} | data


def _tiles(player):
    """The places of the slider at which a lane ends with a tile."""
    ends = {(n, end) for n, scene in enumerate(player.scenes) for end in scene.tiles}
    before = [[None] * len(player.scenes), *player.ticks]
    return [t for t, tick in enumerate(player.ticks)
            if any((n, step) in ends and step != before[t][n] for n, step in enumerate(tick))]


def _stage(player):
    several, words = " several" if len(player.scenes) > 1 else "", player.scenes[0].words
    title = html.escape(", ".join(scene.title for scene in player.scenes))
    buttons = {name: f'<button type="button" data-do="{name}" aria-label="{label}" title="{label}"><svg viewBox="0 0 16 16">'
                     f'<path d="{path}"/></svg></button>' for name, (label, path) in ICONS.items()}
    chosen = " selected" if several else ""
    buttons["play"] = f'<button type="button" class="play" data-do="play" aria-label="Play">{PLAY}</button>'
    bar = ("".join(buttons[name] for name in ("first", "back", "play", "on", "last"))
           + '<input type="range" min="0" value="0" aria-label="Step"><select aria-label="Each step is">'
           + f'<option value="line">by {words.small}</option><option value="tile"{chosen}>by {words.large}</option></select>'
           + "<output></output>")
    clock = f"<span>One clock: {words.clock}.</span>" if several else ""
    wrong = '<span><b class="wrong"></b>the element in question</span>' if player.marked else ""
    crossed = any(item.kind == "stroke" for scene in player.scenes for item in scene.items)
    never = '<span><b class="crossed"></b>never visited in this run</span>' if crossed else ""
    samples = "".join(f'<span>{f"""<b class="{look}"></b>""" if look else ""}{said}</span>' for look, said in words.keys)
    keys = f"<span>Space plays; ← → step, with Shift by {words.large}; Home, End</span>{samples}{never}{wrong}{clock}"
    return (f'<div class="stage{several}" tabindex="0" role="group" aria-label="Player: {title}" data-lm-suppress-shortcuts="true">'
            f'<div class="bar">{bar}</div><div class="lanes">{"".join(_lane(scene) for scene in player.scenes)}</div>'
            f'<p class="keys">{keys}</p></div>')


def _lane(scene):
    moving = {item for frame in scene.frames for item, _ in frame}
    drawn, lines, status = [], [], ""
    for n, item in enumerate(scene.items):
        mark = f' data-i="{n}"' if n in moving else ""
        if item.kind == "code":
            text, comment, rest = item.text.partition("  # ")
            said = html.escape(text) + (f"<em>{html.escape(comment + rest)}</em>" if comment else "")
            lines.append(f'<div class="{item.look}"{mark}><i>{item.number or ""}</i>{said}</div>')
        elif item.kind == "status":
            status = f'<p class="{item.look}"{mark} aria-live="polite"></p>'
        else:
            drawn.append(_drawn(item, mark))
    w, h, title = round(scene.width), round(scene.height), html.escape(scene.title)
    svg = (f'<svg class="picture" role="img" aria-label="{scene.words.picture}" width="{w}" height="{h}" '
           f'viewBox="-1 -1 {w + 2} {h + 2}">{"".join(drawn)}</svg>')
    source = f'<div class="source" tabindex="-1">{"".join(lines)}</div>' if lines else ""
    said = f'<div class="said">{status}{source}</div>'
    return (f'<section class="lane" style="--accent:{scene.color};--wide:{w}px"><h4>{title}</h4>'
            f'<div class="views">{svg}{said}</div></section>')


def _drawn(item, mark):
    x, y, w, h = (f"{value:.1f}".rstrip("0").rstrip(".") for value in (item.x, item.y, item.w, item.h))
    if item.kind == "text":
        return f'<text x="{x}" y="{y}" class="{item.look}"{mark}>{html.escape(item.text)}</text>'
    if item.kind == "half":
        return f'<path d="M{x} {y}v{h}h{w}z" class="{item.look}"{mark}/>'
    if item.kind == "stroke":
        return f'<path d="M{x} {y}l{w} {h}" class="{item.look}"/>'
    return f'<rect x="{x}" y="{y}" width="{w}" height="{h}" class="{item.look}"{mark}/>'
