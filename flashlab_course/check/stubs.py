"""exercises/: the stub that each starts out with, and whether a learner has written into it."""

import ast
import hashlib
import shutil
import subprocess

from flashlab_course.check import form, progress, source


def stub(name):
    """The text that exercises/<name>.py starts out with. Raises: source.SourceError for markers that do not match."""
    return source.Parsed(name, source.solution_text(name)).stub()


def present(name):
    """The text of exercises/<name>.py, None if there is no such file. A byte that is not UTF-8 becomes U+FFFD."""
    path = source.exercise_path(name)
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else None


def begun(name, text):
    """Has a learner written into this file? Then it lacks one of the stub's NotImplementedErrors, or is no Python any
    more."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return True
    return "\ufffd" in text or source.markers_left(text, name) < source.markers_left(stub(name), name)


def git(*command):
    """What a git command prints in the root; "" where there is no git, no repository, or nothing to print."""
    try:
        return subprocess.run(["git", *command], cwd=source.root(), capture_output=True).stdout.decode(errors="replace")
    except OSError:
        return ""


def committed(name):
    """exercises/<name>.py as it is in the last commit."""
    return git("show", f"HEAD:./exercises/{name}.py")


def untouched(name, text):
    """Is this a stub of an earlier solution? Then it is what was written here last, or what is committed."""
    return progress.of(name)["stub"] == digest(text) or text == committed(name) and not begun(name, text)


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
