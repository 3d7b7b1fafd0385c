"""Which line runs: the source of the functions that are followed, and a tracer that reports each line after it ran."""

import ast
import inspect
import linecache
import sys
from contextlib import contextmanager
from typing import NamedTuple

EVENTS_A_STEP = 4              # a line that repeats itself without an end makes events, but no new steps

NO_DATA = {"shape", "dtype", "device", "ndim"}        # Q.shape reads nothing of Q


class Statement(NamedTuple):
    """A statement's lines, or the head of a compound one, with the names that it uses and sets."""

    start: int
    stop: int              # its last line
    reads: frozenset
    sets: frozenset
    loop: bool             # the head of a loop


class Source:
    """One file: its statements by line, and its functions without their docstrings."""

    def __init__(self, file):
        self.text = [line.rstrip("\n") for line in linecache.getlines(file)]
        self.statements, self.functions = {}, {}
        try:
            tree = ast.parse("\n".join(self.text))
        except SyntaxError:
            return                                     # no file, or one that has changed since: only line numbers
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                for start in (node, *node.decorator_list):     # a code object begins at its first decorator
                    self.functions[start.lineno] = node
            if isinstance(node, ast.stmt):                     # outer ones come first: the innermost stays
                statement = _statement(node)
                self.statements |= dict.fromkeys(range(statement.start, statement.stop + 1), statement)

    def line(self, number):
        return self.text[number - 1] if number <= len(self.text) else f"line {number}"

    def at(self, line):
        """The Statement that stands there."""
        return self.statements.get(line) or Statement(line, line, frozenset(), frozenset(), False)

    def shown(self, first_line):
        """The line numbers of the function that begins there: its name, then its body."""
        node = self.functions.get(first_line)
        if node is None:
            return []
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        begin = body[0].lineno if body else node.end_lineno + 1
        return [*range(node.lineno, node.body[0].lineno), *range(begin, node.end_lineno + 1)]


def _statement(node):
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    stop = node.end_lineno
    if body:
        stop = max(node.lineno, body[0].lineno - 1 if isinstance(body[0], ast.stmt) else node.lineno)
    blocks = [getattr(node, name, None) for name in ("body", "orelse", "finalbody", "handlers")]
    inside = {name for block in blocks if isinstance(block, list) for one in block for name in ast.walk(one)}
    inside |= {one.value for one in ast.walk(node) if isinstance(one, ast.Attribute) and one.attr in NO_DATA}
    names = [name for name in ast.walk(node) if isinstance(name, ast.Name) and name not in inside]
    sets = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    reads = {name.id for name in names if isinstance(name.ctx, ast.Load)}
    for target in getattr(node, "targets", []):        # C[rows, cols] = ...
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            sets.add(target.value.id)
    if isinstance(node, ast.AugAssign):
        reads |= sets
    return Statement(node.lineno, stop, frozenset(reads), frozenset(sets), isinstance(node, ast.For | ast.While))


class TooLong(Exception):
    """More steps than a player shows."""


class Tracer:
    """Calls ran(frame, file, statement, how) when a line of a followed function has run; it returns if that is a step.

    how   "done"; "calls": the line is on its way into another followed function; "resumes": that one has returned
    """

    def __init__(self, follows, ran, limit):
        self.follows, self.ran, self.limit = follows, ran, limit
        self.sources, self.functions = {}, {}          # functions: (file, first line) in order of first call
        self.waiting = None                            # (frame, file, statement, how): runs now
        self.steps = self.events = 0

    @contextmanager
    def on(self):
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)
            self.waiting = None

    def source(self, file):
        if file not in self.sources:
            self.sources[file] = Source(file)
        return self.sources[file]

    def _call(self, frame, event, argument):
        code = frame.f_code
        if event != "call" or code.co_name.startswith("<") or not self.follows(code):
            return None
        self._report("calls")
        self.functions.setdefault((code.co_filename, code.co_firstlineno), code.co_name)
        return self._line

    def _line(self, frame, event, argument):
        self.events += 1
        if self.events > EVENTS_A_STEP * self.limit:
            raise TooLong
        if event == "return":
            self._report()
            caller = frame.f_back
            if caller is not None and (caller.f_code.co_filename, caller.f_code.co_firstlineno) in self.functions:
                self._wait(caller, caller.f_lineno, "resumes")
        elif event == "line":
            statement = self.source(frame.f_code.co_filename).at(frame.f_lineno)
            if self.waiting is None or self.waiting[0] is not frame or self.waiting[2] != statement:
                self._report()                         # else a further line of the same statement
                self._wait(frame, frame.f_lineno, "done")
        return self._line

    def _wait(self, frame, line, how):
        file = frame.f_code.co_filename
        self.waiting = frame, file, self.source(file).at(line), how

    def _report(self, how=None):
        if self.waiting is not None:
            *waiting, usual = self.waiting
            self.waiting = None
            self.steps += bool(self.ran(*waiting, how or usual))
            if self.steps > self.limit:
                raise TooLong


def code_of(function):
    """The code object of a function, also of a Triton kernel. Raises: TypeError if it has none in Python."""
    function = inspect.unwrap(getattr(function, "fn", function))
    code = getattr(function, "__code__", None)
    if code is None:
        raise TypeError(f"follow must name functions written in Python, got {function!r}")
    return code
