"""The stub that each exercise starts out with, and whether a learner has written into it."""

import ast

from flashlab_course.check import source


def stub(name):
    """The text that an exercise starts out with. Raises: source.SourceError for markers that do not match."""
    return source.Parsed(name, source.solution_text(name)).stub()


def present(name):
    """The text of the learner's file, None if there is none. A byte that is not UTF-8 becomes U+FFFD."""
    try:
        return source.exercise_path(name).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError:                                    # a folder of that name, say: a check tells
        return ""


def begun(name, text):
    """Has a learner written into this file? It then lacks a NotImplementedError, or is no Python any more."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return True
    return len(source.tasks_left(text, name)) < len(source.tasks_left(stub(name), name))


def own_text(name):
    """The text of the learner's file if it is begun, else None."""
    text = present(name)
    return text if text is not None and begun(name, text) else None


def written_path(name):
    """A copy of the stub that was written last: a later one is merged with the answer by it."""
    return source.root() / source.MY / ".stubs" / f"{name}.py"


def write(name, text=None):
    """Put the stub in its place, or a text that was made from it."""
    source.put(source.exercise_path(name), text or stub(name))
    source.put(written_path(name), stub(name))
