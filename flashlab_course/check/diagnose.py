"""From a learner's wrong answers to the mistakes that give the same ones: one known mistake, or two made together."""

import time
from dataclasses import dataclass, field
from itertools import combinations

from flashlab_course.check import explain, judge, where
from flashlab_course.check.runner import FINAL, Outcome, Problem

# cases tried for two mistakes at once: 0.5 s, 2 s in Triton
LOOKS = {"whole numbers": 400, "PyTorch": 150, "Triton": 80}
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
    judged = []
    for case in exercise.cases:
        judged.append(judge_one(exercise, case, fn, own_file=own_file))
        if judged[-1].problem is not None and judged[-1].problem.kind in FINAL:
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
    for same in (judge.agree, _agree_where_finite):
        for mistake in (form for m in exercise.mistakes for form in m.forms):
            if _explains(exercise, (mistake,), order, same) and (same is judge.agree or _tell(failing)):
                return Diagnosis((mistake,))
    if _tell(failing):                                         # the same exception, or NaN, has many causes
        pair = _in_different_cases(exercise, failing, judged) or _pair(exercise, order, failing[0])
        if pair:
            return Diagnosis(pair)
    partly = _name_partly(exercise, failing, judged)
    return partly if partly.mistakes else Diagnosis(said=explain.explain(exercise, judged))


def _explains(exercise, mistakes, order, same=judge.agree):
    return all(same(exercise, outcome(exercise, mistakes, k.case), k) for k in order)


def _agree_where_finite(exercise, a, b):
    """The same numbers wherever the known mistake gives numbers, whatever was moved for them.

    The learner's program may have another shape, or keep NaN out of a row without keys.
    """
    if a.problem is not None or b.problem is not None:
        return judge.agree(exercise, a, b)
    if not (a.wrong or b.passed) or len(a.outcome.values) != len(b.outcome.values):
        return False
    expected = judge.expect(exercise, b.case)
    return all(map(_same_where_finite, a.outcome.values, b.outcome.values, expected.truth, expected.bounds))


def _same_where_finite(x, y, truth, bound):
    if not hasattr(x, "isfinite") or x.shape != y.shape:
        return not hasattr(x, "isfinite") and type(x) is type(y) and x == y
    finite = x.isfinite() | ~truth.isfinite()
    wrong = where.wrong_entries(y, truth, bound)
    rest = wrong[~finite]
    if wrong[finite].any():                                    # NaN for NaN is fine beside numbers that tell
        rest = rest & y[~finite].isfinite()
    return not rest.any() and judge.close(x[finite], y[finite], truth[finite], bound)


# ---- two mistakes

class Search:
    """How long two mistakes are looked for: by the cases looked at, so that a report does not depend on the machine."""

    def __init__(self, exercise):
        self.exercise = exercise
        self.looks = LOOKS["Triton" if exercise.triton else "whole numbers" if exercise.ints_only else "PyTorch"]
        self.deadline = time.thread_time() + SECONDS

    @property
    def over(self):
        return self.looks <= 0 or time.thread_time() > self.deadline

    def agree(self, mistakes, k):
        self.looks -= 1
        return judge.agree(self.exercise, outcome(self.exercise, mistakes, k.case), k)


def _in_different_cases(exercise, failing, judged):
    """Two mistakes that share the failing cases: each gives the answers of some, and passes where the learner does."""
    right = [k for k in judged if k.passed]
    search = Search(exercise)
    gives = {}
    for mistake in exercise.mistakes:
        if search.over:
            break
        cells = frozenset(k.case.name for k in failing if search.agree((mistake,), k))
        if cells:
            gives[mistake] = cells
    everything = frozenset(k.case.name for k in failing)
    for a, b in combinations(gives, 2):
        if gives[a] | gives[b] == everything and _harmless(exercise, a, b, gives, failing, right):
            return a, b
    return ()


def _harmless(exercise, a, b, gives, failing, right):
    """Does each of the two pass where the learner does, and in the failing cases that the other explains alone?"""
    for mistake, other in ((a, b), (b, a)):
        elsewhere = [k for k in failing if k.case.name not in gives[mistake]]
        if not all(outcome(exercise, (mistake,), k.case).passed for k in [*right, *elsewhere]):
            return False
        if not _tell([k for k in failing if k.case.name in gives[mistake] - gives[other]]):
            return False
    return True


def _pair(exercise, order, first):
    """Two mistakes that give all answers when made together: the first such pair that the search comes to, or ()."""
    search = Search(exercise)
    for pair in likely_pairs(exercise, first):
        if search.over:
            break
        if all(search.agree(pair, k) for k in order) and all(_fails_with(exercise, m, order) for m in pair):
            return pair
    return ()


def _fails_with(exercise, mistake, order):
    """False if the mistake alone fails a case that the learner passes."""
    return all(outcome(exercise, (mistake,), k.case).passed for k in order if k.passed)


def likely_pairs(exercise, first):
    """Pairs of mistakes that can give the smallest failing case, the most likely first.

    Each gives one of its wrong results; or one gives all of them and the other shows later; or both fail there.
    """
    alone = {m: outcome(exercise, (m,), first.case) for m in exercise.mistakes if not m.same_as}
    gives = [m for m in alone if judge.agree(exercise, alone[m], first)]
    shows = [m for m in alone if not alone[m].passed and m not in gives and alone[m].problem is None]
    shows.sort(key=lambda m: abs(len(alone[m].wrong) - len(first.wrong)))
    yield from _one_result_each(exercise, alone, first)
    for a in gives:
        for b in alone:
            if b is not a and alone[b].passed:
                yield _in_written_order(exercise, a, b)
    likely = gives or _gives_a_result(exercise, alone, first)
    others = [form for m in alone for form in m.forms[1:]]
    for a in likely:                                           # b may pass this case by itself, or give other numbers
        for b in (*alone, *others):
            if b.name != a.name:
                yield _in_written_order(exercise, a, b)
    for a, b in combinations(shows, 2):
        yield _in_written_order(exercise, a, b)


def _gives_a_result(exercise, alone, first):
    """The mistakes that give one of several wrong results as the learner has it."""
    if first.problem is not None or len(first.wrong) < 2:
        return []
    truth = judge.expect(exercise, first.case).truth
    return [m for m, k in alone.items() if k.problem is None and len(k.outcome.values) == len(truth) and
            any(judge.close(k.outcome.values[n], first.outcome.values[n], truth[n], bound)
                for n, _, bound in first.wrong)]


def _one_result_each(exercise, alone, first):
    """Pairs of which one gives the first wrong result as the learner has it, and the other the second."""
    if first.problem is not None or len(first.wrong) < 2:
        return
    truth = judge.expect(exercise, first.case).truth

    def giving(n, bound):
        return [m for m, k in alone.items() if k.problem is None and len(k.outcome.values) > n and
                judge.close(k.outcome.values[n], first.outcome.values[n], truth[n], bound)]

    (n, _, bound_n), (m, _, bound_m) = first.wrong[:2]
    for a in giving(n, bound_n):
        for b in giving(m, bound_m):
            if a is not b:
                yield _in_written_order(exercise, a, b)


def _in_written_order(exercise, a, b):
    names = [m.name for m in exercise.mistakes]
    return (a, b) if names.index(a.name) < names.index(b.name) else (b, a)


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
