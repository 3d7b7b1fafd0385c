"""Holding an outcome against the truth: which output is wrong, by how much, and whether two answers are wrong alike."""

import math
import re
import reprlib
from collections import namedtuple
from dataclasses import dataclass, field

import torch

from flashlab_course.check import structure
from flashlab_course.check.cases import doubled
from flashlab_course.check.form import whole
from flashlab_course.check.runner import Outcome, Problem, run

# a result that is 0 throughout is a difference of terms of about 1: it may be off by their rounding
TENTH = 0.1
SLACK = 4                      # a result may be off by this many times the solution's own rounding error
SANE = 0.02                    # the solution's own rounding, at most, relative to the result: 16-bit results come close
OF_MEMORY = ("SRAMOverflow", "MemoryModelError")
# two wrong answers are the same if they are this much closer to each other than to the truth
CLOSER = 100

# what a case should give: the solution's own outcome, the truth in float64, and how far off an answer may be
Expected = namedtuple("Expected", "outcome truth bounds")


@dataclass
class Judged:
    """One case of the learner's."""

    case: object
    outcome: Outcome
    problem: Problem | None = None                   # no result that could be compared
    wrong: list = field(default_factory=list)        # (output's number, error, bound)
    structure: list = field(default_factory=list)    # Problems that no number shows

    @property
    def passed(self):
        return self.problem is None and not self.wrong and not self.structure

    @property
    def only_structure(self):
        """Are the numbers right, and only the way to them is not?"""
        return self.problem is None and not self.wrong and bool(self.structure)


def expect(exercise, case, cache={}):    # noqa: B006    one cache for the process: the solution does not change
    """The Expected of a case, computed once."""
    key = (exercise.name, case.name)
    if key not in cache:
        cache[key] = _expected(exercise, case, case.make())
    return cache[key]


def _expected(exercise, case, inputs):
    outcome = run(exercise, exercise.solution(), inputs, limit=60)
    if outcome.problem is not None:
        raise RuntimeError(f"the solution of {exercise.name} fails: {outcome.problem.text} {outcome.problem.lines}")
    if exercise.truth is not None:
        truth = exercise.truth(**inputs)
    elif exercise.ints_only:
        truth = outcome.values
    else:
        truth = run(exercise, exercise.solution(), doubled(inputs), limit=60).values
    truth = truth if isinstance(truth, tuple) else (truth,)
    if not all(error_of(mine, true) <= SANE * max(largest(true), 1e-3)         # zeros may be off by a rounding
               for mine, true in zip(outcome.values, truth, strict=True)):
        raise RuntimeError(f"the solution of {exercise.name} is not what its truth says")
    bounds = tuple(_bound(exercise, case, mine, true) for mine, true in zip(outcome.values, truth, strict=True))
    return Expected(outcome, truth, bounds)


def _bound(exercise, case, mine, true):
    """How far off an answer may be: a few times the solution's own rounding, and a few units in the last place."""
    if exercise.ints_only or not isinstance(true, torch.Tensor):
        return 0.0
    eps = torch.finfo(mine.dtype).eps if mine.dtype.is_floating_point else 0.0
    # 16-bit results: their one rounding is in the solution's own error
    units = min(case.units, 4) if eps > 1e-5 else case.units
    return SLACK * distance(mine, true) + (units * eps + case.loose) * max(largest(true), TENTH)


def largest(true):
    """The largest finite entry of a result."""
    finite = torch.as_tensor(true).double().abs().nan_to_num(0, 0)
    return finite.max().item() if finite.numel() else 0.0


def distance(x, truth):
    """max |x − truth|; equal infinities are 0 apart, a NaN on one side only is NaN."""
    x, truth = torch.as_tensor(x).double(), torch.as_tensor(truth).double()
    if not x.numel():
        return 0.0
    same = (x == truth) | (x.isnan() & truth.isnan())
    return (x - truth).abs().masked_fill(same, 0).max().item()


# ---- one case

def judge(exercise, case, fn, *, own_file=None):
    """Run fn on the case and say what is wrong with what it did."""
    expected, outcome = expect(exercise, case), run(exercise, fn, case.make(), own_file=own_file)
    judged = Judged(case, outcome, outcome.problem)
    if judged.problem is None:
        mine = expected.outcome.values
        outcome.values = (*map(_plain, outcome.values, mine), *outcome.values[len(mine):])
        judged.problem = _contract(exercise, outcome, expected.outcome)
    if judged.problem is None:
        judged.wrong = [(n, error, bound) for n, (value, truth, bound) in
                        enumerate(zip(outcome.values, expected.truth, expected.bounds, strict=True))
                        if not (error := error_of(value, truth)) <= bound]
        judged.structure = structure.findings(exercise, outcome, expected.outcome, not judged.wrong)
    return judged


def error_of(value, truth):
    """How far off a result is, of whatever kind it is."""
    return distance(value, truth) if isinstance(truth, torch.Tensor) else 0.0 if value == truth else math.inf


def _contract(exercise, outcome, right):
    """The Problem with the number, type, shape or dtype of the results, which are to be the solution's; or None."""
    names = [output.name for output in exercise.outputs]
    listing = f"({', '.join(names)})" if len(names) > 1 else names[0]
    container = outcome.facts.get("container")
    if container == "NoneType":
        return Problem("wrong_type", f"it returned nothing (None); {listing} was expected. Is there a `return`?")
    several = container in ("tuple", "list")
    if len(outcome.values) != len(names) or several and len(names) == 1:
        got = f"a {container} of {len(outcome.values)}" if several else f"one {container}"
        return Problem("wrong_type", f"it returned {got}; {listing} was expected")
    found = (_contract_of_one(exercise, *three) for three in zip(names, outcome.values, right.values, strict=True))
    return next(filter(None, found), None)


def _plain(value, mine):
    """A tensor that is a number as the Python number that was expected; a list of such as a tuple."""
    if isinstance(mine, bool) and isinstance(value, torch.Tensor) and not value.ndim and value.dtype == torch.bool:
        return value.item()
    if isinstance(mine, int) and not isinstance(mine, bool) and (number := whole(value)) is not None:
        return number
    if isinstance(mine, tuple) and isinstance(value, (tuple, list)) and all(whole(part) is not None for part in value):
        return tuple(map(whole, value))
    return value


def _contract_of_one(exercise, name, value, mine):
    if isinstance(mine, torch.Tensor) and isinstance(value, torch.Tensor):
        for what, kind in (("layout", "wrong_type"), ("device", "wrong_type"), ("shape", "wrong_shape"),
                           ("dtype", "wrong_dtype")):
            got, asked = getattr(value, what), getattr(mine, what)
            if got != asked:
                got, asked = (tuple(one) if what == "shape" else str(one).removeprefix("torch.")
                              for one in (got, asked))
                return Problem(kind, f"{name} has {what} {got}; {asked} was expected")
        return None
    expected = {torch.Tensor: "a torch.Tensor", int: "a whole number (`//` divides whole numbers, `/` makes floats)"}
    kinds = (int, float) if type(mine) is int and not exercise.ints_only else type(mine)
    if isinstance(value, kinds) and isinstance(value, bool) == isinstance(mine, bool):
        return None
    return Problem("wrong_type", f"{name} is {reprlib.repr(value)} ({type(value).__name__}); "
                                 f"{expected.get(type(mine), f'a {type(mine).__name__}')} was expected")


# ---- the same answer?

def agree(exercise, a, b):
    """Did two Judged do the same on this case: same problem, or same wrong values and same traffic?"""
    if a.passed or b.passed or (a.problem is None) != (b.problem is None):
        return a.passed and b.passed
    if a.problem is None:
        return agree_in_values(exercise, a, b) and structure.agree(a, b)
    same = all(of(a.problem) == of(b.problem) for of in (lambda p: p.kind, lambda p: p.error, _gist))
    # of a wrong shape there is no truth
    return same and (a.problem.kind != "wrong_shape"
                     or all(close(x, y, x, 5e-4) for x, y in zip(a.outcome.values, b.outcome.values, strict=False)))


def _gist(problem):
    """The message without its numbers and the code it quotes: another shape, the same mistake."""
    plain = "".join(c for c in re.sub("`[^`]*`", "", problem.text) if c.isalpha())
    # the memory model's message goes on with the learner's own lines
    return "" if problem.kind == "timeout" else plain[: 40 if problem.error in OF_MEMORY else 90]


def agree_in_values(exercise, a, b):
    expected = expect(exercise, a.case)
    return len(a.outcome.values) == len(b.outcome.values) and all(
        close(*four) for four in zip(a.outcome.values, b.outcome.values, expected.truth, expected.bounds, strict=True))


def close(x, y, truth, bound):
    """The same wrong answer: closer to each other than to the truth by a factor of a hundred, or within rounding."""
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return type(x) is type(y) and x == y
    if x.shape != y.shape:
        return False
    x, y, truth = x.double(), y.double(), truth.double()
    odd = ~(x.isfinite() & y.isfinite())
    if not bool(((x == y) | (x.isnan() & y.isnan()))[odd].all()):
        return False
    x, y, truth = x[~odd], y[~odd], truth[~odd]
    if not x.numel():
        return True
    error = (y - truth).nan_to_num(0, 0, 0).abs().max()
    return bool(((x - y).abs() <= 2 * bound + error / CLOSER).all())
