"""check(): load, run every case, name the mistake, say it."""

import importlib
import inspect
import linecache
import pickle
import textwrap
import time

from flashlab.torch_internals import filled_with_nan
from flashlab.triton_mode import import_triton, interpreted, why_no_kernels
from flashlab_course import command
from flashlab_course.check import (
    diagnose,
    form,
    judge,
    limits,
    loading,
    overview,
    process,
    progress,
    runner,
    say,
    source,
    stepping,
    structure,
    stubs,
    where,
)
from flashlab_course.check.report import CaseResult, Report

UNREMEMBERED = "This is not remembered"                # begins what a report says of a folder that cannot be written to


def check(name=None, fn=None, *, hint=False, debug=False):
    """Check an exercise: the file exercises/<name>.py, or the function given. The start of a name will do; without one,
    your progress is shown.

    hint=True adds one more hint at each call. debug=True then runs your function once more, on the smallest case that
    fails, in this very process and under Python's debugger: it stops where the function raised an exception, else at
    its first line. Otherwise your code runs in a process of its own, and cannot harm this one.
    The Report shows itself as a panel in a notebook; `report.passed` is the answer.
    """
    if process.inside:
        return Report(False, str(name), mistake="nested", message="`check` was called by the code that it checks.")
    if name is None and fn is None:
        return overview.Overview.now()
    return checked(name, fn, hint=hint, debug=debug)


def checked(name, fn=None, *, hint=False, debug=False, terminal=False):
    """The Report of `check`, with progress and hints kept. terminal: more is asked for with commands there."""
    try:
        found = overview.find(name)
        if isinstance(found, Report):
            return found
        exercise = form.exercise(found)
        report = _with_hints(exercise, fn, hint, terminal)
    except Exception as error:
        return _own_failure(name, error)
    if debug and report.cases:
        stepping.step(exercise, loading.function_from_file(exercise)[0] if fn is None else fn, report)
    return report


def _own_failure(name, error):
    said = f"The checker itself failed, with {type(error).__name__}: {runner.message_of(error)}."
    return Report(False, name if isinstance(name, str) else type(name).__name__, mistake="checker_failed",
                  message=f"{said} That is no verdict on your answer. Restart the kernel (or Python) and check again.")


def _with_hints(exercise, fn, hint, terminal):
    known, text = progress.of(exercise.name), stubs.present(exercise.name) if fn is None else None
    report = answer(exercise, fn, here=terminal)
    hints = min(known["hints"] + (hint and not report.passed), len(exercise.hints))
    started = report.mistake != "not_implemented"
    file = stubs.digest(text) if text is not None else known["file"]
    lost = progress.update(exercise.name, passed=report.passed or known["passed"], tries=known["tries"] + started,
                           hints=hints, mistake=report.mistake or "", file="" if report.passed else file)
    if not report.passed:
        unchanged = text is not None and known["file"] == file and started       # the stub's report asks by itself
        told = [f"Hint {n + 1} of {len(exercise.hints)}: {text}" for n, text in enumerate(exercise.hints[:hints])]
        again = report.mistake is not None and report.mistake == known["mistake"]
        report.hint = "\n".join(filter(None, [report.hint, report.remedy if hint or again else "", *told * hint]))
        report.offer = "\n".join([*_offers(exercise, known, hints, hint, terminal, unchanged),
                                  *([] if terminal else _player(exercise, report, fn))])
    elif terminal:                                     # a notebook's card has it folded in
        report.offer = f"One way to write it: `{command.line('check', exercise.name, '--solutions')}`"
    if lost:
        report.offer += f"\n{UNREMEMBERED}, neither what passed nor which hints you saw: {lost}."
    return report


def _offers(exercise, known, hints, hint, terminal, unchanged):
    """What else there is to say under a verdict that is no pass."""
    said = ["The file is the same as at the last check: is it saved?"] if unchanged and not hint else []
    if hints < len(exercise.hints):
        more = command.line("check", exercise.name, "--hint") if terminal else f'check("{exercise.name}", hint=True)'
        said.append(f"{'One more' if hint else 'A'} hint: `{more}`")
    return said


def _player(exercise, report, fn):
    """Where lines can be seen to move, how: not those that never end, nor before there are any."""
    ran = [case for case in report.cases if case.passed is not None]
    if not ran or report.mistake in runner.FINAL or not exercise.moves or exercise.triton and not interpreted():
        return []
    mine = f"\"{exercise.name}\"" + (f", {exercise.function}" if fn is not None else "")
    start = ", from the first wrong number" if report.where else ""
    return [f"To see your lines move{start}: `from flashlab_course.lesson import replay; replay({mine})`"]


def answer(exercise, fn=None, *, here=False):
    """The Report on the file in exercises/ or on fn, from a process of its own. here: as in process.apart"""
    started, text = time.perf_counter(), source.of(fn)
    if (report := _without_kernels(exercise)) is not None:
        return report
    if fn is not None and not runner.is_callable(fn):
        return _no_function(exercise, fn)
    if fn is None:
        text = stubs.present(exercise.name) or ""
        if text == exercise.parsed.stub():             # nothing to run
            return _stub_report(exercise, text, f"exercises/{exercise.name}.py")
    try:
        report = process.apart(_answer, exercise.name, fn, imports=runner.slow_imports(exercise, text), here=here)
    except process.Lost as lost:
        report = _lost(exercise, fn, lost)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        report = Report(False, exercise.name, mistake="wrong_type",
                        message=f"Your function cannot be taken to the process that it would run in: {error}. Write it "
                                "in a cell with `def`, with nothing but its arguments and the notebook's names in it.")
    report.seconds = time.perf_counter() - started
    return report


def _answer(name, fn):
    return examine(form.exercise(name), fn)


def _lost(exercise, fn, lost):
    """The Report on an answer whose process ended before it had one."""
    file = str(source.exercise_path(exercise.name)) if fn is None else runner.file_of(fn) or ""
    place = f"exercises/{exercise.name}.py" if fn is None else "your cell"
    lines = [f"{place}, line {line}, in {function}: {linecache.getline(file, line).strip()}"
             for line, function in lost.lines(file)]
    said = f"Your code could not be judged: {lost.text}. It ran in a process of its own, so nothing else is lost."
    return Report(False, exercise.name, mistake=lost.kind, message=said, trace="\n".join(lines))


def examine(exercise, fn=None):
    """The Report from this process, without progress or hints."""
    started = time.perf_counter()
    try:
        with filled_with_nan():
            report = _examine(exercise, fn)
    except loading.Unusable as problem:
        report = Report(False, exercise.name, mistake=problem.mistake, message=problem.message, trace=problem.trace)
    report.seconds = time.perf_counter() - started
    return report


def _examine(exercise, fn):
    if (report := _without_kernels(exercise)) is not None:
        return report
    place, text = "your cell", source.of(fn)
    if fn is None:
        fn, text = loading.function_from_file(exercise)
        place = f"exercises/{exercise.name}.py"
    if (report := _wrong_signature(exercise, fn) if runner.is_callable(fn) else _no_function(exercise, fn)) is not None:
        return report
    if exercise.triton and source.markers_left(text, exercise.name):     # a compiled kernel cannot raise it
        return _stub_report(exercise, text, place)
    for module in runner.slow_imports(exercise, text):
        importlib.import_module(module)
    judged = diagnose.judge_all(exercise, fn, own_file=runner.file_of(fn))
    if judged[-1].problem is not None and judged[-1].problem.kind == "not_implemented":
        return _stub_report(exercise, text, place)
    return report_on(exercise, fn, judged, place)


def _without_kernels(exercise):
    if not exercise.triton or not (why := why_no_kernels()):
        return None
    said = f"This exercise is a Triton kernel, and none can run here: {why}."
    if import_triton() is None:
        said = ("This exercise is a Triton kernel, and Triton is not installed here: it exists for Linux only. "
                "On macOS or Windows use WSL2, Colab or any Linux machine; no GPU is needed.")
    return Report(False, exercise.name, mistake="no_triton", message=said)


def report_on(exercise, fn, judged, place="your cell"):
    """The Report on what fn did in the cases."""
    passed = all(k.passed for k in judged)
    report = _passed(exercise, fn, judged) if passed else _failed(exercise, fn, judged, place)
    report.cases = [CaseResult(case.name, None) for case in exercise.cases]
    for result, k in zip(report.cases, judged, strict=False):
        result.passed = k.passed
    return report


def _no_function(exercise, fn):
    return Report(False, exercise.name, mistake="wrong_type",
                  message=f"`check` got {type(fn).__name__} where it needs the function {exercise.function} itself: "
                          f"`check(\"{exercise.name}\", {exercise.function})`, without parentheses behind it.")


def _wrong_signature(exercise, fn):
    if not inspect.isfunction(fn):
        return None
    names = list(exercise.signature.parameters.values())
    args = [None] * sum(p.kind is not inspect.Parameter.KEYWORD_ONLY for p in names)
    kwargs = {p.name: None for p in names if p.kind is inspect.Parameter.KEYWORD_ONLY}
    try:
        signature = inspect.signature(fn)
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return Report(False, exercise.name, mistake="signature",
                      message=f"Your function takes {signature}, but it is called as "
                              f"{exercise.function}{exercise.signature}: {error}.")
    except Exception:                                          # a signature of its own making: the calls will show
        return None
    return None


def _stub_report(exercise, text, place):
    """Judged by what is there: the parts that are written, with the solution in the place of those that are not."""
    head, left = exercise.head, exercise.parsed.regions
    if place != "your cell":                           # a cell may hold one function of several
        left = loading.missing(exercise, text) or left
    done = [region for region in exercise.parsed.regions if region not in left]
    said = [f"{say.sentence(head.title)} {'Still to write' if done else 'To write'}: "
            f"{'; '.join(region.task for region in left)}."]
    if done:
        said.append(_half_done(exercise, text, done))
    if place == "your cell":
        said.append("The stub's NotImplementedError is still in it.")
    else:
        said.append(f"Open `{place}` (difficulty {head.difficulty} of 5, about {head.minutes} minutes), write, save it "
                    "and check "
                    f"again; or write `{exercise.function}` in a cell and call `check(\"{exercise.name}\", "
                    f"{exercise.function})`. "
                    f"{_why_a_stub(exercise, text)}")
    return Report(False, exercise.name, mistake="not_implemented", message="\n".join(said))


def _why_a_stub(exercise, text):
    """What somebody has overlooked who takes the exercise for written."""
    stub = exercise.parsed.stub()
    if text.split() == stub.split():
        return "If you have written it already: is the file saved?"
    lines = [n for n, line in enumerate(text.splitlines(), 1) if source.markers_left(line, exercise.name)]
    return (f"The file is no longer the stub, but line {lines[0]} still raises NotImplementedError: "
            "take that out once your own are there.")


def _half_done(exercise, text, done):
    tasks = "; ".join(region.task for region in done)
    namespace, error = limits.protected(lambda: source.load_text(loading.filled(exercise, text),
                                                                 f"{exercise.name}, filled"),
                                        loading.SECONDS)
    if error is not None or not runner.is_callable(namespace.get(exercise.function)):
        return f"Written: {tasks}."
    judged = diagnose.judge_all(exercise, namespace[exercise.function])
    if all(k.passed for k in judged):
        return f"What you have written is right ({tasks}): with the rest filled in, every case passes."
    first = next(k for k in judged if not k.passed)
    shown = (where.first_wrong(exercise, first, judge.expect(exercise, first.case)) if first.wrong
             else first.problem.text if first.problem else first.structure[0].text)
    return (f"What you have written ({tasks}) is not right yet. With the rest filled in, in the case “{first.case}”, "
            f"{shown}.")


# ---- passed

def _passed(exercise, fn, judged):
    if left := sorted({name for k in judged for name in k.outcome.left}):
        return Report(False, exercise.name, mistake="global_state", printed=say.printed(judged[0]),
                      message=f"The results are right, but your function changed {' and '.join(left)} and left it so: "
                              "every later cell would run with it. Set such things outside, or restore them.")
    for look in exercise.after:
        if (found := look(exercise, fn)) is not None:
            mistake, seen = found
            return Report(False, exercise.name, mistake=mistake.name, remedy=say.sentence(f"Look at {mistake.look}"),
                          message=f"{say.sentence(mistake.what, exercise)}\nEvery case passes. "
                                  f"{say.sentence(seen, exercise)}")
    return Report(True, exercise.name, message=_praise(exercise), solution=textwrap.dedent(exercise.parsed.answer()))


def _praise(exercise):
    said = f"Right: {exercise.head.title}."
    if exercise.triton and not interpreted():
        said += (f"\nA GPU shows no stray load whose value is not used. The interpreter does: "
                 f"`TRITON_INTERPRET=1 {command.line('check', exercise.name)}`.")
    return said


# ---- failed

def _failed(exercise, fn, judged, place):
    first = next(k for k in judged if not k.passed)
    report = say.failed(exercise, fn, judged, place)
    if (breach := structure.breach(judged)) and breach[1:] not in report.message:
        report.message = f"{say.sentence(breach)}\n{report.message}"
        report.hint = exercise.not_allowed
    if first.wrong:
        n, _, bound = first.wrong[0]
        index = where.first_index(first.outcome.values[n], judge.expect(exercise, first.case).truth[n], bound)
        report.where = first.case.name, exercise.outputs[n].name, index
    return report
