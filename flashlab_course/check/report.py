"""What the checker says: message, where, what to look at; a panel in a notebook, plain text elsewhere."""

import html
import re
import textwrap
from collections import namedtuple
from dataclasses import dataclass, field

WIDTH = 100

# The text has the colours of the notebook's theme; the accents read on white and on black.
STYLE = """<style>
.flashlab-check { border: 1px solid #8888; border-left: 4px solid var(--accent); border-radius: 4px;
  padding: 0.6em 1em; margin: 0.3em 0; max-width: 60em; line-height: 1.45; font-family: system-ui, sans-serif; }
.flashlab-check .verdict { color: var(--accent); font-weight: 600; }
.flashlab-check p { margin: 0.35em 0; }
.flashlab-check code, .flashlab-check pre { font-family: monospace; font-size: 0.92em; background: #8881;
  color: inherit; }
.flashlab-check pre { padding: 0.5em; overflow-x: auto; white-space: pre; }
.flashlab-check .cases { font-size: 0.92em; opacity: 0.8; }
</style>"""
GREEN, AMBER, RED = "#2e9d4f", "#b07d10", "#d14343"
ACCENTS = {"passed": GREEN, "not implemented yet": AMBER, "not yet": RED}
MARKS = {True: "✓", False: "✗", None: "–"}


CaseResult = namedtuple("CaseResult", "name passed")         # passed: None for a case that was not run


@dataclass
class Report:
    """The checker's answer."""

    passed: bool
    exercise: str
    cases: list = field(default_factory=list)
    mistake: str | None = None     # a known mistake's name, of two made together ("a + b"), or a plain problem's
    message: str = ""              # the verdict in words: what is wrong, first; where it shows
    remedy: str = ""               # where to look; part of the hint where one is asked for, or the second time
    hint: str = ""                 # the remedy where it is due, and the hints asked for so far
    trace: str = ""                # the learner's own lines, for exceptions and timeouts
    printed: str = ""
    solution: str = ""
    seconds: float = 0.0
    where: tuple | None = None     # (case, output, index) of the first wrong number
    line: tuple | None = None      # (line, how often it had run) where that case goes wrong, if it can be told
    offer: str = ""                # how to go on: is the file saved, how to ask for a hint
    snippet: str = ""              # lines to paste, which bring the failing case into a notebook

    def __bool__(self):
        return self.passed

    def __str__(self):
        shown = [f"{self.exercise}: {self._verdict()}"]
        for _, title, text in self._parts():
            shown.append(f"  {title}\n{textwrap.indent(text, '    ')}" if title else _wrapped(text))
        return "\n".join(shown)

    __repr__ = __str__

    def _repr_html_(self):
        shown = [f"<p><span class='verdict'>{self._verdict()}</span> · <code>{html.escape(self.exercise)}</code></p>"]
        for look, title, text in self._parts():
            block = f"<p>{title}</p><pre>{html.escape(text)}</pre>"
            inline = re.sub("`([^`]*)`", r"<code>\1</code>", html.escape(text))
            shown.append(block if title else f"<p class='{look}'>{inline}</p>")
        cases = "" if self.passed else "\n".join(f"{MARKS[case.passed]} {case.name}" for case in self.cases)
        for title, text in (("The cases", cases), ("To try that case in a cell of your own", self.snippet),
                            ("One way to write it", self.solution)):
            if text:
                shown.append(f"<details><summary>{title}</summary><pre>{html.escape(text)}</pre></details>")
        return panel("".join(shown), ACCENTS[self._verdict()])

    def _parts(self):
        """(look, title of a block, text), in the order in which they are shown."""
        counted = ""
        if self.mistake != "not_implemented" and any(case.passed is not None for case in self.cases):
            passed = sum(case.passed is True for case in self.cases)
            counted = f"{passed} of {len(self.cases)} cases passed in {self.seconds:.1f} s."
        parts = [*(("said", "", line) for line in f"{self.message}\n{self.hint}".split("\n")), ("cases", "", counted),
                 ("", "Your code printed:", self.printed.rstrip()),
                 ("", "Your lines, the innermost last:", self.trace),
                 *(("cases", "", line) for line in self.offer.split("\n"))]
        return [part for part in parts if part[-1]]

    def _verdict(self):
        if self.passed:
            return "passed"
        return "not implemented yet" if self.mistake == "not_implemented" else "not yet"


def panel(inner, accent):
    """HTML in the checker's frame."""
    return f"{STYLE}<div class='flashlab-check' style='--accent: {accent}'>{inner}</div>"


def _wrapped(line):
    """Filled lines; what stands in backticks is in one piece, so that it can be copied."""
    whole = re.sub("`[^`]*`", lambda code: code[0].replace(" ", "\0"), line)
    return textwrap.fill(whole, WIDTH, initial_indent="  ", subsequent_indent="  ", break_long_words=False,
                         break_on_hyphens=False).replace("\0", " ")
