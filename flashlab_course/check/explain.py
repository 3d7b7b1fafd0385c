"""What a wrong answer without a known name is: an exchange of results, attention done in another way, the right formula with
other inputs, a pattern in the numbers. Each is verified on every case that fails before it is said.
"""

import time
from dataclasses import dataclass, field
from itertools import permutations

import torch

from flashlab_course.check import altered, judge, patterns, where
from flashlab_course.check.patterns import Seen

ENOUGH = 3                     # so many numbers have to agree before it is no chance
SECONDS = 0.5                  # for the right formula with other inputs: truths of some exercises are slow


@dataclass
class Explanation:
    """What was found: sentences; and where they name a mistake, its name and what to look at."""

    said: list = field(default_factory=list)
    names: list = field(default_factory=list)
    looks: list = field(default_factory=list)


def explain(exercise, judged):
    """The Explanation of wrong numbers in these cases. Empty where nothing can be said with certainty."""
    failing = [k for k in judged if k.problem is None and k.wrong]
    if not failing:
        return Explanation()
    passing = [k for k in judged if k.passed]
    if exercise.ints_only:
        return _of_numbers(exercise, failing, passing)
    found = Explanation()
    if text := _exchanged(exercise, failing):
        return Explanation([text], ["results_exchanged"], ["the order in `return`"])
    evidence = {n: _seen(exercise, failing, n) for n in sorted({n for k in failing for n, *_ in k.wrong})}
    evidence = {n: cases for n, cases in evidence.items() if cases}
    left = dict(evidence)
    for search in (_alternative, _altered, _altered):          # the second time for what the first has left
        for what, look, name, outputs in search(exercise, left, failing, passing):
            found.said.append(what)
            found.looks += [look] if look else []
            found.names += [name] if name else []
            left = {n: cases for n, cases in left.items() if n not in outputs}
            break
    if left:                                                   # what explains a part of it is no name for all of it
        found.names = []
    for n, cases in left.items():
        always = all(k.problem is not None or any(n == m for m, *_ in k.wrong) for k in judged)
        found.said += patterns.say(exercise.outputs[n], cases, failing[0].case.name, always)
    return found


def _seen(exercise, failing, n):
    """Output n in all the cases where it is wrong."""
    found = []
    for k in failing:
        bound = next((bound for m, _, bound in k.wrong if m == n), None)
        truth = judge.expect(exercise, k.case).truth[n]
        if bound is not None and isinstance(truth, torch.Tensor) and truth.numel():
            value = k.outcome.values[n]
            inputs = k.case.make()
            found.append(Seen(value.double(), truth.double(),
                bound, inputs, k.case.sizes, value.dtype, k.case.name,
                              _known(exercise, k, n, inputs)))
    return found


def _known(exercise, k, n, inputs):
    """{name: tensor} of the inputs and of the other right results, in float64."""
    truth = judge.expect(exercise, k.case).truth
    results = enumerate(zip(exercise.outputs, truth, strict=True))
    found = {o.name: T for m, (o, T) in results if m != n and isinstance(T, torch.Tensor)}
    for name, value in inputs.items():
        if name in exercise.parts:
            found |= dict(zip(exercise.parts[name], value, strict=True))
        elif isinstance(value, torch.Tensor) and name not in exercise.writes:
            found[name] = value
    return {name: T.double() for name, T in found.items()}


# ---- results in another order

def _exchanged(exercise, failing):
    """Do the results hold each other's truths, in every failing case?"""
    count = len(exercise.outputs)
    for order in permutations(range(count)) if 1 < count <= 4 else ():
        moved = [n for n in range(count) if order[n] != n]
        if moved and all(_in_order(exercise, k, order) for k in failing):
            if len(moved) == 2:
                return f"{where.listing([exercise.outputs[n].name for n in moved])} changed places"
            return f"the results came back in another order: ({', '.join(exercise.outputs[order[n]].name for n in range(count))})"
    return ""


def _in_order(exercise, k, order):
    expected = judge.expect(exercise, k.case)
    for n, m in enumerate(order):
        value, truth = k.outcome.values[n], expected.truth[m]
        if type(value) is not type(k.outcome.values[m]):
            return False
        if not isinstance(value, torch.Tensor):
            if value != truth:
                return False
        elif value.shape != truth.shape or not Seen(value.double(), truth.double(),
            expected.bounds[m], {}, {}, None).near(truth.double()):
            return False
    return True


def exchanged_shapes(exercise, k):
    """The same where the shapes differ, so that the results could not be compared one by one."""
    expected, values = judge.expect(exercise, k.case), k.outcome.values
    if len(values) != len(exercise.outputs) or len(values) > 4:
        return ""
    return _exchanged(exercise, [k]) if all(isinstance(v, type(t))
        for v, t in zip(values, expected.outcome.values, strict=True)) else ""


# ---- attention in another way

def _alternative(exercise, evidence, failing, passing):
    """(what, look, name, outputs explained) of the entries in the exercise's table that give these numbers, the best first."""
    if exercise.alternatives is None or not evidence:
        return []
    problems = {k.case.name: exercise.alternatives(k.case.make()) for k in failing}
    found = []
    for entry in problems[failing[0].case.name].table():
        outputs = _explained(exercise, evidence, failing, lambda k, e=entry: e.make(problems[k.case.name]))
        if outputs:
            found.append((entry, outputs))
    whole = [pair for pair in found if len(pair[1]) == len(evidence)]
    best = [max(found, key=lambda pair: len(pair[1]))] if found and not whole else whole[:1]
    return [(_of(exercise, evidence, outputs) + entry.what, entry.look, entry.name, outputs) for entry, outputs in best]


def _of(exercise, evidence, outputs):
    """"O: " where only some of the wrong outputs are explained."""
    return "" if len(outputs) == len(evidence) else f"{where.listing([exercise.outputs[n].name for n in sorted(outputs)])}: "


def _explained(exercise, evidence, failing, make):
    """The outputs that make(judged) gives as the learner has them, in each case where they are wrong."""
    left = set(evidence)
    for k in failing:
        here = [n for n, *_ in k.wrong if n in left]
        found = make(k) if here else None
        found = found if isinstance(found, dict) else {}
        for n in here:
            other = found.get(exercise.outputs[n].name)
            seen = _one(exercise, k, n)
            if seen is None or other is None or not seen.near(other):
                left.discard(n)
        if not left:
            return set()
    return left


def _one(exercise, k, n):
    [*found] = _seen(exercise, [k], n)
    return found[0] if found else None


# ---- the right formula with other inputs

def _altered(exercise, evidence, failing, passing):
    if not evidence:
        return []
    deadline = time.thread_time() + SECONDS
    first = max(failing, key=lambda k: _telling(exercise, k))
    if _telling(exercise, first) < ENOUGH:
        return []
    found = []
    for text, inputs in altered.alterations(first.case.make(), exercise.writes):
        if time.thread_time() > deadline:
            break
        truth = altered.truth_of(exercise, inputs)
        outputs = _outputs_like(exercise, evidence, first, truth)
        if outputs:
            found.append((text, outputs))
    checked = []
    for text, outputs in found:
        for k in failing:
            if k is not first and outputs:
                inputs = dict(altered.alterations(k.case.make(), exercise.writes)).get(text)
                wrong_here = {n for n, *_ in k.wrong}
                truth = altered.truth_of(exercise, inputs) if inputs else None
                outputs = {n for n in outputs if n not in wrong_here or n in _outputs_like(exercise, {n: 0}, k, truth)}
        if outputs and _right_where_right(exercise, text, outputs, passing):
            checked.append((text, outputs))
    if not checked:
        return []
    text, outputs = max(checked, key=lambda pair: len(pair[1]))
    names = where.listing([exercise.outputs[n].name for n in sorted(outputs)])
    are = "are" if len(outputs) > 1 else "is"
    return [(f"{names} {are} what the right formula gives for {text}", "", None, outputs)]


def _right_where_right(exercise, text, outputs, passing):
    """Do the altered inputs give the right results where the learner has them? Else they do not tell what was done."""
    for k in passing:
        inputs = dict(altered.alterations(k.case.make(), exercise.writes)).get(text)
        truth = altered.truth_of(exercise, inputs) if inputs else None
        right = judge.expect(exercise, k.case)
        for n in outputs if truth is not None else ():
            if getattr(truth[n], "shape", ()) != getattr(right.truth[n], "shape", ()):
                return False
            if not judge.error_of(truth[n], right.truth[n]) <= 2 * right.bounds[n]:
                return False
    return True


def _telling(exercise, k):
    """How many different numbers there are that hardly come out by chance: neither 0 nor NaN."""
    values = [k.outcome.values[n].flatten() for n, *_ in k.wrong if isinstance(k.outcome.values[n], torch.Tensor)]
    return sum(len(v[v.isfinite() & (v != 0)].unique()) for v in values)


def _outputs_like(exercise, wanted, k, truth):
    if truth is None or len(truth) != len(exercise.outputs):
        return set()
    found = set()
    for n in wanted:
        seen = _one(exercise, k, n)
        if seen is not None and isinstance(truth[n], torch.Tensor) and seen.near(truth[n].double()):
            found.add(n)
    return found


# ---- whole numbers


def _of_numbers(exercise, failing, passing):
    if text := _exchanged(exercise, failing):
        return Explanation([text], ["results_exchanged"], ["the order in `return`"])
    outputs = sorted({n for k in failing for n, *_ in k.wrong})
    wrong = {n: [k for k in failing if any(n == m for m, *_ in k.wrong)] for n in outputs}
    terms = {n: text for n in outputs if exercise.terms is not None and (text := _off_by(exercise, n, wrong[n]))}
    if len(terms) < len(outputs) and (text := _for_other_inputs(exercise, outputs, failing, passing)):
        return Explanation([text])
    found = [terms.get(n) or _simple(exercise, n, wrong[n]) for n in outputs]
    return Explanation([text for text in found if text])


def _off_by(exercise, n, wrong):
    """The one term, times a small number, that a formula is off by in every case where this output is wrong. "" where there are
    several such terms, or too few cases to tell."""
    name = exercise.outputs[n].name
    pairs = [(k.outcome.values[n] - judge.expect(exercise, k.case).truth[n], exercise.terms(**k.case.make())) for k in wrong]
    if len(pairs) < 2:
        return ""
    found = []
    for term in pairs[0][1]:
        factor = pairs[0][0] / pairs[0][1][term]
        if factor == int(factor) and abs(factor) <= 6 and all(diff == factor * terms[term] for diff, terms in pairs):
            times = "" if abs(factor) == 1 else f"{abs(int(factor))} times "
            direction = "large" if factor > 0 else "small"
            found.append(f"{name} is too {direction} by {times}{term}, wherever it is wrong")
    for more, less in () if found else permutations(pairs[0][1], 2):
        if all(diff == terms[more] - terms[less] for diff, terms in pairs):
            found.append(f"{name} has {more} where {less} belongs: that is the difference, wherever it is wrong")
    return found[0] if len(found) == 1 else ""


def _weight(values):
    """How much these values of an output tell, in different numbers: True or False comes out by chance far more easily than one."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    others = [value for value in values if not isinstance(value, torch.Tensor)]
    of_tensors = sum(value.numel() / (4 if value.dtype == torch.bool else 1) for value in tensors)
    return of_tensors + (len(others) / 4 if all(isinstance(value, bool) for value in others) else len(set(map(repr, others))))


def _for_other_inputs(exercise, outputs, failing, passing):
    """What all the outputs that are wrong would be right for: one of them alone may come out like that by chance."""
    deadline = time.thread_time() + SECONDS
    if any(_weight([k.outcome.values[n] for k in failing]) < ENOUGH for n in outputs):
        return ""
    texts = None
    for k in failing:
        here = set()
        for text, inputs in altered.alterations(k.case.make()):
            if (texts is None or text in texts) and time.thread_time() < deadline:
                truth = altered.truth_of(exercise, inputs)
                if truth is not None and all(_equal(truth[n], k.outcome.values[n]) for n in outputs):
                    here.add(text)
        texts = here if texts is None else texts & here
        if not texts:
            return ""
    for text, _ in altered.alterations(failing[0].case.make()):
        if text in texts and _right_where_right(exercise, text, outputs, passing):
            names = where.listing([exercise.outputs[n].name for n in outputs])
            return f"{names} {'are' if len(outputs) > 1 else 'is'} what the right formula gives for {text}"
    return ""


def _equal(a, b):
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape == b.shape and torch.equal(a, b)
    return type(a) is type(b) and a == b


def _simple(exercise, n, wrong):
    """One more, one less, twice, half: in every case where it is wrong."""
    name = exercise.outputs[n].name
    pairs = [(k.outcome.values[n], judge.expect(exercise, k.case).truth[n]) for k in wrong]
    if any(isinstance(x, int) and abs(x) >= 2**62 for x, _ in pairs):         # no tensor holds that
        return ""
    pairs = [(torch.as_tensor(x), torch.as_tensor(y)) for x, y in pairs if not isinstance(y, tuple)]
    if not pairs or any(x.shape != y.shape for x, y in pairs) or any(x.dtype == torch.bool for x, _ in pairs):
        if pairs and all(x.shape == y.shape and torch.equal(~x, y) for x, y in pairs if x.dtype == torch.bool == y.dtype):
            return f"{name} is the opposite of what it should be, wherever it is wrong"
        return ""
    for text, change in (("one too large", lambda y: y + 1), ("one too small", lambda y: y - 1), ("twice what it should be",
        lambda y: 2 * y),
                         ("4 times what it should be", lambda y: 4 * y), ("the negative of what it should be", lambda y: -y)):
        if len(pairs) > 1 and all(torch.equal(x, change(y)) for x, y in pairs):
            return f"{name} is {text} wherever it is wrong, in {len(pairs)} cases"
    if all((x >= y).all() for x, y in pairs) or all((x <= y).all() for x, y in pairs):
        size = "large" if (pairs[0][0] >= pairs[0][1]).all() else "small"
        return f"{name} is too {size} wherever it is wrong, in {len(pairs)} case{'s' if len(pairs) > 1 else ''}"
    return ""
