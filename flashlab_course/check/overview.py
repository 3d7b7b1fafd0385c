"""Which exercise is meant, and how far each is, without running any."""

import difflib
import html
from dataclasses import dataclass

from flashlab_course.check import form, progress, runner, stubs
from flashlab_course.check.report import AMBER, GREEN, Report, panel

NOT_BEGUN, BEGUN, PASSED = "not begun", "begun", "passed"


def state(name):
    """NOT_BEGUN, BEGUN or PASSED, as far as that is known without a check."""
    if progress.of(name)["passed"]:
        return PASSED
    text = stubs.present(name)
    return BEGUN if text is not None and stubs.begun(name, text) or progress.of(name)["tries"] else NOT_BEGUN


def after(name):
    """The next exercise that has not passed, from this one on and then from the start; None if all have."""
    names = form.names()
    at = names.index(name)
    return next((other for other in [*names[at + 1:], *names[:at]] if state(other) != PASSED), None)


def matches(text):
    """Names of exercises that a text may mean: the one of that name, or those that it begins."""
    text = text.replace("\\", "/").rpartition("/")[2].removesuffix(".py")
    return [name for name in form.names() if name == text] or [name for name in form.names() if text
                                                               and name.startswith(text)]


def similar(text):
    """The three names that are closest to a text: that hold it, share its words, or most of its letters."""
    text = text.lower()[:80]

    def closeness(name):
        shared = len(set(text.split("_")) & set(name.lower().split("_")))
        return len(text) > 2 and text in name.lower(), shared, difflib.SequenceMatcher(None, text, name.lower()).ratio()
    return sorted(form.names(), key=closeness, reverse=True)[:3]


def find(name):
    """The exercise's full name, or a Report that says which there are."""
    if not isinstance(name, str):
        return _not_a_name(name)
    found = matches(name)
    if len(found) == 1:
        return found[0]
    if found:
        listed = "\n".join(f"{one}: {state(one)}" for one in found)
        return Report(False, name, mistake="several_exercises",
                      message=f"{len(found)} exercises begin with that:\n{listed}")
    return Report(False, name, mistake="unknown_exercise",
                  message=f"There is no exercise of that name. Did you mean {', '.join(similar(name))}? "
                          "`check()` shows them all.")


def _not_a_name(thing):
    """`check(merge)`: what was meant can be told from the function's name."""
    called = getattr(thing, "__name__", None) if runner.is_callable(thing) else None
    meant = [name for name in form.names() if form.exercise(name).function == called]
    example = ", or ".join(f'`check("{name}", {called})`' for name in meant) or '`check("ex03_merge", merge)`'
    return Report(False, type(thing).__name__, mistake="unknown_exercise",
                  message=f"`check` needs the exercise's name first, then the function: {example}.")


@dataclass
class Overview:
    """Every exercise with its state, and which comes next. Shows itself as a panel in a notebook."""

    rows: list                 # of (name, minutes, difficulty, state)

    @classmethod
    def now(cls, names=None):
        return cls([(name, *form.exercise(name).head[2:][::-1], state(name)) for name in names or form.names()])

    @property
    def passed(self):
        return [name for name, *_, how in self.rows if how == PASSED]

    @property
    def next(self):
        """The first that is begun and not passed, else the first that is not begun; None once all have passed."""
        open_ones = [row for row in self.rows if row[-1] != PASSED]
        return min(open_ones, key=lambda row: row[-1] != BEGUN)[0] if open_ones else None

    def last_line(self):
        """How many have passed, and which comes next."""
        done = f"{len(self.passed)} of {len(self.rows)} passed."
        if self.next is None:
            return done
        head = form.exercise(self.next).head
        return f"{done} Next: {self.next} · {head.title} (about {head.minutes} minutes)."

    def __str__(self):
        return "\n".join([HEADING, *(row_text(*row) for row in self.rows), "", self.last_line()])

    __repr__ = __str__

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": str(self), "text/html": self._repr_html_()}

    def _repr_html_(self):
        marks = {PASSED: "✓", BEGUN: "…", NOT_BEGUN: "·"}
        chapters = {}
        for name, *_, how in self.rows:
            chapters.setdefault(name[2:4], []).append(f"{marks[how]} <code>{html.escape(name)}</code>")
        lines = "".join(f"<p class='cases'>{chapter} &nbsp; {' &nbsp; '.join(ones)}</p>"
                        for chapter, ones in chapters.items())
        last = f"<p><span class='verdict'>{html.escape(self.last_line())}</span></p>"
        call = f"<p><code>check(\"{self.next}\")</code> checks its file in exercises/.</p>" if self.next else ""
        return panel(last + call + lines, GREEN if self.next is None else AMBER, "overview")


HEADING = f"{'exercise':<28}{'minutes':>8}  {'level':<7}state"


def row_text(name, minutes, difficulty, how):
    return f"{name:<28}{minutes:>8}  {'•' * difficulty:<7}{how}"
