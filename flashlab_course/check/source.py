"""Reading solutions/: the marked regions, the stub made from them, wrong versions made from them, and loading a file
afresh.

    # >>> your turn: one line that says what to write
    ...the answer...
    # <<<
"""

import ast
import inspect
import linecache
import os
import re
import sys
import textwrap
import types
from functools import cache
from pathlib import Path
from typing import NamedTuple

import flashlab

OPEN = re.compile(r"^(?P<indent> *)# >>> your turn: (?P<task>\S.*)$")
CLOSE = re.compile(r"^ *# <<<$")
LOOSE = re.compile(r"^\s*#\s*(>>+|<<+)")
HEAD = re.compile(r"^(?P<name>ex(?P<chapter>\d\d)_\w+) · (?P<title>.+)\n\n"
                  r"Chapter (?P=chapter) · difficulty (?P<difficulty>[1-5]) of 5 · (?P<minutes>\d+) minutes(\n|$)")

# What a swap compares. Spaces are no tokens; three quotes are tried before one, long operators before short ones.
STRING = r"""(?i:\b[rbf]{1,2})?("{3}(?s:.*?)"{3}|'{3}(?s:.*?)'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
OPERATOR = r"\*\*=?|//=?|[-=]>|[-+*/%@&|^<>=!:]=|<<|>>|\S"
TOKEN = re.compile(rf"{STRING}|#.*|\n *|\w+|{OPERATOR}")


class SourceError(ValueError):
    """A solution that cannot be taken apart, or a mistake that no longer fits it. Names file and line."""


class Head(NamedTuple):
    title: str
    chapter: str
    difficulty: int
    minutes: int


class Region(NamedTuple):
    start: int                 # the line after the opening marker, from 0
    stop: int                  # the closing marker's line
    indent: str
    task: str


def root():
    """The folder that holds solutions/ and exercises/: FLASHLAB_ROOT, the repository, or where the work is done."""
    said = os.environ.get("FLASHLAB_ROOT")
    for folder in (said,) if said else (Path(flashlab.__file__).parent.parent, ".", ".."):
        if (Path(folder) / "solutions").is_dir():
            return Path(folder).absolute()
    if said:
        raise SourceError(f"FLASHLAB_ROOT must name a folder that holds solutions/, got {said!r}")
    raise SourceError("no folder solutions/ beside the package or where you are: work in a clone of the repository, "
                      "or set FLASHLAB_ROOT to one")


def solution_path(name):
    return root() / "solutions" / f"{name}.py"


def solution_text(name):
    """What solutions/<name>.py holds. Raises: SourceError that says how to bring it back"""
    path = solution_path(name)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path} could not be read: {getattr(error, 'strerror', None) or error}. "
                          f"`git checkout {path}` brings it back") from None


def exercise_path(name):
    return root() / "exercises" / f"{name}.py"


class Parsed:
    """A solution file, its lines and its marked regions."""

    def __init__(self, name, text):
        self.name, self.text = name, text
        self.lines = text.split("\n")
        self.regions = self._find_regions()
        self.head = self._find_head()

    def _fail(self, line, problem):
        raise SourceError(f"solutions/{self.name}.py:{line + 1}: {problem}")

    def _find_regions(self):
        regions, opened = [], None
        for n, line in enumerate(self.lines):
            if match := OPEN.match(line):
                if opened:
                    self._fail(n, f"a region opens inside the one opened in line {opened[0] + 1}")
                opened = (n, match)
            elif CLOSE.match(line):
                if not opened:
                    self._fail(n, "a region closes that was never opened")
                start, match = opened
                if not "".join(self.lines[start + 1 : n]).strip():
                    self._fail(n, "the region is empty")
                regions.append(Region(start + 1, n, match["indent"], match["task"]))
                opened = None
            elif LOOSE.match(line):
                self._fail(n, "a marker reads `# >>> your turn: what to write` or `# <<<`")
        if opened:
            self._fail(opened[0], "the region is never closed")
        if not regions:
            self._fail(0, "no region: nothing for the learner to write")
        return regions

    def _find_head(self):
        match = HEAD.match(ast.get_docstring(ast.parse(self.text)) or "")
        if not match or match["name"] != self.name:
            self._fail(0, f'the docstring starts "{self.name} · title", an empty line, then '
                          f'"Chapter {self.name[2:4]} · difficulty 3 of 5 · 20 minutes"')
        return Head(match["title"], match["chapter"], int(match["difficulty"]), int(match["minutes"]))

    def answer(self):
        """The text of the regions alone: what is shown once the exercise passes."""
        return "\n\n".join("\n".join(self.lines[r.start : r.stop]) for r in self.regions)

    def todo(self, region):
        """What stands in the stub in place of a region: its task, and a NotImplementedError that names it."""
        error = f'raise NotImplementedError("{self.name}: {region.task}")'
        return f"{region.indent}# your turn: {region.task}\n{region.indent}{error}"

    def stub(self):
        """What the learner gets: a todo in place of each region."""
        lines, done = [], 0
        for region in self.regions:
            lines += [*self.lines[done : region.start - 1], self.todo(region)]
            done = region.stop + 1
        return "\n".join(lines + self.lines[done:])

    def edited(self, what, swaps=(), body=None):
        """A copy with swaps made inside the regions, or with the only region's body replaced."""
        lines = list(self.lines)
        if body is not None:
            if len(self.regions) != 1:
                raise SourceError(f"{self.name}, {what}: a body needs one region, there are {len(self.regions)}")
            region = self.regions[0]
            body = textwrap.dedent(body).strip("\n")
            lines[region.start : region.stop] = textwrap.indent(body, region.indent).split("\n")
        if swaps:
            lines = self._swap(what, swaps, lines)
        return Parsed(self.name, "\n".join(lines))

    def _swap(self, what, swaps, lines):
        parts = ["\n".join(lines[r.start : r.stop]) for r in self.regions]
        for old, new in swaps:
            places = [(n, *place) for n, part in enumerate(parts) for place in _places(old, part)]
            if len(places) != 1:
                raise SourceError(f"{self.name}, {what}: the text to swap must stand once in the regions, "
                                  f"found {len(places)} times: {old!r}")
            n, start, stop = places[0]
            parts[n] = parts[n][:start] + new.lstrip(" ") + parts[n][stop:]
        # from the end: line numbers stay true
        for region, part in reversed(list(zip(self.regions, parts, strict=True))):
            lines[region.start : region.stop] = part.split("\n")
        return lines


@cache                                                 # one solution is searched for each of its mistakes
def code(text):
    """[(token, start, stop)] of the code in text, without comments, empty lines and the spaces between tokens.

    The start of a line is a token of its own, with its indentation. Text need not be whole: "scale - L_i[:, None])".
    """
    found = []
    for match in TOKEN.finditer(text):
        if match[0].startswith("\n") and found and found[-1][0].startswith("\n"):
            found.pop()                                # the line in between held no code
        if not match[0].startswith("#"):
            found.append((match[0], *match.span()))
    return found


def _places(old, text):
    """(start, stop) of each place in text where the code of old stands. What surrounds old does not count."""
    wanted, found = [token for token, *_ in code(old.strip())], code(text)
    tokens = [token for token, *_ in found]
    last = len(wanted) - 1
    return [(found[n][1], found[n + last][2]) for n in range(len(tokens) - last) if tokens[n : n + last + 1] == wanted]


def load_text(text, title, path=None):
    """Run a module's text in a namespace of its own and return that. `title` stands where a file's name would.

    Triton reads a kernel's source through linecache, so the text is put there.
    """
    filename = str(path) if path else f"<{title}>"
    linecache.checkcache(filename)
    if path is None:
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    module = types.ModuleType(f"flashlab_exercise.{re.sub(r'[^A-Za-z0-9]+', '_', title)}")
    module.__file__ = filename
    sys.modules[module.__name__] = module             # dataclasses and pickle look their module up
    exec(compile(text, filename, "exec"), module.__dict__)
    return module.__dict__


def of(fn):
    """The text of a function or Triton kernel, "" where Python does not have it."""
    try:
        return inspect.getsource(getattr(fn, "fn", fn))
    except Exception:                                  # a learner's own __getattr__ may raise anything
        return ""


def markers_left(text, name):
    """How many of the stub's `raise NotImplementedError("name: ...")` are still there."""
    return len(re.findall(rf'^ *raise NotImplementedError\("{name}: ', text, re.MULTILINE))
