"""From a learner's wrong answers to the mistakes that give the same ones: one known mistake, or two made together."""

import time
from dataclasses import dataclass, field
from itertools import combinations

from flashlab_course.check import explain, judge
from flashlab_course.check.runner import FINAL, Outcome, Problem

LOOKS = {"PyTorch": 200, "Triton": 60}         # cases tried for two mistakes at once: 0.5 s, 2 s in Triton
SECONDS = 10.0                         # and where a pair runs for ever, no longer than this, of this thread


@dataclass
class Diagnosis:
    """The mistakes that explain the answers: none, one, or two. partly: they explain the smallest failing case only."""

    mistakes: tuple = ()
    partly: bool = False
    said: list = field(default_factory=list)           # sentences, where no known mistake gives these answers

    @property
    def name(self):
        return " + ".join(m.name for m in self.mistakes) or None


def judge_all(exercise, fn, *, own_file=None):
    """Every case, from the smallest; a timeout ends the round, and so does a stub."""
    for case in exercise.cases:                                # before the answer can change a setting
        judge.expect(exercise, case)
    return _to_the_end(judge_one(exercise, case, fn, own_file=own_file) for case in exercise.cases)


def _to_the_end(all_judged):
    judged = []
    for one in all_judged:
        judged.append(one)
        if one.problem is not None and one.problem.kind in FINAL:
            break
    return judged


def judge_one(exercise, case, fn, *, own_file=None):
    """One case; in float32 where the answer cannot take its float64, or computes in float32 whatever comes: both are
    right."""
    judged = judge.judge(exercise, case, fn, own_file=own_file)
    if case.narrow is not None and (judged.problem is not None or judged.wrong and _in_32_bits(judged)):
        return judge.judge(exercise, case.narrow, fn, own_file=own_file)
    return judged


def _in_32_bits(judged):
    values = [judged.outcome.values[n] for n, *_ in judged.wrong]
    return all((value.float() == value).all() for value in values)


def name_mistake(exercise, judged):
    """The Diagnosis: one known mistake that gives the same answers, two together, or part of it."""
    failing = [k for k in judged if not k.passed]
    if failing[0].problem is not None and failing[0].problem.kind in FINAL:
        return Diagnosis()
    order = failing + [k for k in judged if k.passed]          # a failing case tells mistakes apart soonest
    for mistake in (form for m in exercise.mistakes for form in m.forms):
        if all(judge.agree(exercise, outcome(exercise, (mistake,), k.case), k) for k in order):
            return Diagnosis((mistake,))
    if _tell(failing) and (pair := _pair(exercise, order)):    # the same exception, or NaN, has many causes
        return Diagnosis(pair)
    partly = _name_partly(exercise, failing, judged)
    return partly if partly.mistakes else Diagnosis(said=explain.explain(exercise, judged))


# ---- two mistakes

def _pair(exercise, order):
    """Two mistakes that, made together, give all answers, of which neither fails a case that the learner passes."""
    looks, deadline = LOOKS["Triton" if exercise.triton else "PyTorch"], time.thread_time() + SECONDS
    single = [m for m in exercise.mistakes if not m.same_as and _fails_nowhere_else(exercise, m, order)]
    giving = {m for m in single if _gives_a_part(exercise, m, order[0])}
    for pair in sorted(combinations(single, 2), key=lambda pair: -len(giving & set(pair))):
        if looks <= 0 or time.thread_time() > deadline:
            break
        for k in order:
            looks -= 1
            if not judge.agree(exercise, outcome(exercise, pair, k.case), k):
                break
        else:
            return pair
    return ()


def _fails_nowhere_else(exercise, mistake, order):
    return all(outcome(exercise, (mistake,), k.case).passed for k in order if k.passed)


def _gives_a_part(exercise, mistake, first):
    """Does it give one of the wrong results of the smallest failing case as the learner has it?"""
    alone = outcome(exercise, (mistake,), first.case)
    if first.problem is not None or alone.problem is not None:
        return False
    truth = judge.expect(exercise, first.case).truth
    return len(alone.outcome.values) == len(truth) and any(
        judge.close(alone.outcome.values[n], first.outcome.values[n], truth[n], bound) for n, _, bound in first.wrong)


# ---- part of it

def _name_partly(exercise, failing, judged):
    """One mistake alone gives the smallest failing case, and fails nowhere the learner is right."""
    first = failing[0]
    if first.problem is not None or exercise.ints_only:        # whole numbers agree by chance
        return Diagnosis()
    matches = [m for m in exercise.mistakes
               if judge.agree_in_values(exercise, outcome(exercise, (m,), first.case), first)
               and outcome(exercise, (m,), first.case).wrong]
    right = [k.case for k in judged if k.passed]
    matches = [m for m in matches if all(outcome(exercise, (m,), case).passed for case in right)]
    if len(matches) > 1:                                       # the same numbers: the number of programs may tell
        matches = [m for m in matches if judge.agree(exercise, outcome(exercise, (m,), first.case), first)]
    if len(matches) == 1 and _tell([first]):
        return Diagnosis((matches[0],), partly=True)
    return Diagnosis()


def _tell(judged):
    """Is there more than one wrong number other than 0 and NaN? Different mistakes often share those two."""
    values = [k.outcome.values[n] for k in judged if k.problem is None for n, *_ in k.wrong]
    return sum(int((v.isfinite() & (v != 0)).sum()) if hasattr(v, "isfinite") else 1 for v in values) > 1


def outcome(exercise, mistakes, case, cache={}):    # noqa: B006    one cache for the process
    """What the solution with these mistakes does on a case. Two that cannot be made together explain nothing."""
    key = (exercise.name, mistakes, case.name)
    if key not in cache:
        cache[key] = _run(exercise, mistakes, case)
    return cache[key]


def _run(exercise, mistakes, case):
    try:
        fn = exercise.wrong(*mistakes)
    except Exception:                              # the first edit changed the text that the second looks for
        if len(mistakes) == 1:
            raise
        return judge.Judged(case, Outcome(), Problem("impossible", ""))
    return judge.judge(exercise, case, fn)
