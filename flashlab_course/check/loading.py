"""A learner's file: read, run, and looked at where it is half done."""

import re
import traceback

from flashlab_course import command
from flashlab_course.check import limits, runner, source

SECONDS = 6                    # importing Triton takes one


class Unusable(Exception):
    """A file that gives no function: mistake, message and trace as in a Report."""

    def __init__(self, mistake, message, trace=""):
        super().__init__(message)
        self.mistake, self.message, self.trace = mistake, message, trace


def function_from_file(exercise):
    """(function, text of the file). Raises: Unusable."""
    path = source.exercise_path(exercise.name)
    shown = f"exercises/{exercise.name}.py"
    reset = command.line("check", "--reset", exercise.name)
    if not path.exists():
        raise Unusable("no_file", f"{shown} is not there. `{reset}` makes it anew.")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable("no_file", f"{shown} could not be read: {error}.") from None
    namespace, error = limits.protected(lambda: source.load_text(text, f"exercise {exercise.name}", path), SECONDS)
    if error is not None:
        raise _failed(error, exercise, path, shown)
    if exercise.function not in namespace:
        raise Unusable("no_function",
                       f"{shown} no longer defines {exercise.function}. `{reset}` restores the stub and keeps your "
                                      "version beside it.")
    return namespace[exercise.function], text


def _failed(error, exercise, path, shown):
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return Unusable("syntax", f"Python cannot read {shown}: {error.msg} in line {error.lineno}.",
                        f"line {error.lineno}: {(error.text or '').rstrip()}")
    lines = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    trace = "\n".join(f"line {f.lineno}: {f.line}" for f in lines)
    problem = runner.describe(error, exercise, str(path), SECONDS)
    if problem.kind in ("timeout", "memory", "asked", "debugger"):
        text = f"it was still running after {SECONDS:g} seconds" if isinstance(error, limits.TimeUp) else problem.text
        return Unusable(problem.kind, f"{shown} could not be loaded: {text}.", trace)
    return Unusable("raised", f"{shown} could not be loaded: {type(error).__name__}: {runner.message_of(error)}.",
                    trace)


# ---- regions still to be written

def missing(exercise, text):
    """The regions whose stub is still in the text."""
    return [region for region in exercise.parsed.regions if _stub_line(exercise, region).search(text)]


def filled(exercise, text):
    """The text with the solution in the place of what is missing."""
    for region in missing(exercise, text):
        answer = exercise.parsed.lines[region.start : region.stop]
        text = _stub_line(exercise, region).sub(lambda _, lines=answer: "\n".join(lines), text)
    return text


def _stub_line(exercise, region):
    return re.compile(rf'^ *raise NotImplementedError\("{exercise.name}: {re.escape(region.task)}"\)$', re.MULTILINE)
