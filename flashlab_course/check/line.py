"""Where a wrong answer first goes wrong: the learner's first value that the solution's calculation never has.

Answer and solution run on the same case. Every value that one of the learner's names ever holds is looked up among all
values of the solution. A value that the solution lacks is blamed only if nothing right was made from it afterwards,
and only if the same statement is not as different in a case that passes: another style is no mistake.
"""

import ast
import linecache
import sys
from collections import Counter
from dataclasses import dataclass, field

import numpy
import torch
from torch.overrides import TorchFunctionMode

from flashlab import torch_internals
from flashlab_course.check import judge, runner, source

MOST = 1500                    # values of one run that are kept
LARGEST = 20_000               # elements of a value that is kept
ROWS = 64                      # a value of more rows than this is not looked at row by row
NEAR = 2e-5                    # two values are the same if they differ by less, relative to the largest number
LOOSE = 2e-4                   # the same where scores are so large that exponentials are not as exact
RESULT = ""                    # the name of a value that is returned at once


@dataclass(eq=False)
class Value:
    """What a name held after a statement, as float64 numbers.

    turn: how often the line had run. plain: Python's numbers and whole ones, such as sizes and positions.
    made_from: the values that the statement uses. right: known, or a part of an input. known: the solution has it.
    shared: the solution has a name like this
    """

    name: str
    line: int
    turn: int
    numbers: numpy.ndarray
    plain: bool
    made_from: list = field(default_factory=list)
    right: bool = False
    known: bool = False
    shared: bool = False
    led_to_right: bool = False

    @property
    def statement(self):
        """Another style is excused, but not that it overflows where it did not elsewhere."""
        return self.name, self.line, bool(numpy.isfinite(self.numbers).all())

    @property
    def wrong(self):
        return not self.right and not self.led_to_right


@dataclass
class Place:
    """The statement where something wrong is first seen: its line, how often that had run, its code, the name it sets.

    first: nothing before it is wrong; else it only makes a wrong result
    """

    line: int
    turn: int
    code: str
    name: str
    first: bool = True

    def __str__(self):
        name = f"`{self.name}`" if self.name else "the result"
        if not self.first:
            return f"Line {self.line}, `{self.code}`: {name} is wrong."
        return f"Line {self.line}, `{self.code}`: {name} is the first value found wrong; the cause is here or above."


def first_wrong(exercise, fn, judged, file):
    """The Place where fn goes wrong in its smallest failing case; None if that cannot be told."""
    failing = next((k for k in judged if k.wrong or k.problem and k.problem.kind == "wrong_shape"), None)
    if file is None or failing is None:
        return None
    values = _run(exercise, fn, failing.case, file)
    blamed = _blamed(exercise, fn, judged, failing, values, file)
    if blamed is None:
        return _wrong_result(failing, values, file)
    return Place(blamed.line, blamed.turn, _code(file, blamed.line), blamed.name)


def _blamed(exercise, fn, judged, failing, values, file):
    """The first value that no style explains."""
    passing = next((k for k in judged if k.passed and all(_tells(x) for x, _ in _truth(exercise, k.case))), None)
    whole = all(plain for _, plain in _truth(exercise, failing.case))
    if whole and passing is None:                      # many ways lead to a whole number
        return None
    right_there = _run(exercise, fn, passing.case, file) if passing else ()
    # what is never one of the solution's values, though all comes out right, is another way to get there
    style = {v.statement for v in right_there} - {v.statement for v in right_there if v.right}
    style |= {v.statement for v in values if v.led_to_right}
    wrong = [v for v in values if v.wrong and (whole or v.shared or not v.plain) and "empty" not in _code(file, v.line)]
    first = min(wrong, key=lambda v: v.statement in style, default=None)
    return None if first is None or passing and first.statement in style else first


def _truth(exercise, case):
    """(numbers, are they whole) of the right results. A product with 0 hides whatever came before it."""
    return list(filter(None, map(_numbers, judge.expect(exercise, case).truth)))


def _wrong_result(failing, values, file):
    """The Place where the first wrong result was made."""
    found = _numbers(failing.outcome.values[failing.wrong[0][0] if failing.wrong else 0])
    if found is None or not _tells(found[0]):
        return None
    made = [v for v in values if v.name and _same(v.numbers.squeeze(), found[0].squeeze())]
    made = next((v for v in made if not v.right), made[-1] if made else None)
    return made and Place(made.line, made.turn, _code(file, made.line), made.name, first=False)


def _code(file, line):
    """The line without its comment. torch.empty holds nothing that could be wrong."""
    return linecache.getline(file, line).partition("  #")[0].strip()


def _tells(numbers):
    """Would another calculation hardly give these numbers? 0, 1 and infinities come up everywhere."""
    plain = numbers[numpy.isfinite(numbers)]
    return bool(((plain != 0) & (abs(plain) != 1)).any()) or plain.size > 3 and len(numpy.unique(plain)) > 1


def _run(exercise, fn, case, file):
    """The values of fn on a case, those marked that are right, and those that led to something right: they are
    another way to the same numbers."""
    pool, values = _Pool(exercise, case), _values(exercise, fn, case, file)
    for value in values:
        value.shared = value.name in pool.named
        value.known = pool.holds(value.numbers, value.name)
        value.right = value.known or pool.is_part_of_an_input(value.numbers)
        origins = list(value.made_from) if value.right and _tells(value.numbers) else []
        while origins:
            origin = origins.pop()
            if origin.wrong:
                origin.led_to_right = True
                origins += origin.made_from
    return values


# ---- the values of a run

def _values(exercise, fn, case, file):
    """Each new value of a local name in the functions of one file, statement by statement."""
    values, turns, statements = [], Counter(), _statements(file)

    def call(frame, event, arg):
        if frame.f_code.co_filename != file or len(values) >= MOST:
            return None
        last = None
        held = {name: Value(name, frame.f_lineno, 0, *numbers, right=True) for name, numbers in _locals(frame)}

        def line(frame, event, result):
            nonlocal last
            if last is not None:
                after(*statements.get(last, (last, ())), held, frame, result if event == "return" else ())
            if event == "line":
                turns[frame.f_lineno] += 1
            last = frame.f_lineno
            return line

        return line

    def after(first, used, held, frame, result):
        made_from, turn = [held[name] for name in used if name in held], turns[first]
        for name, numbers in _locals(frame):
            if name not in held or not _same(held[name].numbers, numbers[0]):
                held[name] = Value(name, first, turn, *numbers, made_from)
                values.append(held[name])
        for numbers in filter(None, map(_numbers, result if isinstance(result, tuple) else (result,))):
            if not any(_same(numbers[0], value.numbers) for value in made_from):
                values.append(Value(RESULT, first, turn, *numbers, made_from))

    before = sys.gettrace()
    sys.settrace(call)
    try:
        runner.run(exercise, fn, case.make(), limit=60, own_file=file)     # tracing takes ten times as long
    finally:
        sys.settrace(before)
    return values


def _statements(file):
    """{line: (first line of its statement, names that it uses)}. Of a loop or a branch, its head."""
    found = {}
    for node in ast.walk(ast.parse("".join(linecache.getlines(file)))):
        if isinstance(node, ast.stmt) and not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            body = getattr(node, "body", None)
            parts = [part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.stmt)]
            used = {name.id for part in parts for name in ast.walk(part) if isinstance(name, ast.Name)
                    and (isinstance(name.ctx, ast.Load) or name not in getattr(node, "targets", ()))}
            stop = body[0].lineno if body else node.end_lineno + 1
            found |= {line: (node.lineno, used) for line in range(node.lineno, stop)}
    return found


def _locals(frame):
    """(name, its numbers) of every local name that holds numbers."""
    return [(name, found) for name, value in list(frame.f_locals.items()) if (found := _numbers(value))]


def _numbers(value):
    """(float64 copy, are they Python's or whole numbers) of a tensor, an array, a number, a list of such, or a value in
    a Triton kernel; None of everything else."""
    try:
        if type(value).__module__ == "triton.language.core":
            value = None if value.dtype.is_ptr() else numpy.asarray(value.handle.data)
        if isinstance(value, torch.Tensor):
            with torch_internals.without_modes():      # a copy for the trace is no traffic
                T = value.detach().cpu()
                array = (T.double() if T.is_floating_point() else T).numpy()
        elif isinstance(value, numpy.ndarray) or type(value) in (int, float) or (
                isinstance(value, (tuple, list)) and set(map(type, value)) <= {int, float, tuple}):
            array = numpy.asarray(value)
        else:
            return None
        if array.dtype.kind not in "iufb" or not 0 < array.size <= LARGEST:
            return None
        return array.astype(numpy.float64), array.dtype.kind in "iu" or type(value) is float
    except Exception:                                  # a tensor of a kind that cannot be read, a kernel's constant
        return None


def _same(a, b):
    return a.shape == b.shape and numpy.array_equal(a, b, equal_nan=True)


# ---- the values of the solution

class _Pool:
    """Every value that the solution has on a case: its names', the results of its operations, and the inputs."""

    def __init__(self, exercise, case):
        self.by_shape, self.named, self.near = {}, {}, LOOSE if case.loose else NEAR
        operations = _Operations()
        with operations:
            own = _values(exercise, exercise.solution(), case, str(source.solution_path(exercise.name)))
        self.inputs = [numbers for numbers, _ in filter(None, map(_numbers, case.make().values()))]
        truth = [(output.name, _numbers(true)[0]) for output, true
                 in zip(exercise.outputs, judge.expect(exercise, case).truth, strict=True) if _numbers(true)]
        known = [*((value.name, value.numbers) for value in own), *truth]
        for name, numbers in known:
            _keep(self.named.setdefault(name, {}), numbers)
        for numbers in [*(numbers for _, numbers in known), *operations.found, *self.inputs]:
            _keep(self.by_shape, numbers)
            plain = numbers.squeeze()
            if plain.ndim == 2 and len(plain) <= ROWS:         # a loop over rows or columns has them one by one
                for row in (*plain, *plain.T):
                    _keep(self.by_shape, row)

    def holds(self, numbers, name):
        """Is this one of the values, or, along the first dimension, several of them?

        A name that the solution has too holds what it holds there: Q Kᵀ is not yet S.
        """
        numbers = numbers.squeeze()
        shape = numbers.shape
        known = self.named[name] if shape in self.named.get(name, ()) else self.by_shape
        if shape in known and _is_among(numbers, known[shape], self.near):
            return True
        return numbers.ndim > 2 and all(self.holds(part, name) for part in numbers)

    def is_part_of_an_input(self, numbers):
        """Are these rows of an input that follow one another?"""
        x = numbers.squeeze()
        arrays = [array for array in map(numpy.squeeze, self.inputs) if x.ndim and array.shape[1:] == x.shape[1:]]
        return any(_same(x, array[n : n + len(x)]) for array in arrays if array.ndim
                   for n in range(len(array) - len(x) + 1))


class _Operations(TorchFunctionMode):
    """Keeps what each of PyTorch's functions returns."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and len(self.found) < MOST and (numbers := _numbers(out)):
            self.found.append(numbers[0])
        return out


def _keep(known, numbers):
    """Enter an array and its transpose under their shapes."""
    plain = numbers.squeeze()
    for version in (plain, plain.T) if plain.ndim == 2 else (plain,):
        known.setdefault(version.shape, {})[version.tobytes()] = version


def _is_among(x, known, near):
    """Does one of the known have the same numbers, infinities and NaN included, but for rounding?"""
    known, x = numpy.stack(list(known.values())).reshape(len(known), -1), x.reshape(1, -1)
    both = numpy.isfinite(x) & numpy.isfinite(known)
    largest = abs(numpy.where(both, known, 0)).max(1, keepdims=True)
    with numpy.errstate(invalid="ignore"):
        close = abs(x - known) <= near * largest
    alike = (x == known) | (numpy.isnan(x) & numpy.isnan(known))
    return bool(numpy.where(both, close, alike).all(1).any())
