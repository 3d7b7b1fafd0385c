"""Which line runs: the source of the functions that are followed, and a tracer that reports each line after it ran."""

import ast
import inspect
import linecache
import sys
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

MAX_EVENTS = 8000                      # a loop that never ends is stopped


class Statement(NamedTuple):
    """The lines of a statement, or of the head of a compound one, with the names that it uses and sets."""

    start: int
    stop: int              # its last line
    reads: tuple = ()
    sets: tuple = ()


class Source:
    """The statements of a file by line, and its functions by the first line of their code objects."""

    def __init__(self, file):
        self.statements, self.functions = {}, {}
        for node in ast.walk(ast.parse("".join(linecache.getlines(file)))):
            if isinstance(node, ast.FunctionDef):
                first = min(one.lineno for one in (node, *node.decorator_list))
                self.functions[first] = node
            if isinstance(node, ast.stmt):                     # outer ones come first: the innermost stays
                statement = _statement(node)
                self.statements |= dict.fromkeys(range(statement.start, statement.stop + 1), statement)

    def at(self, line):
        """The Statement in that line."""
        return self.statements.get(line, Statement(line, line))

    def shown(self, first_line):
        """The line numbers of the function that begins there, without its docstring."""
        node = self.functions.get(first_line)
        if node is None:
            return []
        head, end = node.body[0].lineno, node.end_lineno + 1
        if ast.get_docstring(node) is None:
            return [*range(node.lineno, end)]
        return [*range(node.lineno, head), *range(node.body[0].end_lineno + 1, end)]


def _statement(node):
    """The Statement of an ast node. Of a compound statement only the head counts: the body has its own."""
    body = getattr(node, "body", None)
    stop = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno
    names = [name for name in ast.walk(node) if isinstance(name, ast.Name) and name.lineno <= stop]
    sets = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    reads = {name.id for name in names if isinstance(name.ctx, ast.Load)}
    for target in getattr(node, "targets", []):        # C[rows, cols] = ...
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            sets.add(target.value.id)
    return Statement(node.lineno, stop, tuple(sorted(reads)), tuple(sorted(sets)))


class TooLong(Exception):
    """More lines than a player shows."""


class Tracer:
    """Within `on()`, calls ran(frame, file, statement, how) after each line of the functions that `follows` accepts.

    how   "done"; "calls": the line is on its way into another followed function; "resumes": that one has returned
    """

    def __init__(self, follows, ran):
        self.follows, self.ran = follows, ran
        self.source, self.functions = cache(Source), {}        # functions: (file, first line) in order of first call
        self.waiting, self.events = None, 0                    # waiting: the line that runs now

    @contextmanager
    def on(self):
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    def _call(self, frame, event, argument):
        code = frame.f_code
        if code.co_name.startswith("<") or not self.follows(code):
            return None
        self._report("calls")
        self.functions[code.co_filename, code.co_firstlineno] = None
        return self._line

    def _line(self, frame, event, argument):
        self.events += 1
        if self.events > MAX_EVENTS:
            raise TooLong
        if event == "return":
            self._report()
            caller = frame.f_back
            if caller is not None and (caller.f_code.co_filename, caller.f_code.co_firstlineno) in self.functions:
                self._wait(caller, "resumes")
        elif event == "line":
            statement = self.source(frame.f_code.co_filename).at(frame.f_lineno)
            if self.waiting is None or self.waiting[0] is not frame or self.waiting[2] != statement:
                self._report()                         # else a further line of the same statement
                self._wait(frame, "done")
        return self._line

    def _wait(self, frame, how):
        file = frame.f_code.co_filename
        self.waiting = frame, file, self.source(file).at(frame.f_lineno), how

    def _report(self, how=None):
        if self.waiting is not None:
            *line, usual = self.waiting
            self.waiting = None
            self.ran(*line, how or usual)


def code_of(function):
    """The code object of a function, also of a Triton kernel. Raises: TypeError if it has none in Python."""
    function = inspect.unwrap(getattr(function, "fn", function))
    code = getattr(function, "__code__", None)
    if code is None:
        raise TypeError(f"follow must name functions written in Python, got {function!r}")
    return code
