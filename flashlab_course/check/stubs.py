"""exercises/: the stub that each starts out with, and whether a learner has written into it."""

import ast
import contextlib
import hashlib
import shutil
import subprocess

from flashlab_course.check import form, progress, source


def stub(name):
    """The text that exercises/<name>.py starts out with. Raises: source.SourceError for markers that do not match."""
    return source.Parsed(name, source.solution_text(name)).stub()


def present(name):
    """The text of exercises/<name>.py, None if there is no such file. A byte that is not UTF-8 becomes U+FFFD."""
    try:
        return source.exercise_path(name).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def begun(name, text):
    """Has a learner written into this file? Then it lacks one of the stub's NotImplementedErrors, or is no Python any
    more."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return True
    return "\ufffd" in text or len(source.tasks_left(text, name)) < len(source.tasks_left(stub(name), name))


def own_text(name):
    """The text of exercises/<name>.py if a learner has begun it, else None."""
    text = present(name)
    return text if text is not None and begun(name, text) else None


def untouched(name, text):
    """Is this a stub of an earlier solution? Then it is what was written here last, or what is committed."""
    if progress.of(name)["stub"] == digest(text):
        return True
    committed = b""
    with contextlib.suppress(OSError):                 # git is not installed
        committed = subprocess.run(["git", "show", f"HEAD:./exercises/{name}.py"], cwd=source.root(),
                                   capture_output=True).stdout
    return text == committed.decode(errors="replace") and not begun(name, text)


def write(name):
    """Put the stub in its place, and remember it: once the solution changes, it can be told from a learner's work."""
    source.exercise_path(name).parent.mkdir(exist_ok=True)
    source.exercise_path(name).write_text(stub(name), encoding="utf-8")
    progress.update(name, stub=digest(stub(name)))


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def fresh_root(folder):
    """Fill an empty folder that the checker can take for the repository (FLASHLAB_ROOT): solutions, the chapters'
    texts, a stub of each exercise, and nobody's progress."""
    for part in ("solutions", "notebooks/src"):
        shutil.copytree(source.root() / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "exercises").mkdir()
    for name in form.names():
        (folder / "exercises" / f"{name}.py").write_text(stub(name), encoding="utf-8")
