"""What wrong numbers look like: NaN, zeros, one factor, one part, or a formula that lacks a term.

Each sentence holds in every case where the output is wrong.
"""

import math
from itertools import permutations

import torch

from flashlab_course.check import judge, where

ENOUGH = 3                     # so many numbers have to fit a factor before it is no chance


def explain(exercise, judged):
    """Sentences on the wrong outputs of these cases."""
    failing = [k for k in judged if k.problem is None and k.wrong]
    said = []
    for n in sorted({n for k in failing for n, *_ in k.wrong}):
        wrong = [k for k in failing if any(n == m for m, *_ in k.wrong)]
        if exercise.ints_only:
            said.append(_off_by(exercise, n, wrong))
        elif all(isinstance(judge.expect(exercise, k.case).truth[n], torch.Tensor) for k in wrong):
            said.append(_of_tensors(exercise, n, wrong))
    return [text for text in said if text]


def exchanged(exercise, judged):
    """"`l` and `m` changed places", where the smallest failing case has wrong results that are right in another order;
    else ""."""
    first = next(k for k in judged if not k.passed)
    wrong = [n for n, *_ in first.wrong]
    expected = judge.expect(exercise, first.case)
    for order in permutations(wrong) if len(wrong) > 1 else ():
        if all(_right(first.outcome.values[n], expected, m) for n, m in zip(wrong, order, strict=True)):
            names = [f"`{exercise.outputs[n].name}`" for n in wrong]
            return f"{where.listing(names)} changed places in what was returned"
    return ""


def _right(value, expected, n):
    truth, bound = expected.truth[n], expected.bounds[n]
    return getattr(value, "shape", ()) == getattr(truth, "shape", ()) and judge.error_of(value, truth) <= bound


def _off_by(exercise, n, wrong):
    """The term, times a small number, that a formula is off by in every case."""
    name = exercise.outputs[n].name
    if exercise.terms is None or len(wrong) < 2:
        return ""
    pairs = [(k.outcome.values[n] - judge.expect(exercise, k.case).truth[n], exercise.terms(**k.case.make()))
             for k in wrong]
    for term in pairs[0][1]:
        factor = pairs[0][0] / pairs[0][1][term]
        if factor == int(factor) and abs(factor) <= 6 and all(diff == factor * terms[term] for diff, terms in pairs):
            times = "" if abs(factor) == 1 else f"{abs(int(factor))} times "
            return f"`{name}` is too {'large' if factor > 0 else 'small'} by {times}{term} wherever it is wrong"
    return ""


def _of_tensors(exercise, n, wrong):
    output, first = exercise.outputs[n], wrong[0]
    triples = [(k.outcome.values[n].double(), judge.expect(exercise, k.case).truth[n].double(),
                next(bound for m, _, bound in k.wrong if m == n)) for k in wrong]
    x, y, bound = triples[0]
    if not first.outcome.values[n].is_floating_point() or not y.numel():
        return ""
    if (odd := ~x.isfinite() & y.isfinite()).any():
        return f"{output.name} {_not_finite(exercise, output, x, odd, first.case.sizes)}"
    if all((x == 0).all() for x, *_ in triples):
        return f"{output.name} is 0 everywhere"
    entries = where.wrong_entries(x, y, bound)
    return _factor(output.name, wrong, triples) or where.region(output.name, output.axes, entries, first.case.sizes)


def _not_finite(exercise, output, x, odd, sizes):
    """A NaN may be what lay there only where the learner fills what was given."""
    unwritten = " or was never written" if exercise.triton or exercise.sram_bytes else ""
    if (x[odd] == -math.inf).all():
        what = "−inf"
    else:
        what = f"NaN{unwritten}" if x[odd].isnan().any() else "infinite"
    place = "every entry" if odd.all() else where.part(output.axes or ("row",), odd, sizes)
    return f"is {what} in {place}"


def _factor(name, wrong, triples):
    """"every entry of O is 0.5 times what it should be", where it is so in every case."""
    factors = []
    for x, y, bound in triples:
        ok = x.isfinite() & y.isfinite()
        x, y = x[ok], y[ok]
        factor = ((x * y).sum() / (y * y).sum().clamp_min(1e-30)).item()
        largest = y.abs().max().item() if y.numel() else 0.0
        near = bound * max(1, abs(factor)) + 1e-4 * abs(factor) * largest
        if largest < 1e-6 or abs(factor) < 1e-6 or not ((x - factor * y).abs() <= near).all():
            return ""
        factors.append(factor)
    if sum(y.numel() for _, y, _ in triples) < ENOUGH or abs(factors[0] - 1) < 1e-3:
        return ""
    said = f"every entry of {name} is {factors[0]:.4g} times what it should be"
    known = [_constants(k.case.make() | k.case.sizes) for k in wrong]
    for text in known[0]:
        if all(abs(factor / of.get(text, math.nan) - 1) < 2e-3 for factor, of in zip(factors, known, strict=True)):
            return said if f"{factors[0]:.4g}" == text else f"{said}, which is {text}"
    return said if max(factors) - min(factors) <= 1e-3 * abs(factors[0]) else ""


def _constants(inputs):
    """{name: value} of the numbers that a factor may be made of."""
    found = {"2": 2.0, "−1": -1.0, "ln 2": math.log(2), "1/ln 2": 1 / math.log(2)}
    for name, value in inputs.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            found |= {name: value, f"1/{name}": 1 / value, f"√{name}": value**0.5, f"1/√{name}": value**-0.5}
            if value < 1:
                found |= {f"1 − {name}": 1 - value, f"1/(1 − {name})": 1 / (1 - value)}
    return found
