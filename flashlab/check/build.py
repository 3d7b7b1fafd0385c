"""exercises/, docs/mistakes.md and the counts in README.md from solutions/: python -m flashlab.check.build [--check]

A file in exercises/ that a learner has written into is left alone; `python -m flashlab check --reset EX` gives it up.
"""

import argparse
import ast
import hashlib
import subprocess
import sys

from flashlab.check import form, progress, source, table


def stub(name):
    """The text that exercises/<name>.py starts out with. Raises: source.SourceError for markers that do not match."""
    return source.Parsed(name, source.solution_path(name).read_text(encoding="utf-8")).stub()


def present(name):
    """The text of exercises/<name>.py, None if there is no such file. A byte that is not UTF-8 becomes U+FFFD."""
    path = source.exercise_path(name)
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else None


def begun(name, text):
    """Has a learner written into this file? Then it lacks one of the stub's NotImplementedErrors, or is no Python any more."""
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


def staged(name):
    """exercises/<name>.py as it is in git's index."""
    return git("show", f":./exercises/{name}.py")


def untouched(name, text):
    """Is this a stub of an earlier solution? Then it is what was written here last, or what is committed."""
    return progress.of(name)["stub"] == _digest(text) or text == committed(name) and not begun(name, text)


def write(name):
    """Put the stub in its place, and remember it: once the solution changes, it can be told from a learner's work."""
    source.exercise_path(name).write_text(stub(name), encoding="utf-8")
    progress.update(name, stub=_digest(stub(name)))


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_pairs():
    """Every solution has its mistakes, and all mistakes their solution."""
    known = set(form.names())
    solutions = {p.stem for p in (source.root() / "solutions").glob("ex*.py") if p.suffixes == [".py"]}
    return [*(f"solutions/{name}.py has no solutions/{name}.mistakes.py" for name in sorted(solutions - known)),
            *(f"solutions/{name}.mistakes.py has no solutions/{name}.py" for name in sorted(known - solutions))]


def build(only_compare=False):
    """Write (or only compare) every stub and the table of mistakes. Returns the lines to print and the problems found."""
    if problems := check_pairs():
        return [], problems
    told = []
    (source.root() / "exercises").mkdir(exist_ok=True)
    for name in form.names():
        now = present(name)
        if now == stub(name):
            continue
        if only_compare:
            problems.append(f"exercises/{name}.py differs from its solution: make exercises")
        elif now is None or untouched(name, now):
            write(name)
            told.append(f"exercises/{name}.py: written")
        else:
            told.append(f"exercises/{name}.py: begun, left alone (`python -m flashlab check --reset {name}` restores the stub)")
    changed = table.outdated()
    if changed and only_compare:
        problems += [f"{table.PATH} does not say what {name} does: make exercises" for name in changed]
    elif changed:
        told += table.write(changed)
    return told, problems


def main(argv=None):
    parser = argparse.ArgumentParser("python -m flashlab.check.build", description="what is generated from solutions/")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    args = parser.parse_args(argv)
    try:
        told, problems = build(only_compare=args.check)
    except source.SourceError as error:
        told, problems = [], [str(error)]
    print("\n".join([*told, *(f"FAILED: {p}" for p in problems)] or [f"{len(form.names())} exercises, all current"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
