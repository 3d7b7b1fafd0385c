"""The learner's own exercise in the player, opened where it goes wrong."""

from functools import partial

import torch

from flashlab.memory import A100_SRAM
from flashlab_course.check import checker, loading, source
from flashlab_course.lesson.reference import Reveal, known_exercise, own_text
from flashlab_course.player import play, record, record_kernel

SHOWN = 6                      # the first cases of an exercise: later ones are large, or have large numbers


def replay(name, fn=None, case=None):
    """A player of an answer, line by line: of the file in exercises/, or of the function fn.

    case  the name of one of the exercise's cases; by default the smallest that fails, or the one with most to see
    If a number is wrong, the player marks the first such and opens at the line that goes wrong, with the checker's
    words, else where that number was stored; if a kernel reads or writes outside every tensor, it opens at the first
    line that does. For an exercise that is not written yet, or that Python cannot read, the result is a sentence in
    place of a player.
    Raises: ValueError for an exercise that is unknown or moves no tiles, and for sizes that the player cannot show
    """
    exercise = known_exercise(name)
    if not exercise.moves:
        raise ValueError(f"{name} moves no tiles between HBM and chip, so there is nothing to see of it")
    begun = fn or own_text(name)
    try:
        fn = fn or loading.function_from_file(exercise)[0]
    except loading.Unusable as problem:
        return Reveal(problem.message)
    if not begun or source.tasks_left(source.of(fn), name):
        return Reveal(f"Your own lines move here once {name} is written; it need not be right.")
    chosen, place, line, words = (_case(exercise, case), None, None, "") if case else _most_telling(exercise, fn)
    recording = _record(exercise, fn, chosen)
    recording.title = f"{name}: {chosen.name}"
    place = _in_run(place, recording)
    if place and exercise.show:
        start = _visit(exercise, fn, chosen, recording, place, line)
    else:
        start = next(iter(_turns(line, recording) or [n for n, step in enumerate(recording.steps) if step.note]), None)
    if words and start is not None:
        recording.steps[start].note = words            # what goes wrong here, and the number that comes of it
    return play(recording, at=place, start=start)


def _case(exercise, name):
    names = {one.name: one for one in exercise.cases}
    if name not in names:
        raise ValueError(f"case must be one of {', '.join(map(repr, names))}, got {name!r}")
    return names[name]


def _most_telling(exercise, fn):
    """(case, (output, index) of its first wrong number, line that goes wrong and which time, what the checker says):
    the smallest case that fails, else that with most features."""
    report = checker.answer(exercise, fn)
    if report.where:
        case, *place = report.where
        return exercise.case(case), place, report.line, report.message
    failed = (case for case, result in zip(exercise.cases, report.cases, strict=False) if result.passed is False)
    return next(failed, max(exercise.cases[:SHOWN], key=lambda case: len(case.features))), None, None, ""


def _turns(line, recording):
    """The steps of a line from the time on that it goes wrong: (line, how often it had run), or None."""
    number, turn = line or (0, 1)
    return [n for n, step in enumerate(recording.steps) if recording.lines[step.line].number == number][turn - 1:]


def _visit(exercise, fn, case, recording, place, line):
    """The step of the line, else of the last one, in the first visit to a number's block that goes wrong, or None.

    There the answer returns something else than the solution does. The exercise's own loops store it.
    """
    right, solution = [], exercise.solution()

    def both(*given):
        truth, found = solution(*given), fn(*given)
        right.append(all(torch.allclose(*pair, 1e-3, 1e-5, equal_nan=True) for pair in zip(found, truth, strict=True)))
        return found

    exercise.show(both, **case.make())
    steps = recording.steps
    ends = [n for n, step in enumerate(steps) if any(move.kind == "store" for move in step.moves)]
    wrong = (n for n, ok in zip(ends, right, strict=False) if not ok and place[1][0] in range(*steps[n].tile[0]))
    if (end := next(wrong, None)) is not None:
        return max((n for n in _turns(line and (line[0], 1), recording) if n <= end), default=end)


def _in_run(place, recording):
    """(name, index) of a wrong number in a tensor of the run, or None. Where the run has no O_i, O stands for it."""
    name, index = place or ("", ())
    for known in (name, name.removesuffix("_i")):
        if index and known in recording.tensors:
            return known, index


def _record(exercise, fn, case):
    inputs = case.make()
    call = partial(exercise.show, fn, **inputs) if exercise.show else partial(exercise.invoke, fn, inputs)
    if exercise.triton:
        return record_kernel(call)
    return record(call, follow=fn, sram_bytes=exercise.sram_bytes(**inputs) if exercise.sram_bytes else A100_SRAM)
