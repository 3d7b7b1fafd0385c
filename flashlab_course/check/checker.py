"""check(): load, run every case, name the mistake, say it."""

import hashlib
import linecache
import pickle
import time
from itertools import zip_longest

from flashlab.torch_internals import filled_with_nan
from flashlab.triton_mode import import_triton, interpreted, why_no_kernels
from flashlab_course import command
from flashlab_course.check import diagnose, form, loading, overview, process, progress, runner, say, source, stubs
from flashlab_course.check.failing import step
from flashlab_course.check.loading import Unusable
from flashlab_course.check.report import CaseResult, Report

CELL = "your cell"


def check(name=None, fn=None, *, hint=False, debug=False):
    """Check an exercise: the file exercises/<name>.py, or the function given. The start of a name will do; without one,
    your progress is shown.

    hint=True adds one more hint at each call. Your code runs in a process of its own, and cannot harm this one.
    debug=True then runs the smallest case that fails once more, in this process and under Python's debugger.
    The Report shows itself as a panel in a notebook; `report.passed` is the answer.
    """
    if process.inside:
        return Unusable("nested", "`check` was called by the code that it checks.").report(str(name))
    if name is None and fn is None:
        return overview.Overview.now()
    report = checked(name, fn, hint=hint)
    if debug:
        print(report)
        step(report, fn)
    return report


def checked(name, fn=None, *, hint=False, terminal=False):
    """The Report of `check`, with progress and hints kept. terminal: the report names commands, not calls."""
    try:
        return _with_hints(form.exercise(overview.find(name)), fn, hint, terminal)
    except Unusable as problem:
        return problem.report(str(name))
    except Exception as error:
        return Unusable("checker_failed", f"The checker itself failed, with {type(error).__name__}: {error}. That is "
                                          "no verdict on your answer. Restart the kernel (or Python) and check again."
                        ).report(str(name))


def _with_hints(exercise, fn, hint, terminal):
    known, text = progress.of(exercise.name), stubs.present(exercise.name) if fn is None else None
    report = answer(exercise, fn, here=terminal)
    started = report.mistake != "not_implemented"
    hints = min(known["hints"] + (hint and not report.passed), len(exercise.hints))
    file = hashlib.sha256(text.encode()).hexdigest()[:16] if text is not None else known["file"]
    lost = progress.update(exercise.name, passed=report.passed or known["passed"], tries=known["tries"] + started,
                           hints=hints, mistake=report.mistake or "", file="" if report.passed else file)
    offers = []
    if report.passed and terminal:                     # a notebook's panel has it folded in
        offers.append(f"One way to write it: `{command.line('check', exercise.name, '--solutions')}`")
    if not report.passed:
        again = report.mistake is not None and report.mistake == known["mistake"]
        told = [f"Hint {n + 1} of {len(exercise.hints)}: {text}" for n, text in enumerate(exercise.hints[:hints])]
        report.hint = "\n".join(filter(None, [report.hint, report.remedy if hint or again else "", *told * hint]))
        if text is not None and known["file"] == file and started and not hint:      # the stub's report asks by itself
            offers.append("The file is the same as at the last check: is it saved?")
        if hints < len(exercise.hints):
            more = f'check("{exercise.name}", hint=True)'
            more = command.line("check", exercise.name, "--hint") if terminal else more
            offers.append(f"{'One more' if hint else 'A'} hint: `{more}`")
        ran = any(case.passed is not None for case in report.cases) and report.mistake not in runner.FINAL
        if not terminal and ran and exercise.moves and (interpreted() or not exercise.triton):
            mine = f'"{exercise.name}"' + (f", {exercise.function}" if fn is not None else "")
            start = ", from where they go wrong" if report.where else ""
            offers.append(f"To see your lines move{start}: `from flashlab_course.lesson import replay; replay({mine})`")
    report.offer = "\n".join([*offers, *[f"{lost}."] * bool(lost)])
    return report


# ---- one answer, in a process of its own or in this one

def answer(exercise, fn=None, *, here=False):
    """The Report on the file in exercises/ or on fn, from a process of its own. here: as in process.apart"""
    return _reported(_apart, exercise, fn, here)


def examine(exercise, fn=None):
    """The Report from this process, without progress or hints."""
    with filled_with_nan():
        return _reported(_examine, exercise, fn)


def _reported(judge, exercise, *args):
    """The Report that judge returns, or the one on an answer that cannot be judged; with the time it took."""
    started = time.perf_counter()
    try:
        _require_kernels(exercise)
        report = judge(exercise, *args)
    except Unusable as problem:
        report = problem.report(exercise.name)
    report.seconds = time.perf_counter() - started
    return report


def _apart(exercise, fn, here):
    place = CELL if fn is not None else source.shown_path(exercise.name)
    if fn is None and stubs.present(exercise.name) in (None, exercise.parsed.stub()):     # nothing to run
        stubs.write(exercise.name)
        raise _still_a_stub(exercise, exercise.parsed.stub(), place)
    try:
        return process.apart(_answer, exercise.name, fn, imports=runner.slow_imports(exercise), here=here)
    except process.Lost as lost:
        file = str(source.exercise_path(exercise.name)) if fn is None else source.file_of(fn) or ""
        lines = [f"{place}, line {line}, in {function}: {linecache.getline(file, line).strip()}"
                 for line, function in lost.lines(file)]
        raise Unusable(lost.kind, f"Your code could not be judged: {lost.text}. It ran in a process of its own, so "
                                  "nothing else is lost.", "\n".join(lines)) from None
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise Unusable("wrong_type", f"Your function cannot be taken to the process that it would run in: {error}. "
                                     "Write it in a cell with `def`, with nothing but its arguments and the "
                                     "notebook's names in it.") from None


def _answer(name, fn):
    return examine(form.exercise(name), fn)


def _examine(exercise, fn):
    place, text = CELL, source.of(fn)
    if fn is None:
        fn, text = loading.function_from_file(exercise)
        place = source.shown_path(exercise.name)
    _require_function(exercise, fn)
    if exercise.triton and source.tasks_left(text, exercise.name):     # a compiled kernel cannot raise it
        raise _still_a_stub(exercise, text, place)
    process.load(runner.slow_imports(exercise))
    judged = diagnose.judge_all(exercise, fn, own_file=source.file_of(fn))
    if judged[-1].problem is not None and judged[-1].problem.kind == "not_implemented":
        raise _still_a_stub(exercise, text, place)
    passed = all(k.passed for k in judged)
    report = _passed(exercise, fn, judged) if passed else say.failure(exercise, fn, judged, place)
    report.cases = [CaseResult(case.name, k and k.passed) for case, k in zip_longest(exercise.cases, judged)]
    return report


# ---- answers that cannot be judged

def _require_kernels(exercise):
    if exercise.triton and (why := why_no_kernels()):
        where = "" if import_triton() else (" here. It exists for Linux only: on macOS or Windows use WSL2, Colab or "
                                            "any Linux machine; no GPU is needed")
        raise Unusable("no_triton", f"This exercise is a Triton kernel, and none can run: {why}{where}.")


def _require_function(exercise, fn):
    if not callable(source.inner(fn)):
        raise Unusable("wrong_type", f"`check` got {type(fn).__name__} where it needs the function "
                                     f"{exercise.function} itself: `check(\"{exercise.name}\", {exercise.function})`, "
                                     "without parentheses behind it.")


def _still_a_stub(exercise, text, place):
    """The Unusable that lists the regions still to be written."""
    head, tasks = exercise.head, [region["task"] for region in exercise.parsed.regions]
    left = tasks if place == CELL else source.tasks_left(text, exercise.name)     # a cell may hold a part of the stub
    how = "The stub's NotImplementedError is still in it."
    if place != CELL:
        how = (f"Open `{place}` (difficulty {head.difficulty} of 5, about {head.minutes} minutes), put your own "
               "lines in the place of `raise NotImplementedError`, save the file and check again; or write "
               f"`{exercise.function}` in a cell and call `check(\"{exercise.name}\", {exercise.function})`.")
    to_write = "To write" if left == tasks else "Still to write"
    return Unusable("not_implemented", f"{say.sentence(head.title)} {to_write}: {'; '.join(left)}.\n{how}")


# ---- the verdict on what ran

def _passed(exercise, fn, judged):
    for look in exercise.after:
        if (found := look(exercise, fn)) is not None:
            mistake, seen = found
            return Report(False, exercise.name, mistake=mistake.name, remedy=say.sentence(f"Look at {mistake.look}"),
                          message=f"{say.sentence(mistake.what)}\nEvery case passes. {say.sentence(seen)}")
    said = f"Right: {exercise.head.title}."
    if wrapped := next((name for k in judged if (name := k.outcome.facts.get("wrapped"))), ""):
        said += (f"\nA remark: what lies past the end of {wrapped} was read again from its start, as with `% N`. That "
                 "style is common; a mask reads nothing there.")
    return Report(True, exercise.name, message=said, solution=exercise.parsed.answer())
