"""From a learner's wrong answers to the mistakes that give the same ones: one known mistake, or two made together."""

import time
from dataclasses import dataclass
from itertools import combinations, permutations

from flashlab_course.check import judge, where
from flashlab_course.check.form import Mistake
from flashlab_course.check.runner import FINAL, Outcome, Problem

LOOKS = {"PyTorch": 200, "Triton": 60}         # cases tried for two mistakes at once: 0.5 s, 2 s in Triton
SECONDS = 10.0                         # and where a pair runs for ever, no longer than this, of this thread
EXCHANGED = "results_exchanged"        # the results are right, but in another order, which every exercise knows


@dataclass
class Diagnosis:
    """The mistakes that explain the answers: none, one, or two. partly: they explain the smallest failing case only."""

    mistakes: tuple = ()
    partly: bool = False

    @property
    def name(self):
        return " + ".join(m.name for m in self.mistakes) or None


def judge_all(exercise, fn, *, own_file=None):
    """Every case, from the smallest; a timeout ends the round, and so does a stub."""
    for case in exercise.cases:                                # before the answer can change a setting
        judge.expect(exercise, case)
    judged = []
    for case in exercise.cases:
        judged.append(judge_one(exercise, case, fn, own_file=own_file))
        if judged[-1].problem is not None and judged[-1].problem.kind in FINAL:
            break
    return judged


def judge_one(exercise, case, fn, *, own_file=None):
    """One case; in float32 where the answer cannot take its float64, or computes in float32 anyway."""
    judged = judge.judge(exercise, case, fn, own_file=own_file)
    values = [judged.outcome.values[n] for n, *_ in judged.wrong]
    if case.narrow is None or judged.passed or any((value.float() != value).any() for value in values):
        return judged
    return judge.judge(exercise, case.narrow, fn, own_file=own_file)


def name_mistake(exercise, judged):
    """The Diagnosis: one known mistake that gives the same answers, two together, or part of it."""
    failing = [k for k in judged if not k.passed]
    if failing[0].problem is not None and failing[0].problem.kind in FINAL:
        return Diagnosis()
    order = failing + [k for k in judged if k.passed]          # a failing case tells mistakes apart soonest
    for mistake in (form for m in exercise.mistakes for form in m.forms):
        if _all_alike(exercise, (mistake,), order):
            return Diagnosis((mistake,))
    if names := _exchanged(exercise, failing[0]):
        said = f"{where.listing(names)} changed places in what was returned"
        return Diagnosis((Mistake(EXCHANGED, said, "the order of what is returned"),))
    possible = [m for m in exercise.mistakes if all(outcome(exercise, (m,), k.case).passed for k in order if k.passed)]
    if _tell(failing) and (pair := _pair(exercise, possible, order)):      # the same exception, or NaN, has many causes
        return Diagnosis(pair)
    first = failing[0]
    if first.problem is None and not exercise.ints_only and _tell([first]):      # whole numbers agree by chance
        partly = [m for m in possible if (one := outcome(exercise, (m,), first.case)).wrong
                  and judge.agree_in_values(exercise, one, first)]
        if len(partly) > 1:                                    # the same numbers: the number of programs may tell
            partly = [m for m in partly if judge.agree(exercise, outcome(exercise, (m,), first.case), first)]
        if len(partly) == 1:
            return Diagnosis(tuple(partly), partly=True)
    return Diagnosis()


def _exchanged(exercise, first):
    """The wrong results of a case if they are right in another order, else []."""
    wrong, expected = [n for n, *_ in first.wrong], judge.expect(exercise, first.case)
    for order in permutations(wrong) if len(wrong) > 1 else ():
        pairs = [(first.outcome.values[n], expected.truth[m], expected.bounds[m])
                 for n, m in zip(wrong, order, strict=True)]
        if all(getattr(x, "shape", ()) == getattr(y, "shape", ()) and judge.error_of(x, y) <= bound
               for x, y, bound in pairs):
            return [f"`{exercise.outputs[n].name}`" for n in wrong]
    return []


def _all_alike(exercise, mistakes, order):
    return all(judge.agree(exercise, outcome(exercise, mistakes, k.case), k) for k in order)


def _pair(exercise, possible, order):
    """Two mistakes that, made together, give all answers; those first that give a part of the first case's alone."""
    looks, deadline = LOOKS["Triton" if exercise.triton else "PyTorch"], time.thread_time() + SECONDS
    giving = {m for m in possible if _gives_a_part(exercise, m, order[0])}
    for pair in sorted(combinations(possible, 2), key=lambda pair: -len(giving & set(pair)))[:looks]:
        if time.thread_time() > deadline:
            break
        if _all_alike(exercise, pair, order):
            return pair
    return ()


def _gives_a_part(exercise, mistake, first):
    """Does it give one of the wrong results of the smallest failing case as the learner has it?"""
    alone, truth = outcome(exercise, (mistake,), first.case), judge.expect(exercise, first.case).truth
    return first.problem is None and alone.problem is None and any(
        judge.close(alone.outcome.values[n], first.outcome.values[n], truth[n], bound) for n, _, bound in first.wrong)


def _tell(judged):
    """Is there more than one wrong number other than 0 and NaN? Different mistakes often share those two."""
    values = [k.outcome.values[n] for k in judged if k.problem is None for n, *_ in k.wrong]
    return sum(int((v.isfinite() & (v != 0)).sum()) if hasattr(v, "isfinite") else 1 for v in values) > 1


def outcome(exercise, mistakes, case, cache={}):    # noqa: B006    one cache for the process
    """What the solution with these mistakes does on a case. Two that cannot be made together explain nothing."""
    key = (exercise.name, mistakes, case.name)
    if key not in cache:
        try:
            cache[key] = judge.judge(exercise, case, exercise.wrong(*mistakes))
        except Exception:                              # the first edit changed the text that the second looks for
            if len(mistakes) == 1:
                raise
            cache[key] = judge.Judged(case, Outcome(), Problem("impossible", ""))
    return cache[key]
