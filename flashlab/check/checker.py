"""check(): load, run every case, name the mistake, say it."""

import difflib
import inspect
import textwrap
import time
import traceback

from flashlab.check import diagnose, form, judge, progress, runner, source
from flashlab.check.report import CaseResult, Report
from flashlab.compiler import interpreted

PRINTED_LINES = 12
NAMES = {"alpha", "beta", "full", "visited", "reads", "writes"}    # keep their small letter at the start
LOADING_SECONDS = 6            # importing Triton takes one


def check(name, fn=None, *, hint=False):
    """Check an exercise: the file exercises/<name>.py, or the function given.

    hint=True adds one more hint at each call. The Report shows itself as a panel in a notebook; `report.passed` is the answer.
    """
    try:
        exercise = form.exercise(str(name))
    except KeyError:
        return _unknown(name)
    report = examine(exercise, fn)
    known = progress.of(exercise.name)
    hints = min(known["hints"] + (hint and not report.passed), len(exercise.hints))
    started = report.mistake != "not_implemented"
    progress.update(exercise.name, passed=report.passed or known["passed"], tries=known["tries"] + started, hints=hints)
    if hint and not report.passed:
        told = [f"Hint {n + 1} of {len(exercise.hints)}: {text}" for n, text in enumerate(exercise.hints[:hints])]
        report.hint = "\n".join([*filter(None, [report.hint]), *told])
    return report


def _unknown(name):
    close = difflib.get_close_matches(str(name), form.names(), 3, 0.3) or form.names()
    return Report(False, str(name), mistake="unknown_exercise",
                  message=f"There is no exercise of that name. Did you mean {', '.join(close)}?")


def examine(exercise, fn=None):
    """The Report, without progress or hints."""
    started = time.perf_counter()
    if exercise.triton and (problem := _triton_missing()):
        return Report(False, exercise.name, mistake="no_triton", message=problem)
    own_file, where = None, "your cell"
    if fn is None:
        fn, report = _from_file(exercise)
        if report is not None:
            return report
        where = f"exercises/{exercise.name}.py"
    code = getattr(getattr(fn, "fn", fn), "__code__", None)
    own_file = code.co_filename if code is not None else None
    if not callable(fn) and not hasattr(fn, "run"):
        return Report(False, exercise.name, mistake="wrong_type",
                      message=f"`check` got {type(fn).__name__} where it needs the function {exercise.function} itself: "
                              f"`check(\"{exercise.name}\", {exercise.function})`, without parentheses behind it.")
    if exercise.triton and source.markers_left(source.of(fn), exercise.name):     # a compiled kernel cannot raise it
        return _stub_report(exercise)
    if (report := _wrong_signature(exercise, fn)) is not None:
        return report
    judged = diagnose.judge_all(exercise, fn, own_file=own_file)
    report = _failed(exercise, fn, judged, where) if any(not k.passed for k in judged) else _passed(exercise, fn, judged)
    report.cases = [CaseResult(case.name, None) for case in exercise.cases]
    for result, k in zip(report.cases, judged, strict=False):
        result.passed = k.passed
    report.seconds = time.perf_counter() - started
    return report


def _triton_missing():
    try:
        import triton  # noqa: F401
    except ImportError:
        return ("This exercise is a Triton kernel, and Triton is not installed here: it exists for Linux only. "
                "On macOS or Windows use WSL2, Colab or any Linux machine; no GPU is needed.")
    return None


def _from_file(exercise):
    """(function, None), or (None, Report) if the file cannot be read, parsed or run."""
    path = source.exercise_path(exercise.name)
    shown = f"exercises/{exercise.name}.py"

    def failed(mistake, message, trace=""):
        return None, Report(False, exercise.name, mistake=mistake, message=message, trace=trace)

    if not path.exists():
        return failed("no_file", f"{shown} is not there. `python -m flashlab check --reset {exercise.name}` makes it anew.")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return failed("no_file", f"{shown} could not be read: {error}.")
    namespace, error = runner.protected(lambda: source.load_text(text, f"exercise {exercise.name}", path), LOADING_SECONDS)
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return failed("syntax", f"Python cannot read {shown}: {error.msg} in line {error.lineno}.",
                      f"line {error.lineno}: {(error.text or '').rstrip()}")
    if error is not None:
        late = isinstance(error, runner.TimeUp)
        what = f"it was still running after {LOADING_SECONDS:g} seconds" if late else f"{type(error).__name__}: {error}"
        lines = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        return failed("timeout" if late else "raised", f"{shown} could not be loaded: {what}.",
                      "\n".join(f"line {f.lineno}: {f.line}" for f in lines))
    if exercise.function not in namespace:
        return failed("no_function", f"{shown} no longer defines {exercise.function}. `python -m flashlab check --reset "
                                     f"{exercise.name}` restores the stub and keeps your version beside it.")
    if exercise.triton and source.markers_left(text, exercise.name):     # also in a kernel that the function launches
        return None, _stub_report(exercise)
    return namespace[exercise.function], None


def _wrong_signature(exercise, fn):
    if not inspect.isfunction(fn):
        return None
    names = list(exercise.signature.parameters.values())
    args = [None] * sum(p.kind is not inspect.Parameter.KEYWORD_ONLY for p in names)
    kwargs = {p.name: None for p in names if p.kind is inspect.Parameter.KEYWORD_ONLY}
    try:
        inspect.signature(fn).bind(*args, **kwargs)
    except TypeError as error:
        return Report(False, exercise.name, mistake="signature",
                      message=f"Your function takes {inspect.signature(fn)}, but it is called as "
                              f"{exercise.function}{exercise.signature}: {error}.")
    except ValueError:
        return None
    return None


def _stub_report(exercise):
    tasks = "; ".join(region.task for region in exercise.parsed.regions)
    head = exercise.head
    return Report(False, exercise.name, mistake="not_implemented",
                  message=f"{_sentence(head.title)} To write: {tasks}.\n"
                          f"Open `exercises/{exercise.name}.py` (difficulty {head.difficulty} of 5, about {head.minutes} minutes), "
                          f"or write `{exercise.function}` in a cell and call `check(\"{exercise.name}\", {exercise.function})`.")


# ---- passed

def _passed(exercise, fn, judged):
    if left := sorted({name for k in judged for name in k.outcome.left}):
        return Report(False, exercise.name, mistake="global_state", printed=_printed(judged[0]),
                      message=f"The results are right, but your function changed {' and '.join(left)} and left it so: "
                              "every later cell would run with it. I put it back. Set such things outside, or restore them.")
    for look in exercise.after:
        if (found := look(exercise, fn)) is not None:
            mistake, seen = found
            return Report(False, exercise.name, mistake=mistake.name, hint=_sentence(f"Look at: {mistake.look}"),
                          message=f"{_sentence(mistake.what)}\nEvery case passes. {_sentence(seen)}")
    return Report(True, exercise.name, message=_praise(exercise), solution=textwrap.dedent(exercise.parsed.answer()))


def _praise(exercise):
    said = f"Right: {exercise.head.title}. One way to write it: `python -m flashlab check {exercise.name} --solutions`."
    if exercise.triton and not interpreted():
        said += (f"\nA GPU shows no stray load whose value is not used. The interpreter does: "
                 f"`TRITON_INTERPRET=1 python -m flashlab check {exercise.name}`.")
    return said


# ---- failed

def _failed(exercise, fn, judged, where):
    failing = [k for k in judged if not k.passed]
    first = failing[0]
    problem = first.problem
    if problem is not None and problem.kind == "not_implemented":
        return _stub_report(exercise)
    diagnosis = diagnose.name_mistake(exercise, judged)
    message = [*_named(diagnosis), *_first_sentences(exercise, fn, judged, first, diagnosis)]
    name = diagnosis.name or (problem.kind if problem is not None else None)
    hint = " ".join(_sentence(f"Look at: {m.look}") for m in diagnosis.mistakes)
    return Report(False, exercise.name, mistake=name, message="\n".join(message), hint=hint,
                  trace=_trace(problem, where), printed=_printed(first))


def _named(diagnosis):
    if not diagnosis.mistakes:
        return []
    whats = " ".join(_sentence(m.what) for m in diagnosis.mistakes)
    if len(diagnosis.mistakes) > 1:
        return [f"Two mistakes at once. {whats}"]
    more = " That is what the smallest failing case shows; a later one shows something else as well."
    return [whats + more if diagnosis.partly else whats]


def _first_sentences(exercise, fn, judged, first, diagnosis):
    """What is special, and where: true whether or not the mistake is known."""
    said = [diagnose.special(judged) if len(judged) > 1 else f"Already in the smallest case, “{first.case}”."]
    if first.problem is not None:
        said.append(_sentence(f"There {first.problem.text}"))
    elif first.wrong:
        expected = judge.expect(exercise, first.case)
        said.append(f"There {judge.first_wrong(exercise, first, expected)}: the first wrong number. "
                    + diagnose.from_key_block(exercise, first, fn))
        if not diagnosis.mistakes or diagnosis.partly:
            said += [_sentence(text) for text in judge.observe(exercise, first, expected, [k for k in judged if not k.passed])]
    said += [_sentence(text) for text in first.structure[:3]]
    return [text.strip() for text in said if text.strip()]


def _sentence(text):
    first = text.split()[0].rstrip(",:;")
    if first == "a" or len(first) > 1 and first.isalpha() and first.islower() and first not in NAMES:
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _trace(problem, where):
    if problem is None or problem.kind not in ("raised", "timeout"):
        return ""
    return "\n".join(f"{where}, {line}, in {function}: {code}" for line, function, code in problem.lines)


def _printed(judged):
    lines = judged.outcome.printed.splitlines()
    more = [f"... and {len(lines) - PRINTED_LINES} lines more"] if len(lines) > PRINTED_LINES else []
    return "\n".join([line[:160] for line in lines[:PRINTED_LINES]] + more)
