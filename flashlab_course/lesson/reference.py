"""The reference answer of an exercise, beside the learner's own once that passes."""

import ast
import contextlib
import difflib
import html
import re
from dataclasses import dataclass

from flashlab_course.check import form, progress, stubs

MARK = re.compile(r"^ *# (>>> your turn: |your turn: |<<<$)")
COMMENT = re.compile(r"\s+#.*$")        # behind code
# The class twice, since JupyterLab has rules of its own for tables: aligned at the right, rows striped.
STYLE = """<style>
.flashlab-reveal { max-width: 100%; overflow-x: auto;
  color: var(--jp-content-font-color1, var(--vscode-editor-foreground, inherit)); }
.flashlab-reveal.flashlab-reveal table { border-collapse: collapse; width: 100%; table-layout: fixed;
  font-family: var(--jp-code-font-family, monospace); font-size: 0.86em; }
.flashlab-reveal.flashlab-reveal table tr:nth-child(n) { background: none; }
.flashlab-reveal.flashlab-reveal table th { text-align: left; padding: 0.3em 0.8em; }
.flashlab-reveal.flashlab-reveal table td { text-align: left; white-space: pre-wrap; overflow-wrap: anywhere;
  padding: 0 0.8em; vertical-align: top; }
.flashlab-reveal.flashlab-reveal table td.other { background: color-mix(in srgb, currentColor 12%, transparent); }
.flashlab-reveal.flashlab-reveal table td + td {
  border-left: 1px solid var(--jp-border-color2, var(--vscode-panel-border, #8888)); }
</style>"""


@dataclass
class Reveal:
    """What `reveal` shows: a sentence, and the two texts beside each other. `mine` is "" where there is none."""

    message: str
    mine: str = ""
    reference: str = ""

    def __str__(self):
        if not self.reference:
            return self.message
        if not self.mine:
            return f"{self.message}\n\n{self.reference}"
        mine, reference = self.mine.splitlines(), self.reference.splitlines()
        lines = difflib.unified_diff(mine, reference, "yours", "the reference", lineterm="", n=len(mine))
        return "\n".join([self.message, "", *lines])

    __repr__ = __str__

    def _repr_html_(self):
        said = f"<p>{html.escape(self.message)}</p>"
        if not self.reference:
            return said
        rows = [("td", line) for line in self.reference.splitlines()]
        if self.mine:
            rows = [("th", "your answer", "the reference")]
            for *lines, differ in _aligned(self.mine, self.reference):
                rows.append(("td class=other" if differ else "td", *lines))
        table = "".join(f"<tr>{''.join(_cell(kind, line) for line in lines)}</tr>" for kind, *lines in rows)
        return f"{STYLE}<div class='flashlab-reveal'>{said}<table>{table}</table></div>"


def _cell(kind, line):
    line = re.sub(r"(?<=\S) {3,}#", "  #", line)             # half a page is too narrow for comments in a column
    return f"<{kind}>{html.escape(line)}</{kind[:2]}>"


def _aligned(mine, reference):
    """Rows (line of mine, line of reference, do they differ?): lines of equal code beside each other."""
    left, right = mine.splitlines(), reference.splitlines()
    bare = [[_bare(line) for line in side] for side in (left, right)]
    matcher, rows = difflib.SequenceMatcher(None, *bare, autojunk=False), []
    for tag, a, b, c, d in matcher.get_opcodes():
        for n in range(max(b - a, d - c)):
            rows.append((left[a + n] if a + n < b else "", right[c + n] if c + n < d else "", tag != "equal"))
    return rows


def _bare(line):
    """The code of a line, without its comment and its spaces: Q[a:b] and Q[a : b] are the same."""
    return re.sub(r"\s", "", COMMENT.sub("", line))


def known_exercise(name):
    """The Exercise of that name. Raises: ValueError for an unknown one."""
    if name not in form.names():
        raise ValueError(f"name must be an exercise, such as {form.names()[0]!r}, got {name!r}")
    return form.exercise(name)


def reveal(name, *, anyway=False):
    """The reference answer of an exercise, beside the learner's own in exercises/.

    It is shown once the exercise has passed. anyway=True shows it before. Raises: ValueError for an unknown exercise.
    """
    exercise = known_exercise(name)
    if not anyway and not progress.of(name)["passed"]:
        return Reveal(f"The reference appears here once {name} passes. Stuck? check(\"{name}\", hint=True) gives one "
                      f"hint more at each call, and reveal(\"{name}\", anyway=True) shows the reference now.")
    mine, reference = _code(own_text(name) or ""), _code(exercise.parsed.text)
    if mine:
        said = f"{name}: lines that differ are shaded. Different is not wrong: the checker passed yours."
        return Reveal(said, mine, reference)
    return Reveal(f"{name}: one way to write it.", "", reference)


def own_text(name):
    """The text of the learner's file for that exercise; None if it is missing or still the stub."""
    text = stubs.present(name)
    return text if text is not None and stubs.begun(name, text) else None


def _code(text):
    """A module's text without its docstring and the marks around what is to be written."""
    with contextlib.suppress(SyntaxError, ValueError, IndexError):     # a text that Python cannot read is shown whole
        first = ast.parse(text).body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            text = "\n".join(text.split("\n")[first.end_lineno:])
    return "\n".join(line for line in text.split("\n") if not MARK.match(line)).strip()
