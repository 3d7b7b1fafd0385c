"""Reading solutions/: the marked regions, the stub and the wrong versions made from them, and loading a file afresh.

    # >>> your turn: one line that says what to write
    ...the answer...
    # <<<
"""

import ast
import inspect
import itertools
import linecache
import os
import re
import sys
import textwrap
import types
from collections import namedtuple
from pathlib import Path

import cloudpickle

import flashlab

LOADED = "flashlab_exercise"   # the package that a text's module seems to be from
MY = "my"                      # the folder of the learner's own copies, beside what git knows
MARKER = re.compile(r"^ *# ?(>>+|<<+)", re.MULTILINE)
REGION = re.compile(r"^(?P<indent> *)# >>> your turn: (?P<task>\S.*)\n(?P<code>(?:(?! *# ?(?:>>|<<)).*\n)+) *# <<<$",
                    re.MULTILINE)
HEAD = re.compile(r"^(?P<name>ex(?P<chapter>\d\d[a-z]?)_\w+) · (?P<title>.+)\n\n"
                  r"Chapter (?P=chapter) · difficulty (?P<difficulty>[1-5]) of 5 · (?P<minutes>\d+) minutes(\n|$)")


class SourceError(ValueError):
    """A solution that cannot be taken apart, or a mistake that no longer fits it. Names file and line."""


Head = namedtuple("Head", "title chapter difficulty minutes")


def root():
    """The folder that holds solutions/ and exercises/: FLASHLAB_ROOT, the repository, or where the work is done."""
    said = os.environ.get("FLASHLAB_ROOT")
    for folder in (said,) if said else (Path(flashlab.__file__).parent.parent, ".", ".."):
        if (Path(folder) / "solutions").is_dir():
            return Path(folder).absolute()
    raise SourceError(f"no folder solutions/ in {said or 'the package, here or above'}: work in a clone of the "
                      "repository, or set FLASHLAB_ROOT to one")


def chapter(name):
    """The chapter that asks for an exercise: "12b" of ex12b_ring."""
    return name[2:].partition("_")[0]


def solution_path(name):
    return root() / "solutions" / f"{name}.py"


def solution_text(name):
    return solution_path(name).read_text(encoding="utf-8")


def exercise_path(name):
    return root() / shown_path(name)


def shown_path(name):
    """Where a learner's answer is, as it is said to them. exercises/ holds the stubs that git knows."""
    return f"{MY}/exercises/{name}.py"


def put(path, text):
    """Write a file as a whole or not at all: what was there stays where the disk is full."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def set_aside(path, word):
    """Rename a file to its name with a word in it, and a number if that is taken. Returns the new path."""
    names = (f"{path.stem}.{word}{n if n > 1 else ''}{path.suffix}" for n in itertools.count(1))
    return path.rename(next(place for name in names if not (place := path.with_name(name)).exists()))


class Parsed:
    """A solution file and its marked regions: matches of REGION."""

    def __init__(self, name, text):
        self.name, self.text = name, text
        self.regions = list(REGION.finditer(text))
        spans = [region.span() for region in self.regions]
        astray = [mark.start() for mark in MARKER.finditer(text) if not any(a <= mark.start() < b for a, b in spans)]
        if astray or not spans:
            line = text[: astray[0] if astray else 0].count("\n") + 1
            raise SourceError(f"solutions/{name}.py:{line}: an answer stands between `# >>> your turn: what to write` "
                              "and `# <<<`, and there is at least one")
        match = HEAD.match(ast.get_docstring(ast.parse(text)) or "")
        if not match or match["name"] != name:
            raise SourceError(f'solutions/{name}.py:1: the docstring starts "{name} · title", an empty line, then '
                              f'"Chapter {chapter(name)} · difficulty 3 of 5 · 20 minutes"')
        self.head = Head(match["title"], match["chapter"], int(match["difficulty"]), int(match["minutes"]))

    def answer(self):
        """The text of the regions alone: what is shown once the exercise passes."""
        return textwrap.dedent("\n".join(region["code"] for region in self.regions)).rstrip("\n")

    def todo(self, region):
        """What stands in the stub in place of a region: its task, and a NotImplementedError that names it."""
        error = f'raise NotImplementedError("{self.name}: {region["task"]}")'
        return f"{region['indent']}# your turn: {region['task']}\n{region['indent']}{error}"

    def stub(self):
        """What the learner gets: a todo in place of each region."""
        return REGION.sub(self.todo, self.text)

    def edited(self, what, swaps):
        """A copy with swaps made inside the regions."""
        parts = [region["code"] for region in self.regions]
        for old, new in swaps:
            places = [n for n, part in enumerate(parts) for _ in range(part.count(old))]
            if len(places) != 1:
                raise SourceError(f"{self.name}, {what}: the text to swap must stand once in the regions, "
                                  f"found {len(places)} times: {old!r}")
            parts[places[0]] = parts[places[0]].replace(old, new)
        left = iter(parts)
        text = REGION.sub(lambda region: region[0].replace(region["code"], next(left)), self.text)
        return Parsed(self.name, text)


def load_text(text, title, path=None, scope=()):
    """Run a module's text in a namespace of its own and return that. `title` stands where a file's name would; scope is
    what it knows beforehand.

    Triton reads a kernel's source through linecache, so the text is put there.
    """
    filename = str(path) if path else f"<{title}>"
    linecache.checkcache(filename)
    if path is None:
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    module = types.ModuleType(f"{LOADED}.{re.sub(r'[^A-Za-z0-9]+', '_', title)}")
    module.__file__ = filename
    sys.modules[module.__name__] = module             # dataclasses and pickle look their module up
    cloudpickle.register_pickle_by_value(module)      # which no other process can import
    vars(module).update(scope)
    exec(compile(text, filename, "exec"), module.__dict__)
    return module.__dict__


def inner(thing):
    """The function inside a Triton kernel or a wrapper, else the thing itself."""
    while callable(part := inspect.getattr_static(thing, "fn", inspect.getattr_static(thing, "__wrapped__", None))):
        thing = part
    return thing


def file_of(fn):
    """The file or cell that a function was written in; None for what has no code of its own."""
    return getattr(getattr(inner(fn), "__code__", None), "co_filename", None)


def of(fn):
    """The text of a function or Triton kernel, "" where Python does not have it."""
    try:
        return inspect.getsource(inner(fn))
    except (OSError, TypeError):
        return ""


def tasks_left(text, name):
    """The tasks of the stub's `raise NotImplementedError("name: task")` that are still there."""
    return re.findall(rf'^ *raise NotImplementedError\("{name}: (.*)"\)', text, re.MULTILINE)
