"""exercises/ from solutions/: python -m flashlab.check.build [--check]

A stub that a learner has begun to fill in is left alone; `python -m flashlab check --reset EX` gives it up.
"""

import argparse
import sys

from flashlab.check import form, source


def stub(name):
    """The text that exercises/<name>.py starts out with. Raises: source.SourceError for markers that do not match."""
    return source.Parsed(name, source.solution_path(name).read_text(encoding="utf-8")).stub()


def begun(name, text):
    """Has a learner written into this file? Then it holds fewer of the stub's NotImplementedErrors than the stub."""
    return source.markers_left(text, name) < source.markers_left(stub(name), name)


def check_pairs():
    """Every solution has its mistakes, all mistakes their solution, and no stub stands alone."""
    known = set(form.names())
    solutions = {p.stem for p in (source.root() / "solutions").glob("ex*.py") if p.suffixes == [".py"]}
    stubs = {p.stem for p in (source.root() / "exercises").glob("ex*.py") if p.suffixes == [".py"]}
    problems = [f"solutions/{name}.py has no solutions/{name}.mistakes.py" for name in sorted(solutions - known)]
    problems += [f"solutions/{name}.mistakes.py has no solutions/{name}.py" for name in sorted(known - solutions)]
    problems += [f"exercises/{name}.py has no solutions/{name}.py" for name in sorted(stubs - solutions)]
    return problems


def build(write=True):
    """Write (or, with write=False, only compare) every stub. Returns the lines to print and the problems found."""
    told, problems = [], check_pairs()
    (source.root() / "exercises").mkdir(exist_ok=True)
    for name in form.names():
        if not source.solution_path(name).exists():
            continue
        path, text = source.exercise_path(name), stub(name)
        now = path.read_text(encoding="utf-8") if path.exists() else None
        if now == text:
            continue
        if now is not None and begun(name, now):
            told.append(f"{path.name}: begun, left alone")
            problems += [] if write else [f"exercises/{name}.py is not the stub"]
        elif write:
            path.write_text(text, encoding="utf-8")
            told.append(f"{path.name}: written")
        else:
            problems.append(f"exercises/{name}.py differs from its solution: make exercises")
    return told, problems


def main(argv=None):
    parser = argparse.ArgumentParser("python -m flashlab.check.build", description="exercises/ from solutions/")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    args = parser.parse_args(argv)
    try:
        told, problems = build(write=not args.check)
    except source.SourceError as error:
        told, problems = [], [str(error)]
    print("\n".join([*told, *(f"FAILED: {p}" for p in problems)] or [f"{len(form.names())} exercises, all current"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
