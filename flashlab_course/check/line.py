"""Where a wrong answer goes wrong: the line of the learner's whose value is to blame.

Answer and solution run on the same cases, and every expression hands over its values (probe.py). An expression is
suspect if the solution has none with these values. It is the cause if the failing cases come out right once it takes
the values of one of the solution's expressions. Where no exchange helps, the first suspect is shown that is not
suspect in a case that passes: what differs there, too, is another style.
"""

import linecache
import time
from dataclasses import dataclass

import numpy

from flashlab_course.check import judge
from flashlab_course.check.probe import Probe, read

SECONDS = {"PyTorch": 3.0, "Triton": 8.0}      # of this thread, for the exchanges
LAST = 0.5                     # and these for putting in the results themselves
CASES = 3                      # failing cases that an exchange has to mend
ROWS = 64                      # a value of more rows than this is not looked at row by row
NEAR = 2e-5                    # two values are the same if they differ by less, relative to the largest number
LOOSE = 2e-4                   # the same where scores are so large that exponentials are not as exact


@dataclass
class Place:
    """The line that goes wrong, how often it had run, its code. certain: with another value there all is right."""

    line: int
    turn: int
    code: str
    certain: bool

    def __str__(self):
        if self.certain:
            return f"Line {self.line}, `{self.code}`, is the cause: with the right value there, the result is right."
        return f"Line {self.line}, `{self.code}`, is the first with a wrong value; the cause is here or above."


def first_wrong(exercise, fn, judged):
    """The Place where fn goes wrong; None if that cannot be told."""
    try:
        return _Search(exercise, fn, judged).place()
    except Exception:                                  # there is always another way to write Python
        return None


class _Search:
    def __init__(self, exercise, fn, judged):
        self.exercise, self.probe, self.solution = exercise, Probe(fn), Probe(exercise.solution())
        failing = [k for k in judged if not k.passed]
        self.structure = failing[0].only_structure
        self.wrong = {n for n, *_ in failing[0].wrong}
        self.failing = [self._run(k.case) for k in failing[:CASES]]
        self.passing = [self._run(k.case) for k in judged if k.passed][:2]
        truth = judge.expect(exercise, failing[0].case).truth
        self.results = [one for one in map(read, (*truth, truth)) if one]
        self.deadline = time.thread_time() + SECONDS["Triton" if exercise.triton else "PyTorch"]

    def _run(self, case):
        """(case, the answer's values, the _Pool of the solution's) of one case."""
        self.solution.run(self.exercise, case)
        pool = _Pool(self.solution, LOOSE if case.loose else NEAR)
        self.probe.run(self.exercise, case)
        return case, self.probe.values, pool

    def _known(self, number, runs):
        """Are all values that an expression has in these runs the solution's as well?"""
        name = self.probe.places[number].name
        return all(pool.knows(values[number], name) for _, values, pool in runs if number in values)

    def place(self):
        """The earliest expression that an exchange proves to be the cause; else the first that is suspect."""
        values, places = self.failing[0][1], self.probe.places
        numbers = [number for number in values if not self._known(number, self.failing)]
        suspect = [number for number in numbers if not places[number].returned]
        vague = [number for number in values if not _telling(values[number]) and number not in suspect]
        for some in (suspect, vague, [*reversed(values)]):
            if found := self._first_cause(some):
                return self._place(*found, True)
        tell = None if self.exercise.ints_only else next(filter(self._blamed, suspect), None)
        if tell is not None:
            return self._place(tell, 1, False)
        self.results, self.deadline = [], time.thread_time() + LAST
        found = self._first_cause(suspect)
        return self._place(*found, True) if found else None

    def _first_cause(self, numbers):
        """(the expression that is evaluated first, of those that are a cause; from which turn on), or None."""
        places, found = self.probe.places, None
        for number in sorted(numbers, key=lambda number: not places[number].whole):
            earlier = found is None or numbers.index(number) < numbers.index(found[0])
            if earlier and (turn := self._cause(number)):
                found = number, turn
        if found and (name := places[found[0]].reads):         # what the name holds was made elsewhere
            made = [number for number in self.failing[0][1] if places[number].name == name]
            found = next(((number, turn) for number in made if (turn := self._cause(number))), found)
        return found

    def _blamed(self, number):
        """Is a value suspect that is not so in the cases that pass, and on which no right result depends?"""
        values = self.failing[0][1][number]
        single = isinstance(values[0].shape[0], bool) and (hasattr(values[0].kept, "shape") or self._shared(number))
        return single and _telling(values) and self._known(number, self.passing) and not self._excused(number)

    def _shared(self, number):
        return self.probe.places[number].name in self.failing[0][2].named

    def _excused(self, number):
        """Does a right result depend on it? Then it is another way to get there."""
        case, values, _ = self.failing[0]
        other = [one._replace(kept=one.kept + 1) for one in values[number]]
        judged = self.probe.run(self.exercise, case, number, other)
        return judged.problem is None and not {n for n, *_ in judged.wrong} <= self.wrong

    def _place(self, number, turn, certain):
        line = self.probe.places[number].line
        return Place(line, turn, linecache.getline(self.probe.file, line).partition("  #")[0].strip(), certain)

    def _cause(self, number):
        """The turn from which on other values of an expression make the failing cases right, else 0."""
        (case, values, pool), *others = self.failing
        mine = values[number]
        named = self.probe.places[number].name
        for given, sources in _instead(mine, pool, named):
            different = [n for n, (x, y) in enumerate(zip(mine, given, strict=False)) if not _same(x, y, pool.near)]
            if not different and len(given) <= len(mine) or self._is_result(given) or time.thread_time() > self.deadline:
                continue
            if self._mends(case, number, given) and all(self._mends_as_well(number, sources, *run) for run in others):
                return 1 + min(different, default=len(mine))
        return 0

    def _is_result(self, given):
        """What is the result itself makes it right wherever it stands."""
        return len(given) == 1 and any(_same(given[0], one, NEAR) for one in self.results)

    def _mends_as_well(self, number, sources, case, values, pool):
        mine = values.get(number, [])
        known = [pool.values[one] for one in sources[:CASES] if one in pool.values]
        return mine and any(self._mends(case, number, given)
                            for given in (known if sources else [one for one, _ in _nearby(mine)]))

    def _mends(self, case, number, given):
        judged = self.probe.run(self.exercise, case, number, given)
        return judged.passed if self.structure else judged.problem is None and not judged.wrong


# ---- what could stand in the place of an expression

def _instead(mine, pool, named):
    """(Values, the solution's expressions that have them) to try instead of an expression's own."""
    shape = mine[0].shape
    for given, sources in pool.distinct.values():
        if len(given) == len(mine) or shape == (True,):
            other = named or shape not in pool.shapes          # its shape may be what is wrong
            if given[0].shape == shape or other and type(given[0].kept) is type(mine[0].kept):
                yield given, sources
    yield from _nearby(mine)


def _nearby(mine):
    """A whole number one larger or smaller, a condition the other way round in one turn."""
    if type(mine[0].kept) is int:
        for by in (1, -1):
            yield [one._replace(kept=one.kept + by, numbers=one.numbers + by) for one in mine], ()
    elif type(mine[0].kept) is bool:
        for turn, one in enumerate(mine[:8]):
            other = one._replace(kept=not one.kept, numbers=1 - one.numbers)
            yield [*mine[:turn], other, *mine[turn + 1:]], ()


# ---- the values of the solution

class _Pool:
    """The values of the solution in one run. distinct: those of expressions that have not the same ones."""

    def __init__(self, solution, near):
        self.values, self.near, self.distinct, self.named = solution.values, near, {}, {}
        self.sequences, self.single = {}, {}
        for number, values in solution.values.items():
            key = tuple((one.shape, numpy.float32(one.numbers).tobytes()) for one in values)
            self.distinct.setdefault(key, (values, []))[1].append(number)
            if name := solution.places[number].name:
                self.named.setdefault(name, []).extend(values)
        for values, _ in self.distinct.values():
            self.sequences.setdefault(_shapes(values), []).append(_all(values))
            for one in values:
                self._enter(one)
        self.shapes = {one.shape for values, _ in self.distinct.values() for one in values}
        self.single = {shape: numpy.stack(list(known.values())) for shape, known in self.single.items()}

    def _enter(self, value):
        """A value, its transpose, and its rows and columns: a loop may have them one by one."""
        _, *sizes = value.shape
        x = value.numbers.reshape(sizes) if all(isinstance(size, int) for size in sizes) else value.numbers
        versions = [x, x.T, *(x if len(x) <= ROWS else ()), *(x.T if len(x.T) <= ROWS else ())] if x.ndim == 2 else [x]
        for version in versions:
            self.single.setdefault(version.shape, {})[version.tobytes()] = version.ravel()

    def knows(self, values, name):
        """Has one of the solution's expressions these values, or, where they tell, do they all come up? A name that
        the solution has too holds what it holds there: Q Kᵀ is not yet S."""
        alike = [one for one in self.named.get(name, ()) if one.shape == values[0].shape]
        if alike and not all(any(_same(one, other, self.near) for other in alike) for one in values):
            return False
        known = self.sequences.get(_shapes(values))
        if known and _is_among(_all(values), numpy.stack(known), self.near):
            return True
        return _telling(values) and hasattr(values[0].kept, "shape") and all(map(self._has, values))

    def _has(self, value):
        known = self.single.get(value.shape[1:])
        if known is not None and _is_among(value.numbers, known, self.near):
            return True
        parts = numpy.split(value.numbers, value.shape[1]) if len(value.shape) > 3 else ()
        return bool(len(parts)) and all(self._has(value._replace(shape=(value.shape[0], *value.shape[2:]), numbers=part))
                                        for part in parts)


def _shapes(values):
    return tuple(one.shape[1:] if isinstance(one.shape[0], bool) else one.shape for one in values)


def _all(values):
    return numpy.concatenate([one.numbers for one in values])


def _same(a, b, near):
    return a.numbers.shape == b.numbers.shape and _is_among(a.numbers, b.numbers[None], near)


def _telling(values):
    return any(_tells(value) or numpy.isnan(value.numbers).any() for value in values)


def _tells(value):
    """Would another calculation hardly give these numbers? 0, 1 and infinities come up everywhere."""
    plain = value.numbers[numpy.isfinite(value.numbers)]
    return bool(((plain != 0) & (abs(plain) != 1)).any()) or plain.size > 3 and len(numpy.unique(plain)) > 1


def _is_among(x, known, near):
    """Does one row of the known have the same numbers, infinities and NaN included, but for rounding?"""
    both = numpy.isfinite(x) & numpy.isfinite(known)
    largest = abs(numpy.where(both, known, 0)).max(1, keepdims=True)
    with numpy.errstate(invalid="ignore"):
        close = abs(x - known) <= near * largest
    alike = (x == known) | (numpy.isnan(x) & numpy.isnan(known))
    return bool(numpy.where(both, close, alike).all(1).any())
