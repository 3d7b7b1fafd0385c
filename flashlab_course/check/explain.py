"""What can be said of wrong numbers that no known mistake gives: sentences that hold in every case where they are
wrong."""

from itertools import permutations

import torch

from flashlab_course.check import judge, patterns

CHANGES = {
    "one too large": lambda y: y + 1,
    "one too small": lambda y: y - 1,
    "twice what it should be": lambda y: 2 * y,
    "4 times what it should be": lambda y: 4 * y,
    "the negative of what it should be": lambda y: -y,
}


def explain(exercise, judged):
    """Sentences on the wrong numbers of these cases; [] where nothing can be said with certainty."""
    failing = [k for k in judged if k.problem is None and k.wrong]
    said = []
    for n in sorted({n for k in failing for n, *_ in k.wrong}):
        wrong = [k for k in failing if _is_wrong(k, n)]
        if exercise.ints_only:
            said += [_off_by(exercise, n, wrong) or _simple(exercise, n, wrong)]
        elif cases := [seen for k in wrong if (seen := _seen(exercise, k, n)) is not None]:
            always = all(k.problem is not None or _is_wrong(k, n) for k in judged)
            said += patterns.say(exercise.outputs[n], cases, failing[0].case.name, always)
    return [text for text in said if text]


def _is_wrong(judged, n):
    return any(n == m for m, *_ in judged.wrong)


def _seen(exercise, k, n):
    """Output n of a case, beside the truth; None if it is no tensor, or an empty one."""
    truth = judge.expect(exercise, k.case).truth[n]
    if not isinstance(truth, torch.Tensor) or not truth.numel():
        return None
    bound = next(bound for m, _, bound in k.wrong if m == n)
    value = k.outcome.values[n]
    return patterns.Seen(value.double(), truth.double(), bound, k.case.make(), k.case.sizes, k.case.name)


# ---- whole numbers

def _off_by(exercise, n, wrong):
    """The one term, times a small number, that a formula is off by in every case where this output is wrong. "" where
    there are several such terms, or too few cases to tell."""
    name = exercise.outputs[n].name
    if exercise.terms is None or len(wrong) < 2:
        return ""
    pairs = [(k.outcome.values[n] - judge.expect(exercise, k.case).truth[n], exercise.terms(**k.case.make()))
             for k in wrong]
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


def _simple(exercise, n, wrong):
    """One more, one less, twice, too large: in every case where it is wrong."""
    name = exercise.outputs[n].name
    pairs = [(k.outcome.values[n], judge.expect(exercise, k.case).truth[n]) for k in wrong]
    if any(isinstance(x, int) and abs(x) >= 2**62 for x, _ in pairs):         # no tensor holds that
        return ""
    pairs = [(torch.as_tensor(x), torch.as_tensor(y)) for x, y in pairs if not isinstance(y, tuple)]
    if not pairs or any(x.shape != y.shape for x, y in pairs):
        return ""
    if any(x.dtype == torch.bool for x, _ in pairs):
        opposite = all(x.dtype == y.dtype and torch.equal(~x, y) for x, y in pairs)
        return f"{name} is the opposite of what it should be, wherever it is wrong" if opposite else ""
    for text, change in CHANGES.items():
        if len(pairs) > 1 and all(torch.equal(x, change(y)) for x, y in pairs):
            return f"{name} is {text} wherever it is wrong, in {len(pairs)} cases"
    for size, beyond in (("large", torch.ge), ("small", torch.le)):
        if all(beyond(x, y).all() for x, y in pairs):
            return f"{name} is too {size} wherever it is wrong, in {len(pairs)} case{'s' if len(pairs) > 1 else ''}"
    return ""
