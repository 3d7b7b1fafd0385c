"""What the checker says: message first, then where, then what to look at; a panel in a notebook, plain text
elsewhere."""

import html
import textwrap
from dataclasses import dataclass, field

WIDTH = 100
TO_PASTE = "To try that case in a cell of your own"

# The colours of the notebook's own theme, then of VS Code's, then some that read on white and on black.
STYLE = """
.flashlab-check {{ border: 1px solid var(--jp-border-color2, var(--vscode-panel-border, #8888));
  border-left: 4px solid {accent};
  border-radius: 4px; padding: 0.6em 1em; margin: 0.3em 0; max-width: 60em; line-height: 1.45;
  color: var(--jp-content-font-color1, var(--vscode-editor-foreground, inherit));
  background: var(--jp-layout-color1, var(--vscode-editor-background, transparent));
  font-family: var(--jp-content-font-family, system-ui, sans-serif); }}
.flashlab-check .verdict {{ color: {accent}; font-weight: 600; }}
.flashlab-check p {{ margin: 0.35em 0; }}
.flashlab-check code, .flashlab-check pre {{ font-family: var(--jp-code-font-family, monospace); font-size: 0.92em;
  background: var(--jp-layout-color2, var(--vscode-textCodeBlock-background, #8881)); color: inherit; }}
.flashlab-check pre {{ padding: 0.5em; overflow-x: auto; white-space: pre; }}
.flashlab-check .cases {{ font-size: 0.92em;
  color: var(--jp-content-font-color2, var(--vscode-descriptionForeground, inherit)); }}
"""
GREEN = "var(--jp-success-color1, var(--vscode-testing-iconPassed, #2e9d4f))"
RED = "var(--jp-error-color1, var(--vscode-testing-iconFailed, #d5453a))"
AMBER = "var(--jp-warn-color1, var(--vscode-charts-orange, #c77700))"


@dataclass
class CaseResult:
    """One case: its name with sizes, and whether it passed (None: not run)."""

    name: str
    passed: bool | None


@dataclass
class Report:
    """The checker's answer.

    mistake   the name of a known mistake, of two made together ("a + b"), or of a plain problem ("timeout"); else None
    message   the verdict in words: what is wrong, first; where it shows
    remedy    where to look for a known mistake; becomes part of the hint where one is asked for, or the second time
    hint      the remedy where it is due, and the hints asked for so far
    trace     the learner's own lines, for exceptions and timeouts
    where     (case, output, index) of the first wrong number, None where there is none
    line      (line, how often it had run) where that case goes wrong; None where it cannot be told
    offer     how to go on: is the file saved, how to ask for a hint
    """

    passed: bool
    exercise: str
    cases: list = field(default_factory=list)
    mistake: str | None = None
    message: str = ""
    remedy: str = ""
    hint: str = ""
    trace: str = ""
    printed: str = ""
    solution: str = ""
    seconds: float = 0.0
    where: tuple | None = None
    line: tuple | None = None
    offer: str = ""
    snippet: str = ""          # lines to paste, which bring the failing case into a notebook

    def __bool__(self):
        return self.passed

    def __str__(self):
        blocks = [("Your code printed:", "    | ", self.printed.rstrip()),
                  ("Your lines, the innermost last:", "    ", self.trace)]
        return "\n".join([f"{self.exercise}: {self._verdict()}",
                          *map(_wrapped, [*self._lines(), *filter(None, [self._counted()])]),
                          *(f"  {title}\n{textwrap.indent(text, indent)}" for title, indent, text in blocks if text),
                          *(_wrapped(line) for line in self.offer.split("\n") if line)])

    __repr__ = __str__

    def _lines(self):
        return [*self.message.split("\n"), *(line for line in self.hint.split("\n") if line)]

    def _verdict(self):
        return "passed" if self.passed else "not implemented yet" if self.mistake == "not_implemented" else "not yet"

    def _counted(self):
        run = [c for c in self.cases if c.passed is not None]
        if not run or self.mistake == "not_implemented":
            return ""
        return f"{sum(c.passed for c in run)} of {len(self.cases)} cases passed in {self.seconds:.1f} s."

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": str(self), "text/html": self._repr_html_()}

    def _repr_html_(self):
        accent, kind = _look(self)
        blocks = [("Your code printed:", self.printed.rstrip()), ("Your lines, the innermost last:", self.trace)]
        cases = "" if self.passed else "\n".join(f"{_mark(case)} {case.name}" for case in self.cases)
        folded = [("The cases", cases), (TO_PASTE, self.snippet), ("One way to write it", self.solution)]
        inner = [f"<p><span class='verdict'>{html.escape(self._verdict())}</span> · "
                 f"<code>{html.escape(self.exercise)}</code></p>",
                 *(f"<p>{_inline(line)}</p>" for line in self._lines()),
                 *(f"<p class='cases'>{html.escape(line)}</p>" for line in filter(None, [self._counted()])),
                 *(f"<p>{title}</p><pre>{html.escape(text)}</pre>" for title, text in blocks if text),
                 *(f"<p class='cases'>{_inline(line)}</p>" for line in self.offer.split("\n") if line),
                 *(f"<details><summary>{title}</summary><pre>{html.escape(text)}</pre></details>"
                   for title, text in folded if text)]
        return panel("".join(inner), accent, kind)


def panel(inner, accent, kind):
    """HTML in the checker's frame. Its own class for each colour: a notebook holds several panels, and styles are
    global there."""
    style = STYLE.format(accent=accent).replace(".flashlab-check", f".flashlab-check.{kind}")
    return f"<style>{style}</style><div class='flashlab-check {kind}'>{inner}</div>"


def _look(report):
    if report.passed:
        return GREEN, "passed"
    return (AMBER, "stub") if report.mistake == "not_implemented" else (RED, "failed")


def _mark(case):
    return {True: "✓", False: "✗", None: "–"}[case.passed]


def _wrapped(line):
    """Filled lines; what stands in backticks is in one piece, so that it can be copied."""
    whole = "`".join(part.replace(" ", "\0") if n % 2 else part for n, part in enumerate(line.split("`")))
    filled = textwrap.fill(whole, WIDTH, initial_indent="  ", subsequent_indent="  ", break_long_words=False,
                           break_on_hyphens=False)
    return filled.replace("\0", " ") if line.strip() else line


def _inline(line):
    """`code` in backticks, as in Markdown."""
    parts = html.escape(line).split("`")
    if len(parts) % 2 == 0:                # a backtick without its partner: leave all as they are
        return html.escape(line)
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))
