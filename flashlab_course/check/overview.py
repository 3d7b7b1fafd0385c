"""Which exercise is meant, and how far each is, without running any."""

import difflib
import html
from dataclasses import dataclass

from flashlab_course.check import form, progress, stubs
from flashlab_course.check.loading import Unusable
from flashlab_course.check.report import AMBER, GREEN, panel
from flashlab_course.check.source import MY

NOT_BEGUN, BEGUN, PASSED = "not begun", "begun", "passed"
HEADING = f"{'exercise':<28}{'minutes':>8}  {'level':<7}state"


def state(name):
    """NOT_BEGUN, BEGUN or PASSED, as far as that is known without a check."""
    known = progress.of(name)
    if known["passed"]:
        return PASSED
    return BEGUN if stubs.own_text(name) is not None or known["tries"] else NOT_BEGUN


def matches(text):
    """The exercise of that name, or else those whose names begin with it. Raises: Unusable if there are none."""
    text = text.replace("\\", "/").rpartition("/")[2].removesuffix(".py")
    names = form.names()
    found = [text] if text in names else [name for name in names if text and name.startswith(text)]
    if not found:
        similar = ", ".join(difflib.get_close_matches(text.lower(), names, 3, cutoff=0))
        raise Unusable("unknown_exercise", f"There is no exercise {text[:80]!r}. Did you mean {similar}? Without a "
                                           "name, `check` lists them all.")
    return found


def find(name):
    """The full name of the one exercise that is meant. Raises: Unusable."""
    if not isinstance(name, str):
        raise Unusable("unknown_exercise", "`check` needs the exercise's name first, then the function: "
                                           '`check("ex03_merge", merge)`.')
    found = matches(name)
    if len(found) > 1:
        raise Unusable("several_exercises", f"{len(found)} exercises begin with {name!r}: {', '.join(found)}.")
    return found[0]


@dataclass
class Overview:
    """Every exercise with its state, and which comes next. Shows itself as a panel in a notebook."""

    states: dict               # {name: state}

    @classmethod
    def now(cls, names=None):
        return cls({name: state(name) for name in names or form.names()})

    @property
    def next(self):
        """The first that is begun and not passed, else the first that is not begun; None once all have passed."""
        open_ones = [name for name, how in self.states.items() if how != PASSED]
        return min(open_ones, key=lambda name: self.states[name] != BEGUN, default=None)

    def last_line(self):
        """How many have passed, and which comes next."""
        done = f"{list(self.states.values()).count(PASSED)} of {len(self.states)} passed."
        if self.next is None:
            return done
        head = form.exercise(self.next).head
        return f"{done} Next: {self.next} · {head.title} (about {head.minutes} minutes)."

    def __str__(self):
        return "\n".join([HEADING, *(row_text(*row) for row in self.states.items()), "", self.last_line()])

    __repr__ = __str__

    def _repr_html_(self):
        last = f"<p><span class='verdict'>{html.escape(self.last_line())}</span></p>"
        call = f"<p><code>check(\"{self.next}\")</code> checks its file in {MY}/exercises/.</p>" if self.next else ""
        every = f"<details><summary>Every exercise</summary><pre>{html.escape(str(self))}</pre></details>"
        return panel(last + call + every, GREEN if self.next is None else AMBER)


def row_text(name, how):
    head = form.exercise(name).head
    return f"{name:<28}{head.minutes:>8}  {'•' * head.difficulty:<7}{how}"
