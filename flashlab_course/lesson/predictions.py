"""Predictions: scored in words, drawn on the picture they are about, and kept for the time after a restart."""

import contextlib
import json
import math
from dataclasses import dataclass
from numbers import Number
from pathlib import Path

from flashlab_course.check import progress
from flashlab_course.figures.colors import YOURS
from flashlab_course.lesson.truths import TRUTHS

FILE = ".predictions.json"
REASONS = json.loads(Path(__file__).with_name("reasons.json").read_text(encoding="utf-8"))  # name: [[answer, why], ...]
CLOSE = 0.05                   # a guess within 5 % is called close
ASK = "type your guess above and run both cells again."
GIVEN = set()                  # names of the predictions that were given since the kernel started


@dataclass
class Said:
    """A prediction (None: nothing was predicted) and the truth: numbers, texts, lists or dicts."""

    guess: object
    truth: object

    def _ipython_display_(self):
        """Nothing: `compare` has said it in words."""

    def on(self, fig, x=None, axis="y", ax=0):
        """The figure with the prediction, if it is one that can be drawn, on its axes number `ax`.

        Each entry of a dict {x: value} becomes a star, and a number a star at `x`. Without x a number is a line across,
        at that height (axis="y") or place (axis="x"). A value outside the picture is drawn at its edge and written out.
        """
        for place, value in self.guess.items() if isinstance(self.guess, dict) else [(x, self.guess)]:
            value = _plain(value)
            if _is_number(value) and not math.isnan(value):
                _draw(fig.axes[ax], place, value, axis)
        return fig


def _draw(ax, x, value, axis):
    limits = {"x": ax.get_xlim(), "y": ax.get_ylim()}
    shown = min(max(value, min(limits[axis])), max(limits[axis]))
    words = "you said" if shown == value else f"you said {_text(value)}"
    if x is not None:
        place = x, shown
        ax.plot(*place, "*", color=YOURS, ms=13, mec="white", zorder=6, clip_on=False)
        ax.set(xlim=limits["x"], ylim=limits["y"])
    elif axis == "y":
        place = limits["x"][0], shown
        ax.axhline(shown, ls=":", color=YOURS, lw=2, zorder=4)
    else:
        place = shown, limits["y"][1]
        ax.axvline(shown, ls=":", color=YOURS, lw=2, zorder=4)
    ax.annotate(words, place, (5, 5), textcoords="offset points", color=YOURS, fontsize=9, fontweight="bold", zorder=6)


def compare(name, guess, truth=None, unit="", reasons=None):
    """Print how good a prediction was, or ask for it where there is none, and return it as Said.

    name     of the prediction: words that no other prediction in the course has
    guess    the learner's: None, a number, text, True or False; a list or dict of them as truth has, or one for all of
             it; if truth is a dict, also a function: its values at the dict's keys are the prediction
    truth    the right answer, by default that of `truths`; a set of labels, line numbers say, is compared as a set
    reasons  {wrong answer: why one gets it}, beside those of reasons.json, which a learner does not see. The reason is
             printed below a guess that is this answer
    A guess that was given before a restart and is None now is remembered. One emptied without a restart is forgotten.
    """
    truth = TRUTHS[name] if truth is None else truth
    if callable(guess) and isinstance(truth, dict):
        guess = {x: _called(guess, x) for x in truth}
    guess = _remembered(name, guess)
    if not _given(guess):
        print(f"{name}: {ASK}")
        return Said(guess, truth)
    for part, one, right in _parts(name, guess, truth):
        print(f"{part}: {_sentence(one, right, f' {unit}' if unit else '')}")
        for answer, why in [*REASONS.get(name, ()), *(reasons or {}).items()]:
            if _same(one, answer) and not _same(one, right):
                print(why)
    return Said(guess, truth)


def nearest(value, options):
    """The one of the options, all positive, that a value is nearest to in ratio."""
    return min(options, key=lambda option: abs(math.log(option / value)) if value > 0 else option)


def _called(function, x):
    try:
        return _plain(function(x))
    except Exception as error:                         # noqa: BLE001    a guess may be wrong in any way
        return f"{type(error).__name__}: {error}"


def _given(guess):
    """Was anything predicted? A list or dict counts once one of its places is filled."""
    if isinstance(guess, (dict, list, tuple)):
        return any(map(_given, guess.values() if isinstance(guess, dict) else guess))
    return guess is not None and guess is not ...


# ---- words

def _parts(name, guess, truth):
    """(name, guess, truth) of each part that was predicted. One guess can be about several truths."""
    if not isinstance(truth, (dict, list, tuple)):     # a number, a text, or a set
        return [(name, guess, truth)]
    if not isinstance(truth, dict):
        truth = {f"number {n}": part for n, part in enumerate(truth, 1)}
        if isinstance(guess, (list, tuple)) and len(guess) == len(truth):
            guess = dict(zip(truth, guess, strict=True))
    if isinstance(guess, (list, tuple)):               # too many or too few
        return [(name, guess, ", ".join(f"{key}: {_text(part)}" for key, part in truth.items()))]
    if not isinstance(guess, dict):
        guess = dict.fromkeys(truth, guess)
    return [(f"{name}, {key}", part, truth.get(key)) for key, part in guess.items() if _given(part)]


def _sentence(guess, truth, unit):
    if isinstance(truth, set):
        return _about_a_set(guess, truth)
    guess, truth = "a function" if callable(guess) else _plain(guess), _plain(truth)
    if truth is None:
        return "there is no such thing to predict."
    said, it_is = f"you said {_text(guess)}{unit if _is_number(guess) else ''}", f"it is {_text(truth)}{unit}"
    if isinstance(truth, bool) and str(guess) not in ("True", "False"):
        return f"{said}; True or False was asked, and {it_is}."
    if _is_number(truth) and not _is_number(guess):
        return f"{said}; a number was asked, and {it_is}."
    if _text(guess) == _text(truth) or not _is_number(truth) and _words(guess) == _words(truth):
        return f"{said}. Right."
    return f"{said}; {it_is}{_how_far(guess, truth, unit)}."


def _about_a_set(guess, truth):
    """Labels have no size: say which are missing and which do not belong."""
    if isinstance(guess, str):
        guess = guess.replace(",", " and ").split(" and ")
    found = {_text(one).strip() for one in (guess if isinstance(guess, (list, tuple, set)) else [guess])}
    wanted = {_text(one) for one in truth}
    said = f"you said {_listed(found)}"
    if found == wanted:
        return f"{said}. Right."
    if not found & wanted:
        return f"{said}; right is {_listed(wanted)}."
    missing, extra = _listed(wanted - found), _listed(found - wanted)
    wrong = [f"you left out {missing}"] * bool(missing) + [f"{extra} should not be there"] * bool(extra)
    return f"{said}; {', and '.join(wrong)}."


def _listed(names):
    *most, last = sorted(names, key=lambda name: (len(name), name)) or [""]
    return f"{', '.join(most)} and {last}" if most else last


def _same(guess, answer):
    """Is a guess this answer, numbers within CLOSE?"""
    guess, answer = _plain(guess), _plain(answer)
    numbers = _is_number(guess) and _is_number(answer)
    return math.isclose(guess, answer, rel_tol=CLOSE) if numbers else _words(guess) == _words(answer)


def _how_far(guess, truth, unit):
    if not (_is_number(guess) and _is_number(truth) and 0 < guess * truth < math.inf):
        return ""
    ratio = guess / truth
    size = "large" if ratio > 1 else "small"
    if abs(ratio - 1) <= CLOSE:
        return ": close"
    if 0.5 < ratio < 2 and unit != " %":               # per cent of per cent would be read as points
        return f": {100 * abs(ratio - 1):.0f} % too {size}"
    return f": {_text(max(ratio, 1 / ratio), 2)} times too {size}"


def _plain(value):
    """The number in a NumPy or PyTorch scalar, or in an array of one element; everything else as it is."""
    return value.item() if hasattr(value, "item") and math.prod(getattr(value, "shape", ())) == 1 else value


def _is_number(value):
    return isinstance(value, Number) and not isinstance(value, (bool, complex))


def _words(value):
    """A text without its spaces and capitals; words joined by "and" in any order."""
    return sorted("".join(part.split()).lower() for part in str(value).split(" and "))


def _text(value, digits=3):
    value = _plain(value)
    if not _is_number(value):
        return str(value)
    if not math.isfinite(value) or 0 < abs(value) < 1e-4:
        return f"{value:.{digits - 1}g}"
    if isinstance(value, int) or value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    if abs(value) >= 1e9:
        return f"{value:.{digits - 1}e}"
    rounded = round(value, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:g}"


# ---- kept

def _remembered(name, guess):
    """The guess, kept if it is plain data; the one kept before the kernel started if none was given since."""
    if _given(guess) or name in GIVEN:                         # in GIVEN and empty: the learner has taken it back
        GIVEN.add(name)
        with contextlib.suppress(TypeError, ValueError):       # a function cannot be written as JSON, and is not kept
            plain = json.loads(json.dumps(guess, default=_plain))
            if said := progress.change(FILE, lambda found: found | {name: plain}):
                print(said)
        return guess
    kept = (progress.load(FILE) or {}).get(name)
    if isinstance(guess, dict) and isinstance(kept, dict):     # JSON has turned the dict's keys into text
        return {key: kept.get(str(key)) for key in guess}
    return guess if kept is None else kept
