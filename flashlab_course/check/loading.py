"""A learner's file, read and run."""

from flashlab_course import command
from flashlab_course.check import limits, runner, source
from flashlab_course.check.report import Report

SECONDS = 6                    # importing Triton takes one


class Unusable(Exception):
    """What cannot be judged, with the mistake, message and trace of its Report."""

    def __init__(self, mistake, message, trace=""):
        super().__init__(message)
        self.mistake, self.message, self.trace = mistake, message, trace

    def report(self, name):
        return Report(False, name, mistake=self.mistake, message=self.message, trace=self.trace)


def function_from_file(exercise):
    """(function, text of the file). Raises: Unusable."""
    path = source.exercise_path(exercise.name)
    shown = source.shown_path(exercise.name)
    reset = command.line("check", "--reset", exercise.name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable("no_file", f"{shown} could not be read: {error}. `{reset}` makes it anew.") from None
    namespace, error = limits.protected(lambda: source.load_text(text, f"exercise {exercise.name}", path), SECONDS)
    if error is not None:
        raise _failed(error, exercise, path, shown)
    if exercise.function not in namespace:
        raise Unusable("no_function", f"{shown} no longer defines {exercise.function}. `{reset}` restores the stub and "
                                      "keeps your version beside it.")
    return namespace[exercise.function], text


def _failed(error, exercise, path, shown):
    if isinstance(error, SyntaxError) and error.filename == str(path):
        if (error.text or "").startswith("<<<<<<<"):
            return Unusable("syntax", f"Git has left the marks of a conflict in {shown}, the first in line "
                                      f"{error.lineno}. Two versions stand there: keep one, and delete the marks.")
        return Unusable("syntax", f"Python cannot read {shown}: {error.msg} in line {error.lineno}.",
                        f"line {error.lineno}: {(error.text or '').rstrip()}")
    problem = runner.describe(error, exercise, str(path), SECONDS)
    stop = "" if problem.text.endswith("?") else "."
    return Unusable(problem.kind, f"{shown} could not be loaded: {problem.text}{stop}",
                    "\n".join(f"{line}: {code}" for line, _, code in problem.lines))
