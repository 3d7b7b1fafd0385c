"""Holding an outcome against the truth: which output is wrong, where it first goes wrong, and what shape the error has."""

import math
from dataclasses import dataclass, field

import torch

from flashlab.check.runner import Outcome, Problem, run

SANE = 0.02                    # the solution's own rounding, at most, relative to the result: 16-bit results come close
CLOSER = 100                   # two wrong answers are the same if they are this much closer to each other than to the truth


@dataclass
class Expected:
    """What a case should give: the solution's own outcome, and the truth in float64."""

    outcome: Outcome
    truth: tuple
    bounds: tuple


@dataclass
class Judged:
    """One case of the learner's."""

    case: object
    outcome: Outcome
    problem: Problem | None = None         # no result that could be compared
    wrong: list = field(default_factory=list)    # (output's number, error, bound)
    structure: list = field(default_factory=list)    # sentences: traffic, stray stores, missed stores

    @property
    def passed(self):
        return self.problem is None and not self.wrong and not self.structure


def expect(exercise, case, cache={}):    # noqa: B006    one cache for the process: the solution does not change
    """The Expected of a case, computed once."""
    key = (exercise.name, case.name)
    if key not in cache:
        cache[key] = expected_of(exercise, case.make(), case.loose)
    return cache[key]


def expected_of(exercise, inputs, loose=0.0):
    outcome = run(exercise, exercise.solution(), inputs, limit=60)
    if outcome.problem is not None:
        raise RuntimeError(f"the solution of {exercise.name} fails: {outcome.problem.text} {outcome.problem.lines}")
    if exercise.truth is not None:
        truth = exercise.truth(**inputs)
    elif exercise.ints_only:
        truth = outcome.values
    else:
        wide = run(exercise, exercise.solution(), _in_float64(inputs), limit=60)
        truth = wide.values
    truth = truth if isinstance(truth, tuple) else (truth,)
    if not all(_error(mine, true) <= SANE * _size(true) for mine, true in zip(outcome.values, truth, strict=True)):
        raise RuntimeError(f"the solution of {exercise.name} is not what its truth says")
    bounds = tuple(_bound(exercise, mine, true, loose) for mine, true in zip(outcome.values, truth, strict=True))
    return Expected(outcome, truth, bounds)


def _in_float64(value):
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (tuple, list)):
        return type(value)(_in_float64(part) for part in value)
    return {k: _in_float64(v) for k, v in value.items()} if isinstance(value, dict) else value


def _bound(exercise, mine, true, loose):
    """How far off a correct answer may be: a few times the solution's own rounding, and a few units in the last place."""
    if exercise.ints_only or not isinstance(true, (torch.Tensor, float)):
        return 0.0
    if isinstance(true, float):
        return 1e-6 * max(1.0, abs(true))
    eps = torch.finfo(mine.dtype).eps if mine.dtype.is_floating_point else 0.0
    finite = true[true.isfinite()].abs()
    largest = finite.max().item() if finite.numel() else 0.0
    units = 4 if eps > 1e-5 else 16            # 16-bit results were rounded once, and that is in the solution's own error
    return exercise.slack * distance(mine, true) + (units * eps + loose) * max(largest, 1e-3)


def _size(true):
    """The largest finite entry of a result; at least a thousandth, so that zeros may be off by a rounding."""
    finite = torch.as_tensor(true).double().abs()
    finite = finite[finite.isfinite()]
    return max(finite.max().item() if finite.numel() else 0.0, 1e-3)


def distance(x, truth):
    """max |x − truth|; equal infinities are 0 apart, a NaN on one side only is NaN."""
    x, truth = torch.as_tensor(x).double(), torch.as_tensor(truth).double()
    if not x.numel():
        return 0.0
    same = (x == truth) | (x.isnan() & truth.isnan())
    return (x - truth).abs().masked_fill(same, 0).max().item()


# ---- one case

def judge(exercise, case, fn, *, own_file=None, inputs=None, expected=None, limit=None):
    """Run fn on the case and say what is wrong with what it did."""
    expected = expected or expect(exercise, case)
    outcome = run(exercise, fn, case.make() if inputs is None else inputs, own_file=own_file, limit=limit)
    judged = Judged(case, outcome, outcome.problem)
    if judged.problem is None:
        judged.problem = _contract(exercise, outcome, expected.outcome) or _view(exercise, outcome)
    if judged.problem is None:
        judged.wrong = [(n, error, bound) for n, (value, truth, bound) in
                        enumerate(zip(outcome.values, expected.truth, expected.bounds, strict=True))
                        if not (error := _error(value, truth)) <= bound]
    if judged.problem is None or judged.problem.kind in ("changed_inputs",):
        judged.structure = structure(exercise, outcome, expected.outcome)
    return judged


def _error(value, truth):
    if isinstance(truth, (torch.Tensor, float)):
        return distance(value, truth)
    return 0.0 if value == truth else math.inf


def _contract(exercise, outcome, right):
    """Number, type, shape and dtype of the results, as the solution has them."""
    names = [output.name for output in exercise.outputs]
    listing = f"({', '.join(names)})" if len(names) > 1 else names[0]
    container = outcome.facts.get("container")
    if container == "NoneType":
        return Problem("wrong_type", f"it returned nothing (None); {listing} was expected. Is there a `return`?")
    if (len(names) > 1) != (container in ("tuple", "list") or len(outcome.values) > 1) or len(outcome.values) != len(names):
        got = f"a {container} of {len(outcome.values)}" if container in ("tuple", "list") else f"one {container}"
        return Problem("wrong_type", f"it returned {got}; {listing} was expected")
    for name, value, mine in zip(names, outcome.values, right.values, strict=True):
        if problem := _contract_of_one(exercise, name, value, mine):
            return problem
    return None


def _view(exercise, outcome):
    for n, source in outcome.facts.get("aliases", {}).items():
        name = exercise.outputs[n].name
        return Problem("view_of_input", f"{name} shares its memory with the input {source}: whoever changes one changes the other. "
                                        "Return a tensor of its own (`.clone()`)")
    return None


def _contract_of_one(exercise, name, value, mine):
    if not isinstance(mine, torch.Tensor):
        if isinstance(mine, (int, float)) and not isinstance(mine, bool):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                return Problem("wrong_type", f"{name} is {_describe(value)}; a Python number was expected")
            if exercise.ints_only and not isinstance(value, int):
                return Problem("wrong_type", f"{name} is the float {value!r}; a whole number (int) was expected: "
                                             "`//` divides whole numbers, `/` makes floats")
        elif type(value) is not type(mine):
            return Problem("wrong_type", f"{name} is {_describe(value)}; a {type(mine).__name__} was expected")
        return None
    if not isinstance(value, torch.Tensor):
        return Problem("wrong_type", f"{name} is {_describe(value)}; a torch.Tensor was expected")
    if value.layout != mine.layout or value.device != mine.device:
        return Problem("wrong_type", f"{name} is a {str(value.layout).removeprefix('torch.')} tensor on the device {value.device}; "
                                     f"an ordinary one on {mine.device} was expected")
    if value.shape != mine.shape:
        return Problem("wrong_shape", f"{name} has shape {tuple(value.shape)}; {tuple(mine.shape)} was expected")
    if value.dtype != mine.dtype:
        return Problem("wrong_dtype", f"{name} has dtype {_short(value.dtype)}; {_short(mine.dtype)} was expected")
    return None


def _short(dtype):
    return str(dtype).removeprefix("torch.")


def _describe(value):
    text = repr(value)
    return f"{text if len(text) < 40 else text[:37] + '...'} ({type(value).__name__})"


# ---- structure: what was moved, where it was stored

def structure(exercise, outcome, right):
    said = []
    for kind, name, where, program in outcome.facts.get("stray", ()):
        said.append(_stray(kind, name, where, program))
    for name, (missing, total, first) in outcome.facts.get("missed", {}).items():
        said.append(f"{missing} of the {total} elements of {name} were never stored, the first {first}")
    if (programs := outcome.facts.get("programs", 0)) > right.facts.get("programs", 0):
        said.append(f"{programs} programs were launched, {right.facts['programs']} are enough")
    if exercise.sram_bytes is not None:
        said += _traffic(outcome.facts, right.facts)
    return said + outcome.facts.get("forbidden", [])


def _stray(kind, name, where, program):
    verb = "loaded from" if kind == "load" else "stored to"
    by = f"program {program} " if program else "a program "
    place = f"{where} of {name}" if name and where.endswith("start") else f"{name} {where}" if name else where
    place = place.replace("its start of", "the start of")
    return f"{by}{verb} {place}: outside the tensor"


def _traffic(facts, right):
    said = []
    for name in sorted(set(right["moved"]) | set(facts["moved"])):
        (read, written), (read_0, written_0) = facts["moved"].get(name, (0, 0)), right["moved"].get(name, (0, 0))
        for verb, got, wanted in (("read", read, read_0), ("written", written, written_0)):
            if got > wanted:
                times = f", {got / wanted:.3g} times as often" if wanted else ""
                said.append(f"{got} bytes of {name} were {verb}, {wanted} are needed{times}")
            elif got < wanted:
                said.append(f"only {got} bytes of {name} were {verb}, {wanted} have to be")
    if facts["eager"] > right["eager"]:
        said.append(f"operations outside the kernel moved {facts['eager']} bytes through HBM; {right['eager']} are needed")
    return said


# ---- the same answer?

def agree(exercise, a, b):
    """Did two Judged do the same on this case: same problem, or same wrong values, NaN for NaN, and the same traffic?"""
    if a.passed or b.passed or (a.problem is None) != (b.problem is None):
        return a.passed and b.passed
    if a.problem is not None:
        return (a.problem.kind, a.problem.error) == (b.problem.kind, b.problem.error) and _gist(a.problem) == _gist(b.problem)
    return agree_in_values(exercise, a, b) and agree_in_structure(a, b)


def _gist(problem):
    """The message without its numbers and quotes: another shape, the same mistake."""
    return "".join(c for c in problem.text if c.isalpha())[:60] if problem.kind != "timeout" else ""


def agree_in_structure(a, b):
    counted = ("moved", "eager", "forbidden", "programs", "overwritten")
    if any(a.outcome.facts.get(key) != b.outcome.facts.get(key) for key in counted):
        return False
    kinds = [{event[:2] for event in x.outcome.facts.get("stray", ())} for x in (a, b)]
    return kinds[0] == kinds[1] and set(a.outcome.facts.get("missed", ())) == set(b.outcome.facts.get("missed", ()))


def agree_in_values(exercise, a, b):
    expected = expect(exercise, a.case)
    return len(a.outcome.values) == len(b.outcome.values) and all(
        _close(*four) for four in zip(a.outcome.values, b.outcome.values, expected.truth, expected.bounds, strict=True))


def _close(x, y, truth, bound):
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


# ---- where

def first_wrong(exercise, judged, expected):
    """(sentence) where the first wrong output first goes wrong, counted in blocks too."""
    n, _, bound = judged.wrong[0]
    output, value, truth = exercise.outputs[n], judged.outcome.values[n], expected.truth[n]
    if not isinstance(truth, torch.Tensor):
        return f"{output.name} is {value!r} instead of {truth!r}"
    x, y = value.double(), truth.double()
    same = (x == y) | (x.isnan() & y.isnan())
    bad = ~(((x - y).abs() <= bound) | same)
    index = tuple(bad.nonzero()[0].tolist())
    place = f"{output.name}[{', '.join(map(str, index))}]" if index else output.name
    blocks = "".join(_block(axis, i, judged.case.sizes) for axis, i in zip(output.axes, index, strict=False))
    return f"{place} is {_numbers(x[index], y[index])}{blocks}"


def _block(axis, i, sizes):
    letter, size = {"query": ("query block i", "B_r"), "key": ("key block j", "B_c")}.get(axis, (None, None))
    if size not in sizes:
        return ""
    return f" ({letter} = {i // sizes[size]}, its row {i % sizes[size]})"


def _numbers(x, y):
    """Both with as many digits as tell them apart."""
    x, y = float(x), float(y)
    digits = next((n for n in (4, 6, 8) if f"{x:.{n}g}" != f"{y:.{n}g}"), 12)
    return f"{'NaN' if math.isnan(x) else f'{x:.{digits}g}'} instead of {y:.{digits}g}"


# ---- what the error looks like

def observe(exercise, judged, expected, failing=()):
    """Sentences on the shape of the error, for mistakes that have no name. Each is checked on the numbers before it is said."""
    n, _, bound = judged.wrong[0]
    output, value, truth = exercise.outputs[n], judged.outcome.values[n], expected.truth[n]
    if exercise.terms is not None:
        return _off_by(exercise, n, failing)
    if not isinstance(truth, torch.Tensor) or not truth.numel():
        return []
    x, y, name = value.double(), truth.double(), output.name
    if (x.isnan() & ~y.isnan()).any():
        return [_nan(name, output, x, y)]
    if (x.isinf() & ~y.isinf()).any():
        return [f"{name} holds infinities: an exponential overflowed, or something was divided by 0"]
    if (x == 0).all():
        return [f"{name} is 0 everywhere"]
    error, largest = distance(x, y), y[y.isfinite()].abs().max().item()
    if error < 1e-3 * largest:
        return [f"all of {name} is nearly right: the largest error is {error:.1e}, and rounding alone explains {bound:.1e}. "
                "Where are digits lost?"]
    others = [(k.outcome.values[n], expect(exercise, k.case).truth[n], k.case.sizes) for k in failing if k.problem is None]
    return _pattern(name, x, y, bound, [(_factor(a.double(), b.double()), sizes) for a, b, sizes in others])


def _off_by(exercise, n, failing):
    """The one term, times a small number, that a formula is off by in every case where this output is wrong."""
    wrong = [k for k in failing if k.problem is None and any(n == m for m, *_ in k.wrong)]
    pairs = [(k.outcome.values[n] - expect(exercise, k.case).truth[n], exercise.terms(**k.case.make())) for k in wrong]
    for name in pairs[0][1]:
        factor = pairs[0][0] / pairs[0][1][name]
        if factor == int(factor) and abs(factor) <= 6 and all(diff == factor * terms[name] for diff, terms in pairs):
            times = "" if abs(factor) == 1 else f"{abs(int(factor))} times "
            direction = "large" if factor > 0 else "small"
            return [f"{exercise.outputs[n].name} is too {direction} by {times}{name}, in every case that fails"]
    return []


def _nan(name, output, x, y):
    bad = x.isnan() & ~y.isnan()
    if bad.all():
        return f"every entry of {name} is NaN (or was never written)"
    rows = bad.reshape(bad.shape[0], -1).all(1).nonzero().flatten().tolist() if bad.ndim else []
    axis = output.axes[0] if output.axes else "row"
    if rows and bad.sum() == len(rows) * (bad.numel() // len(bad)):
        return f"NaN, or never written, in {name} for {_plural(axis) if len(rows) > 1 else axis} {_span(rows)}, and only there"
    return f"{int(bad.sum())} of the {bad.numel()} entries of {name} are NaN (or were never written)"


def _plural(axis):
    return "queries" if axis == "query" else f"{axis}s"


def _span(rows):
    whole = rows == list(range(rows[0], rows[-1] + 1))
    return f"{rows[0]}" if len(rows) == 1 else f"{rows[0]} to {rows[-1]}" if whole else ", ".join(map(str, rows[:6]))


def _factor(x, y):
    """The number that y is multiplied by in x, if it is one."""
    ok = x.isfinite() & y.isfinite()
    return ((x[ok] * y[ok]).sum() / (y[ok] * y[ok]).sum().clamp_min(1e-30)).item()


def _pattern(name, x, y, bound, factors):
    ok = y.isfinite() & x.isfinite()
    if not ok.any() or y[ok].abs().max() < 1e-6:
        return []
    tolerance = bound + 1e-4 * y[ok].abs().max().item()
    if y.ndim == 2 and y.shape[0] == y.shape[1] and len(y) > 1 and (x - y.T)[ok].abs().max() <= tolerance:
        return [f"{name} is the transpose of the right answer"]
    factor = _factor(x, y)
    if abs(factor) > 1e-3 and abs(factor - 1) > 1e-3 and ok.sum() > 2 and (x[ok] - factor * y[ok]).abs().max() <= tolerance:
        return [f"every entry of {name} is {factor:.4g} times what it should be{_constant(factors)}"]
    shift = (x[ok] - y[ok]).mean().item()
    if abs(shift) > 1e-3 and ok.sum() > 2 and (x[ok] - y[ok] - shift).abs().max() <= tolerance:
        return [f"every entry of {name} is {shift:+.4g} off, the same everywhere"]
    if y.ndim == 2 and y.shape[1] > 2:
        row = (x * y).nan_to_num(0).sum(1) / (y * y).nan_to_num(1).sum(1).clamp_min(1e-30)
        if (x - row[:, None] * y).nan_to_num(0).abs().max() <= tolerance:
            return [f"each row of {name} is right up to a factor of its own: the weights do not sum to 1 "
                    f"(the factor of row {(row - 1).abs().argmax().item()} is {row[(row - 1).abs().argmax()].item():.4g})"]
    wrong = ((x - y).abs() > tolerance) & ok
    if y.ndim == 2 and not wrong.all(1).any() and wrong.any(1).sum() < len(y):
        return [f"{int(wrong.any(1).sum())} of the {len(y)} rows of {name} are wrong"]
    return []


def _constant(factors):
    """What the factor is, where it is one of the usual suspects in every case."""
    known = {"ln 2": lambda d: math.log(2), "1/ln 2": lambda d: 1 / math.log(2), "√d": lambda d: d**0.5, "1/√d": lambda d: d**-0.5,
             "d": lambda d: d, "1/d": lambda d: 1 / d}
    for text, value in known.items():
        if factors and all(abs(factor / value(sizes.get("d", 1)) - 1) < 2e-3 for factor, sizes in factors):
            return f", which is {text}"
    return ""
