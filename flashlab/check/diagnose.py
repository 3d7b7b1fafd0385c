"""From a learner's wrong answers to sentences: which known mistake gives the same ones, and what is special where it fails."""

from dataclasses import dataclass
from itertools import combinations

from flashlab.check import judge
from flashlab.check.cases import WEAK, in_order
from flashlab.check.runner import Outcome, Problem

PAIRS_AT_MOST = 90             # two mistakes at once are looked for among this many pairs


@dataclass
class Diagnosis:
    """The mistakes that explain the answers: none, one, or two made together. `partly`: only the smallest failing case."""

    mistakes: tuple = ()
    partly: bool = False

    @property
    def name(self):
        return " + ".join(m.name for m in self.mistakes) or None


def judge_all(exercise, fn, *, own_file=None):
    """Every case, from the smallest; a timeout ends the round, and so does a stub."""
    judged = []
    for case in exercise.cases:
        judged.append(judge.judge(exercise, case, fn, own_file=own_file))
        if judged[-1].problem is not None and judged[-1].problem.kind in ("timeout", "not_implemented", "signature"):
            break
    return judged


def name_mistake(exercise, judged):
    """Compare with every known mistake, then with every two of them, on all cases; then on the smallest failing one."""
    failing = [k for k in judged if not k.passed]
    if failing[0].problem is not None and failing[0].problem.kind in ("timeout", "not_implemented", "signature"):
        return Diagnosis()
    order = failing + [k for k in judged if k.passed]          # a failing case tells mistakes apart soonest
    for mistake in (form for m in exercise.mistakes for form in m.forms):
        if _explains(exercise, (mistake,), order):
            return Diagnosis((mistake,))
    if not exercise.triton:                                    # interpreted kernels are too slow for that
        for pair in list(combinations(exercise.mistakes, 2))[:PAIRS_AT_MOST]:
            if _explains(exercise, pair, order):
                return Diagnosis(pair)
    return _name_partly(exercise, failing, judged)


def _explains(exercise, mistakes, order):
    return all(judge.agree(exercise, _outcome(exercise, mistakes, k.case), k) for k in order)


def _name_partly(exercise, failing, judged):
    """One mistake alone gives the smallest failing case, and fails nowhere the learner is right."""
    first = failing[0]
    if first.problem is not None or exercise.ints_only:        # whole numbers agree by chance
        return Diagnosis()
    matches = [m for m in exercise.mistakes if judge.agree_in_values(exercise, _outcome(exercise, (m,), first.case), first)
               and _outcome(exercise, (m,), first.case).wrong]
    right = [k.case for k in judged if k.passed]
    matches = [m for m in matches if all(_outcome(exercise, (m,), case).passed for case in right)]
    if len(matches) == 1 and bool(_telling(first)):
        return Diagnosis((matches[0],), partly=True)
    return Diagnosis()


def _telling(judged):
    """Values that two different mistakes hardly share: neither NaN nor 0 all over."""
    value = judged.outcome.values[judged.wrong[0][0]] if judged.wrong else None
    return not hasattr(value, "isfinite") or (value.isfinite() & (value != 0)).sum() > 1


def _outcome(exercise, mistakes, case, cache={}):    # noqa: B006    one cache for the process
    """What the solution with these mistakes does on a case. Two mistakes that cannot be made together never explain anything."""
    key = (exercise.name, mistakes, case.name)
    if key not in cache:
        try:
            fn = exercise.wrong(*mistakes)
        except (ValueError, SyntaxError):
            if len(mistakes) == 1:
                raise
            fn = None                                          # the first swap took the text of the second away, or apart
        impossible = judge.Judged(case, Outcome(), Problem("impossible", ""))
        cache[key] = impossible if fn is None else judge.judge(exercise, case, fn)
    return cache[key]


# ---- what is special about the failing cases

def special(judged):
    """A sentence that is true of these cases: what the failing ones have in common and the passing ones lack."""
    failing = [k.case for k in judged if not k.passed]
    passing = [k.case for k in judged if k.passed]
    everywhere = frozenset.intersection(*(k.case.features for k in judged))
    smallest = f"the smallest case that fails is “{failing[0]}”"
    if not passing:
        return f"Wrong in every case, from the smallest on: “{failing[0]}”."
    words = in_order(set().union(*(case.features for case in failing)) - everywhere)
    for feature in words:
        if all(feature in c.features for c in failing) and not any(feature in c.features for c in passing):
            return f"Wrong in each case with {feature}, right in every other; {smallest}."
    shared = [f for f in words if f not in WEAK and all(f in c.features for c in failing)]
    shared = {f: sum(f in k.case.features for k in judged) for f in shared}
    if shared and len(failing) > min(shared.values()) / 2:
        feature = min(shared, key=shared.get)
        return f"Wrong only with {feature}, in {len(failing)} of {shared[feature]} such cases; {smallest}."
    for pair in combinations(words, 2):
        if all(set(pair) <= c.features for c in failing) and not any(set(pair) <= c.features for c in passing):
            return f"Wrong only with {pair[0]} and {pair[1]} together; {smallest}."
    alone = [f for f in in_order(failing[0].features) if f not in WEAK and not any(f in c.features for c in passing)]
    if alone:
        return f"Wrong in {len(failing)} of {len(judged)} cases; {smallest}, and no case with {alone[0]} is right."
    return f"Wrong in {len(failing)} of {len(judged)} cases; {smallest}."


# ---- from which key block on

def from_key_block(exercise, judged, fn):
    """Run the learner's function on the first key block alone, on the first two, ...: where does it go wrong?"""
    inputs, sizes = judged.case.make(), judged.case.sizes
    if not {"N_k", "B_c"} <= set(sizes) or not {"K", "V"} <= set(inputs) or inputs["K"].ndim != 2 or inputs.get("causal"):
        return ""
    blocks = -(-sizes["N_k"] // sizes["B_c"])
    if blocks == 1:
        return ""
    for count in range(1, blocks):
        part = dict(inputs, K=inputs["K"][: count * sizes["B_c"]], V=inputs["V"][: count * sizes["B_c"]])
        wrong = _wrong_on(exercise, judged, fn, part)
        if wrong is None:
            return ""
        if wrong:
            return "" if count == 1 else _until(count - 1)
    return _until(blocks - 1)


def _until(j):
    seen = "key block j = 0" if j == 1 else f"key blocks j = 0 to {j - 1}"
    return f"Right while it sees only {seen}, wrong once j = {j} comes in."


def _wrong_on(exercise, judged, fn, inputs):
    """Is fn wrong on these inputs? None where the exercise is not defined for them."""
    try:
        copies = {k: v.clone() if hasattr(v, "clone") else v for k, v in inputs.items()}
        expected = judge.expected_of(exercise, copies, judged.case.loose)
    except Exception:                                          # N_q = N_k may be part of the exercise, for instance
        return None
    again = judge.judge(exercise, judged.case, fn, inputs=inputs, expected=expected)
    return bool(again.problem or again.wrong)
