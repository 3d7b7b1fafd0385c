"""python -m flashlab check [--hint | --watch | --debug | --reset | --solutions] [EX ...]"""

import argparse
import contextlib
import sys
import textwrap
from time import sleep

from flashlab_course import command
from flashlab_course.check import checker, failing, form, overview, progress, source, stubs

WAYS = {"hint": "show one hint more at each call",
        "watch": "check whenever the file is saved; after a pass, the next exercise",
        "debug": "step through the smallest case that fails, with Python's debugger",
        "reset": "restore the stub; your version is kept beside it",
        "solutions": "show the solution of the exercises that you have passed"}


def main(argv=None):
    """Returns 0 if everything that was checked passed."""
    parser = argparse.ArgumentParser("python -m flashlab check",
                                     description="Check your exercises; without a name, all that you have begun.")
    parser.add_argument("exercises", nargs="*", metavar="EX",
                        help="such as ex06_fa2_inner_loop, or the start of a name: ex06")
    ways = parser.add_mutually_exclusive_group()
    for way, words in WAYS.items():
        ways.add_argument(f"--{way}", action="store_const", const=way, dest="way", help=words)
    args = parser.parse_args(argv)
    try:
        names = [name for text in args.exercises for name in overview.matches(text)]
        return _run(args.way, names, bool(names) and len(names) == len(args.exercises))
    except (source.SourceError, checker.Unusable) as error:
        print(error, file=sys.stderr)
        return 1


def _run(way, names, one_each):
    if way == "solutions":
        return show_solutions(names)
    if way == "watch" and len(names) < 2:
        return watch(*names or [overview.Overview.now().next])
    if way is None and not one_each:
        return show_overview(names)
    if not one_each or way == "watch":
        raise source.SourceError(f"--{way} needs the name of an exercise: {', '.join(names) or form.names()[0]}?")
    if way == "reset":
        return reset(names)
    reports = [checker.checked(name, hint=way == "hint", terminal=True) for name in names]
    print("\n\n".join(map(str, reports)))
    for report in reports * (way == "debug"):
        failing.step(report)
    return 0 if all(reports) else 1


def watch(name):
    """Check the exercise whenever it is saved, and after a pass the next one, until all have passed or Ctrl-C."""
    seen = None
    with contextlib.suppress(KeyboardInterrupt):
        while name is not None:
            if seen != (name, text := stubs.present(name)):
                seen, report = (name, text), checker.checked(name, terminal=True)
                print(f"\n{'─' * 100}\n{report}\n\nEach save is checked. Ctrl-C ends it.", flush=True)
                name = overview.Overview.now().next if report else name
            sleep(0.3)
        print("Every exercise has passed.")
    return 0


def show_overview(names=()):
    """Every exercise, or these, with its state; those begun are checked. Not begun is no failure."""
    failed, states = [], overview.Overview.now(names).states
    print(overview.HEADING)
    for name, state in states.items():
        if stubs.own_text(name) is not None:
            report = checker.checked(name, terminal=True)
            state = overview.PASSED if report else f"not yet: {report.mistake or 'wrong answers'}"
            failed += [] if report else [report]
        print(overview.row_text(name, state), flush=True)
    for report in failed:
        print(f"\n{report}")
    print(f"\n{overview.Overview.now(names).last_line()}")
    return 1 if failed else 0


def reset(names):
    for name in names:
        path, kept = source.exercise_path(name), None
        try:
            if stubs.present(name) not in (None, stubs.stub(name)):
                kept = source.set_aside(path, "mine")
            stubs.write(name)
        except OSError as error:
            if kept:
                kept.replace(path)
            print(f"{source.shown_path(name)} stays as it is: {error.strerror or error}")
            return 1
        if kept:
            print(f"your version is kept as {kept.name}")
        lost = progress.update(name, passed=False, hints=0, file="")
        print(f"{source.shown_path(name)} is the stub again{lost and f'; {lost}'}")
    return 0


def show_solutions(names):
    """The solutions of passed exercises. Returns 0 if there is one."""
    passed = [name for name in names or form.names() if progress.of(name)["passed"]]
    for name in passed:
        print(f"{name}\n{textwrap.indent(form.exercise(name).parsed.answer(), '    ')}\n")
    for name in set(names) - set(passed):
        print(f"{name}: its solution is shown here once it passes (`{command.line('check', name, '--hint')}` helps on "
              "the way)")
    return 0 if passed else 1
