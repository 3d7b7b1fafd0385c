"""Where a wrong answer goes wrong: the line of the learner's whose value is to blame.

Answer and solution run on the same cases, and every expression hands over its values (probe.py). An expression is
suspect if the solution has none with these values. It is the cause if the failing cases come out right once it takes
the values of one of the solution's expressions. Where no exchange helps, the first suspect is shown that is not
suspect in a case that passes: what differs there, too, is another style. Where the mistake is known, the solution with
this mistake in it has the values of the expression that is to blame.
"""

import linecache
import time
from dataclasses import dataclass

import numpy

from flashlab_course.check import judge
from flashlab_course.check.probe import Probe, read

SECONDS = 3.0                  # of this thread, for the exchanges; a Triton kernel takes too long for any
CASES = 3                      # failing cases that an exchange has to mend
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
            return f"Line {self.line}, `{self.code}`: with the right value here, the result comes out right."
        return f"Line {self.line}, `{self.code}`, is the first with a wrong value; the cause is here or above."


def first_wrong(exercise, fn, judged, mistakes=()):
    """The Place where fn goes wrong; None if that cannot be told. mistakes: those that give the same results."""
    try:
        return _Search(exercise, fn, judged, mistakes).place()
    except Exception:                                  # there is always another way to write Python
        return None


class _Search:
    def __init__(self, exercise, fn, judged, mistakes):
        self.exercise, self.probe, self.solution = exercise, Probe(fn), Probe(exercise.solution())
        self.mistaken = Probe(exercise.wrong(*mistakes)) if mistakes else None
        failing = [k for k in judged if not k.passed][:CASES]
        self.structure, truth = failing[0].only_structure, judge.expect(exercise, failing[0].case).truth
        self.cut = failing[0].problem is not None
        self.results = [one for one in map(read, (*truth, truth)) if one]
        self.failing = [self._run(k.case) for k in failing]
        self.passing = [self._run(k.case) for k in judged if k.passed][:2]
        self.deadline = time.thread_time() + SECONDS

    def _run(self, case):
        """(case, the answer's values, the _Pool of the solution's) of one case."""
        self.solution.run(self.exercise, case)
        self.probe.run(self.exercise, case)
        return case, self.probe.values, _Pool(self.solution, LOOSE if case.loose else NEAR)

    def place(self):
        """The earliest expression that an exchange proves to be the cause; else the first that is suspect."""
        if self._mends(self.failing[0][0], None, ()):          # it fails only now and then
            return None
        self.values = self.probe.values
        inner = [number for number in self.values if not self.probe.places[number].returned]
        suspect = [number for number in inner if not self._known(number, self.failing)]
        vague = [number for number in inner if not _tell(self.values[number])]
        made = self._made(suspect) if self.mistaken and not self.cut else []
        suspect = made or suspect
        rounds = (suspect, False), (vague, False), (inner[::-1], False), (suspect, True), (inner[::-1], True)
        rounds = rounds[:1] if self.mistaken else rounds       # the others would contradict the name
        for some, shifted in () if self.exercise.triton else rounds:
            if found := self._first_cause(some, shifted):
                return self._place(*found, True)
        unnamed = not (self.exercise.ints_only or self.mistaken)
        if (number := next((n for n in suspect if made or unnamed and self._blamed(n)), None)) is not None:
            values, pool = self.values[number], self.failing[0][2]
            unknown = (n for n, one in enumerate(values, 1) if _tell([one]) and not pool.knows([one], ""))
            return self._place(number, next(unknown, 1), False)
        self.results, self.deadline = [], time.thread_time() + SECONDS / 6
        found = None if self.exercise.triton else self._first_cause(suspect)
        return self._place(*found, True) if found else None

    def _made(self, suspect):
        """The expressions that have the values of the known mistake, not those that only hand them on."""
        once = self.exercise.ints_only                     # in loops the same whole numbers come up again and again
        made = [number for number in suspect if self.probe.places[number].reads is None
                and not (once and len(self.values[number]) > 1)]
        for case, values, pool in self.failing:
            self.mistaken.run(self.exercise, case)
            mistaken = _Pool(self.mistaken, pool.near)
            made = [n for n in made if n not in values
                    or (_tell(values[n]) or not once) and mistaken.knows(values[n], "")]
        return made

    def _place(self, number, turn, certain):
        line = self.probe.places[number].line
        return Place(line, turn, linecache.getline(self.probe.file, line).partition("  #")[0].strip(), certain)

    def _known(self, number, runs):
        """Are all values that an expression has in these runs the solution's as well?"""
        name = self.probe.places[number].name
        return all(pool.knows(values[number], name) for _, values, pool in runs if number in values)

    def _blamed(self, number):
        """Is a value suspect, but not so in the cases that pass? Many ways lead to a whole number."""
        values, name = self.values[number], self.probe.places[number].name
        tensor = hasattr(values[0].kept, "shape") and len(values[0].numbers) > 1
        made = (tensor or name in self.failing[0][2].named) and self.probe.places[number].reads is None
        elsewhere = [one for _, others, _ in self.passing for one in others.get(number, ())]
        overflows = elsewhere and numpy.isfinite(_all(elsewhere)).all() and not numpy.isfinite(_all(values)).all()
        return made and _tell(values) and (overflows or self._known(number, self.passing))

    def _first_cause(self, numbers, shifted=False):
        """(the expression that is evaluated first, of those that are a cause; from which turn on), or None."""
        places, found = self.probe.places, None
        for number in sorted(numbers, key=lambda number: not places[number].whole):
            earlier = found is None or numbers.index(number) < numbers.index(found[0])
            if earlier and (turn := self._cause(number, shifted)):
                found = number, turn
        if found and (name := places[found[0]].reads):         # what the name holds was made elsewhere
            made = [number for number in self.values if places[number].name == name]
            found = next(((number, turn) for number in made if (turn := self._cause(number, shifted))), found)
        return found

    def _cause(self, number, shifted):
        """The turn from which on other values of an expression make the failing cases right, else 0."""
        (case, values, pool), *others = self.failing
        mine = values[number]
        options = _shifted(mine) if shifted else _instead(mine, pool, self.probe.places[number].name, self.cut)
        for given, sources in options:
            different = [n for n, (x, y) in enumerate(zip(mine, given, strict=False)) if not _same(x, y, pool.near)]
            result = len(given) == 1 and any(_same(given[0], one, NEAR) for one in self.results)
            if not different and len(given) <= len(mine) or result or time.thread_time() > self.deadline:
                continue                               # the result itself makes all right, wherever it stands
            if self._mends(case, number, given) and all(self._mends_as_well(number, sources, *run) for run in others):
                return 1 + min(different, default=len(mine))
        return 0

    def _mends_as_well(self, number, sources, case, values, pool):
        mine = values.get(number, [])
        known = ([pool.values[one] for one in sources[:CASES] if one in pool.values] if sources else
                 [one for one, _ in (*_shifted(mine), *_switched(mine))])
        return any(self._mends(case, number, given) for given in known)

    def _mends(self, case, number, given):
        judged = self.probe.run(self.exercise, case, number, given)
        return judged.passed if self.structure else judged.problem is None and not judged.wrong


# ---- what could stand in the place of an expression

def _instead(mine, pool, named, cut):
    """(Values, the solution's expressions that have them) to try instead of an expression's own. cut: it raised an
    exception before its last turn."""
    shape = mine[0].shape
    for given, sources in pool.distinct.values():
        if len(given) == len(mine) or len(given) > len(mine) and (shape == (True,) or cut):
            other = named or shape not in pool.single          # its shape may be what is wrong
            if given[0].shape == shape or other and type(given[0].kept) is type(mine[0].kept):
                yield given, sources
    yield from _switched(mine)


def _switched(mine):
    """A condition the other way round in one turn."""
    for turn, one in enumerate(mine[:8]):
        if type(one.kept) is bool:
            yield [*mine[:turn], one._replace(kept=not one.kept, numbers=1 - one.numbers), *mine[turn + 1:]], ()


def _shifted(mine):
    """A whole number one larger or smaller."""
    for by in (1, -1):
        if all(type(one.kept) is int for one in mine):
            yield [one._replace(kept=one.kept + by, numbers=one.numbers + by) for one in mine], ()


# ---- the values of the solution

class _Pool:
    """The values of the solution in one run. distinct: {their bytes: (Values, all expressions that have them)}."""

    def __init__(self, solution, near):
        self.values, self.near, self.distinct, self.named = solution.values, near, {}, {}
        self.sequences, self.single = {}, {}
        for number, values in solution.values.items():
            key = tuple((one.shape, one.numbers.tobytes()) for one in values)
            self.distinct.setdefault(key, (values, []))[1].append(number)
            if name := solution.places[number].name:
                self.named.setdefault(name, []).append(values)
        for values, _ in self.distinct.values():
            self.sequences.setdefault(_shapes(values), []).append(_all(values))
            for one in values:
                self.single.setdefault(one.shape, []).append(one.numbers)

    def knows(self, values, name):
        """Has one of the solution's expressions these values, or, where they tell, do they all come up? A name that
        the solution has too holds what it holds there: Q Kᵀ is not yet S."""
        named = [known for known in self.named.get(name, ()) if known[0].shape == values[0].shape]
        if any(len(known) == len(values) for known in named):
            return any(_shapes(known) == _shapes(values) and _is_among(_all(values), _all(known)[None], self.near)
                       for known in named)
        known = self.sequences.get(_shapes(values))
        if known and (len(values) > 1 or _is_among(_all(values), numpy.stack(known), self.near)):
            return _is_among(_all(values), numpy.stack(known), self.near)
        return _tell(values) and hasattr(values[0].kept, "shape") and all(
            one.shape in self.single and _is_among(one.numbers, numpy.stack(self.single[one.shape]), self.near)
            for one in values)


def _shapes(values):
    return tuple(one.shape[1:] if isinstance(one.shape[0], bool) else one.shape for one in values)


def _all(values):
    return numpy.concatenate([one.numbers for one in values])


def _tell(values):
    """Would another calculation hardly give these numbers? 0, 1 and infinities come up everywhere."""
    x = _all(values)
    plain = x[numpy.isfinite(x)]
    return bool(((plain != 0) & (abs(plain) != 1)).any() or numpy.isnan(x).any()) or len(numpy.unique(plain)) > 2


def _same(a, b, near):
    return a.numbers.shape == b.numbers.shape and _is_among(a.numbers, b.numbers[None], near)


def _is_among(x, known, near):
    """Does one row of the known have the same numbers, infinities and NaN included, but for rounding?"""
    both = numpy.isfinite(x) & numpy.isfinite(known)
    largest = abs(numpy.where(both, known, 0)).max(1, keepdims=True)
    with numpy.errstate(invalid="ignore"):
        close = abs(x - known) <= near * largest
    alike = (x == known) | (numpy.isnan(x) & numpy.isnan(known))
    return bool(numpy.where(both, close, alike).all(1).any())
