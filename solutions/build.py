"""What is generated from solutions/: the stubs in exercises/, and the counts in README.md.

    python solutions/build.py                  write what has changed (make exercises)
    python solutions/build.py --check          write nothing; fail if a file differs

A learner's own copies are in my/exercises/, and nothing here touches them.
"""

import argparse
import re
import sys

from flashlab_course.check import form, source, stubs

COUNTS = re.compile(r"\*\*\d+ exercises\*\*(.*?) \d+ mistakes")


def check_pairs():
    """Every solution has its mistakes, and all mistakes their solution."""
    known = set(form.names())
    solutions = {p.stem for p in (source.root() / "solutions").glob("ex*.py") if p.suffixes == [".py"]}
    return [*(f"solutions/{name}.py has no solutions/{name}.mistakes.py" for name in sorted(solutions - known)),
            *(f"solutions/{name}.mistakes.py has no solutions/{name}.py" for name in sorted(known - solutions))]


def build(only_compare=False):
    """Write (or only compare) every stub and the README's counts. Returns the lines to print and the problems found."""
    if problems := check_pairs():
        return [], problems
    told = []
    for name in form.names():
        path = source.root() / "exercises" / f"{name}.py"
        if path.exists() and path.read_text(encoding="utf-8") == stubs.stub(name):
            continue
        if only_compare:
            problems.append(f"exercises/{name}.py differs from its solution: make exercises")
        else:
            source.put(path, stubs.stub(name))
            told.append(f"exercises/{name}.py: written")
    path = source.root() / "README.md"
    readme = path.read_text(encoding="utf-8") if path.exists() else ""
    counted = counted_in(readme)
    if counted != readme and only_compare:
        problems.append("README.md counts other exercises or mistakes: make exercises")
    elif counted != readme:
        path.write_text(counted, encoding="utf-8")
        told.append("README.md: its counts of exercises and mistakes")
    return told, problems


def counted_in(readme):
    """The README with the numbers of exercises and of their mistakes."""
    names = form.names()
    mistakes = sum(len(form.exercise(name).mistakes) for name in names)
    return COUNTS.sub(rf"**{len(names)} exercises**\g<1> {mistakes} mistakes", readme)


def main(argv=None):
    parser = argparse.ArgumentParser("build.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
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
