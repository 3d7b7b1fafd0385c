"""Predictions: scored in words, drawn on the picture they are about, and kept, so that a restarted kernel still knows them."""

import contextlib
import json
import math
from dataclasses import dataclass
from numbers import Number

import numpy as np

from flashlab_course.check import progress
from flashlab_course.figures.colors import YOURS

FILE = ".predictions.json"
CLOSE = 0.05                   # a guess within 5 % is called close
FAR = 8                        # a guess up to 8 lengths of an axis away lengthens it; one farther would leave nothing to see


@dataclass
class Said:
    """What was predicted (None: nothing) and what is true: numbers, texts, lists or dicts, or a function of the dict's keys."""

    name: str
    guess: object
    truth: object
    unit: str = ""

    def _ipython_display_(self):
        """Nothing: `compare` has said it in words."""

    def on(self, fig, x=None, axis="y", ax=0):
        """The figure with the prediction drawn on its axes number `ax`, if there is one; else the figure as it is.

        A dict {x: value} becomes a point each, a function a curve, a number a point at `x`, or without x a line across: at that
        height (axis="y") or place (axis="x").
        """
        if _given(self.guess):
            _draw(fig.axes[ax], self.guess, x, axis)
        return fig


def compare(name, guess, truth, unit=""):
    """Print how good a prediction was, and return it as Said. Where nothing was predicted, nothing is printed.

    name   what was to be predicted: words that no other prediction in the course has
    guess  the learner's: None, a number, text, True or False; a list or dict of them as truth has; a function, if truth is a dict
    truth  what it is
    A guess that was given before and is None now, in a fresh copy of the notebook say, is remembered from then.
    """
    guess = _remembered(name, guess)
    said = Said(name, guess, truth, unit)
    if _given(guess):
        for line in _sentences(name, guess, truth, f" {unit}" if unit else ""):
            print(line)
    return said


def nearest(value, options):
    """The one of the options, all positive, that a value is nearest to in ratio: where orders of magnitude are to choose from."""
    return min(options, key=lambda option: abs(math.log(option / value)) if value > 0 else option)


def _given(guess):
    """Was anything predicted? A list or dict counts once one of its places is filled."""
    if isinstance(guess, dict):
        return any(_given(part) for part in guess.values())
    if isinstance(guess, (list, tuple)):
        return any(_given(part) for part in guess)
    return guess is not None and guess is not ...


# ---- words

def _sentences(name, guess, truth, unit):
    if callable(guess) and isinstance(truth, dict):
        guess = {x: _called(guess, x) for x in truth}
    elif isinstance(truth, dict) and (isinstance(guess, (str, bool)) or _is_number(_plain(guess))):      # one for all of them
        guess = dict.fromkeys(truth, guess)
    elif isinstance(truth, (list, tuple)) and _is_number(_plain(guess)):
        guess = [guess] * len(truth)
    if isinstance(truth, dict) and isinstance(guess, dict):
        unknown = [f"{name}: there is no {key!r} to predict." for key in guess if key not in truth and _given(guess[key])]
        return [f"{name}, {key}: {_sentence(guess[key], truth[key], unit)}" for key in truth if _given(guess.get(key))] + unknown
    if isinstance(truth, (list, tuple)) and isinstance(guess, (list, tuple)) and len(guess) == len(truth):
        pairs = enumerate(zip(guess, truth, strict=True), 1)
        return [f"{name}, number {n}: {_sentence(g, t, unit)}" for n, (g, t) in pairs if _given(g)]
    return [f"{name}: {_sentence(guess, truth, unit)}"]


def _sentence(guess, truth, unit):
    if callable(guess):
        return f"you gave a function; its value was asked, and it is {_text(truth)}{unit}."
    guess, truth = _plain(guess), _plain(truth)
    said = f"you said {_text(guess)}{unit if _is_number(guess) else ''}"
    if isinstance(guess, str) and _is_number(truth):
        return f"{said}; a number was asked, not text, and it is {_text(truth)}{unit}."
    if isinstance(truth, bool) and (_is_number(guess) or isinstance(guess, str) and _words(guess) not in (["true"], ["false"])):
        return f"{said}; True or False was asked, and it is {truth}."
    if isinstance(guess, bool) and _is_number(truth):          # in Python True == 1
        return f"{said}; a number was asked, and it is {_text(truth)}{unit}."
    if not _is_number(guess) or not _is_number(truth):
        return f"{said}. Right." if _same(guess, truth) else f"{said}; it is {_text(truth)}{unit}."
    if guess == truth or _text(guess) == _text(truth):
        return f"{said}. Right."
    if truth and abs(guess / truth - 1) <= CLOSE:
        return f"{said}; it is {_text(truth)}{unit}: close."
    return f"{said}; it is {_text(truth)}{unit}{_how_far(guess, truth, unit)}."


def _how_far(guess, truth, unit):
    if not math.isfinite(guess) or not math.isfinite(truth) or guess * truth <= 0:
        return ""
    ratio = guess / truth
    if 0.5 < ratio < 2 and unit != " %":                       # per cent of per cent would be read as points
        return f": {100 * abs(ratio - 1):.0f} % too {'much' if ratio > 1 else 'little'}"
    return f": {_text(max(ratio, 1 / ratio), 2)} times too {'much' if ratio > 1 else 'little'}"


def _plain(value):
    """The number in a NumPy or PyTorch scalar, or in an array of one element; everything else as it is."""
    return value.item() if hasattr(value, "item") and math.prod(getattr(value, "shape", ())) == 1 else value


def _is_number(value):
    return isinstance(value, Number) and not isinstance(value, (bool, complex))


def _same(guess, truth):
    if isinstance(guess, str) or isinstance(truth, str):       # where one answer is a word, 3 may be meant by "3"
        return _words(str(guess)) == _words(str(truth))
    try:
        return bool(guess == truth)
    except (TypeError, ValueError, RuntimeError):              # arrays, for one
        return False


def _words(text):
    """A text without its spaces and capitals; what "and" joins in any order."""
    return sorted("".join(part.split()).lower() for part in text.split(" and "))


def _text(value, digits=3):
    value = _plain(value)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_text(part, digits)}" for key, part in value.items())
    if not _is_number(value):
        return str(value)
    if not math.isfinite(value) or abs(value) < 1e-4 and value:
        return f"{value:.{digits - 1}g}"
    if isinstance(value, int) or value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    if abs(value) >= 1e9:
        return f"{value:.{digits - 1}e}"
    rounded = round(value, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:g}"


def _called(function, x):
    """The learner's function at x; what it raised, in words, if it did."""
    try:
        return function(x)
    except Exception as error:                                 # noqa: BLE001    a guess may be wrong in any way
        return f"{type(error).__name__}: {error}"


# ---- pictures

def _draw(ax, guess, x, axis):
    if callable(guess):
        place = _draw_curve(ax, guess)
    elif isinstance(guess, dict) or x is not None:
        pairs = guess.items() if isinstance(guess, dict) else zip(np.atleast_1d(x), np.atleast_1d(guess), strict=True)
        place = _draw_points(ax, [(x, _plain(y)) for x, y in pairs if _is_number(_plain(y)) and not math.isnan(_plain(y))])
    elif not _is_number(_plain(guess)) or math.isnan(_plain(guess)):
        return
    else:
        at, beyond = _room(ax, axis, _plain(guess))
        (ax.axhline if axis == "y" else ax.axvline)(at, ls=":", color=YOURS, lw=2, zorder=4)
        place = (ax.get_xlim()[0], at, beyond) if axis == "y" else (at, ax.get_ylim()[1], beyond)
    if place:
        ax.annotate(f"you said{place[2]}", place[:2], (5, 5), textcoords="offset points", color=YOURS, fontsize=9,
                    fontweight="bold", zorder=6)


def _draw_points(ax, pairs):
    points = [(_room(ax, "x", x)[0], *_room(ax, "y", y)) for x, y in pairs]
    limits = ax.get_xlim(), ax.get_ylim()
    if points:
        ax.plot(*list(zip(*points, strict=True))[:2], "*", color=YOURS, ms=13, mec="white", zorder=6, clip_on=False)
    ax.set(xlim=limits[0], ylim=limits[1])
    return points[-1] if points else None


def _draw_curve(ax, function):
    """The curve, as far as the picture shows it; a place on it for its label."""
    (left, right), (low, high) = ax.get_xlim(), sorted(ax.get_ylim())
    xs = np.geomspace(left, right, 50) if ax.get_xscale() == "log" else np.linspace(left, right, 50)
    points = [(x, y) for x in xs if _is_number(y := _plain(_called(function, x)))]
    ax.plot(*zip(*points, strict=True), ":", color=YOURS, lw=2, zorder=4) if points else None
    ax.set(xlim=(left, right), ylim=(min(low, ax.get_ylim()[0]), max(high, ax.get_ylim()[1])))
    return (*points[len(points) // 2], "") if points else None


def _room(ax, axis, value):
    """Where a prediction is drawn on that axis, and what its label adds. The axis is made longer for it; a value that is too far
    away for that is drawn at the end of the axis, with an arrow."""
    limits, log = getattr(ax, f"get_{axis}lim")(), getattr(ax, f"get_{axis}scale")() == "log"
    low, high = sorted(limits)
    if low <= value <= high:
        return value, ""
    length = math.log10(high / low) if log else high - low
    if not log:
        away = max(low - value, value - high) / length
    else:
        away = max(math.log10(low) - math.log10(value), math.log10(value) - math.log10(high)) / length if value > 0 else math.inf
    if away > FAR:
        return (high, (" ↑", " →")[axis == "x"]) if value > high else (low, (" ↓", " ←")[axis == "x"])
    low, high = min(low, value), max(high, value)
    getattr(ax, f"set_{axis}lim")(*((low, high) if limits[0] < limits[1] else (high, low)))
    return value, ""


# ---- kept

def _remembered(name, guess):
    """The guess, kept if it is plain data; the one kept earlier where nothing is given now."""
    kept = progress.load(FILE)
    if not _given(guess):
        return _keys_as(guess, kept.get(name))
    if not callable(guess):                                    # a function stays in the notebook's own cell
        with contextlib.suppress(TypeError, ValueError):        # what is no plain data is not kept
            plain = json.loads(json.dumps(guess, default=_plain))
            progress.change(FILE, lambda found: found | {name: plain})
    return guess


def _keys_as(empty, kept):
    """JSON turns a dict's keys into text: give them back as the notebook has them."""
    if isinstance(empty, dict) and isinstance(kept, dict):
        return {key: kept.get(str(key)) for key in empty}
    return kept if kept is not None else empty

