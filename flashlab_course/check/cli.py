"""python -m flashlab check [EX ...] [--hint] [--watch] [--debug] [--reset EX ...] [--solutions]"""

import argparse
import textwrap
import time

from flashlab_course import command
from flashlab_course.check import checker, form, overview, progress, source, stubs

PAUSE = 0.3                    # seconds between two looks at a file that is watched


def main(argv=None):
    """Returns 0 if everything that was checked passed."""
    parser = argparse.ArgumentParser("python -m flashlab check",
                                     description="Check your exercises; without a name, all that you have begun.")
    parser.add_argument("exercises", nargs="*", metavar="EX",
                        help="such as ex06_fa2_inner_loop, or the start of a name: ex06")
    parser.add_argument("--hint", action="store_true", help="show one hint more at each call")
    parser.add_argument("--watch", action="store_true",
                        help="check whenever the file is saved; after a pass, the next exercise")
    parser.add_argument("--debug", action="store_true",
                        help="step through the smallest case that fails, with Python's debugger")
    parser.add_argument("--reset", metavar="EX", nargs="+",
                        help="restore these stubs; your versions are kept beside them")
    parser.add_argument("--solutions", action="store_true",
                        help="show the solution of the exercises that you have passed")
    args = parser.parse_args(argv)
    try:
        return _run(parser, args)
    except source.SourceError as error:
        parser.error(str(error))


def _run(parser, args):
    if args.reset:
        if args.exercises or args.hint or args.watch or args.debug or args.solutions:
            parser.error("--reset goes with no other option, and takes the exercises itself: --reset EX ...")
        return reset([_one(parser, text) for text in args.reset])
    chosen = [name for text in args.exercises for name in _named(parser, text)]
    if args.solutions:
        return show_solutions(chosen or form.names(), ask_for_all=bool(chosen))
    if args.watch or args.debug:
        if len(chosen) > 1 or args.debug and not chosen:
            parser.error(f"--{'debug' if args.debug else 'watch'} takes one exercise{_which(chosen)}")
        return debug(*chosen) if args.debug else watch(*chosen)
    if len(chosen) == len(args.exercises) > 0:             # each name or beginning stands for one
        return check_these(chosen, args.hint)
    if args.hint:
        parser.error(f"--hint takes an exercise{_which(chosen) or f': {overview.Overview.now().next}?'}")
    return show_overview(chosen)


def _named(parser, text):
    """Full names of exercises; a beginning stands for all that start with it."""
    found = overview.matches(text)
    if not found:
        parser.error(f"argument EX: no exercise {text!r}; did you mean {', '.join(overview.similar(text))}? "
                     f"`{command.line('check')}` lists them all.")
    return found


def _one(parser, text):
    """The full name of one exercise."""
    found = _named(parser, text)
    if len(found) > 1:
        parser.error(f"argument --reset: {text!r} begins {len(found)} exercises, name those that you mean: "
                     f"{', '.join(found)}")
    return found[0]


def _which(chosen):
    return f": {', '.join(chosen)}?" if chosen else ""


def check_these(chosen, hint):
    reports = [checker.checked(name, hint=hint, terminal=True) for name in chosen]
    print("\n\n".join(str(report) for report in reports))
    return 0 if all(report.passed for report in reports) else 1


def show_overview(names=()):
    """Every exercise, or these, with its state; those begun are checked. Not begun is no failure."""
    rows, failed, lost = [], [], ""
    print(overview.HEADING)
    for row in overview.Overview.now(names).rows:
        name, text, state = row[0], stubs.present(row[0]), row[-1]
        if text is not None and stubs.begun(name, text):
            report = checker.checked(name, terminal=True)
            state = overview.PASSED if report.passed else f"not yet: {report.mistake or 'wrong answers'}"
            failed += [] if report.passed else [report]
            lost = lost or next((line for line in report.offer.split("\n") if line.startswith(checker.UNREMEMBERED)),
                                "")
        elif state == overview.PASSED:
            state = "passed in a notebook"
        print(overview.row_text(*row[:-1], state), flush=True)
        known = state if state in (overview.PASSED, overview.NOT_BEGUN) else overview.BEGUN
        rows.append((*row[:-1], overview.PASSED if row[-1] == overview.PASSED else known))
    for report in failed:
        print(f"\n{report}")
    print(f"\n{overview.Overview(rows).last_line()}" + (lost and f"\n{lost}"))
    return 1 if failed else 0


def debug(name):
    report = checker.checked(name, debug=True, terminal=True)
    if not report.cases:                                   # nothing ran that the debugger could have stepped through
        print(report)
    return 0 if report.passed else 1


def watch(name=None):
    """Check the exercise whenever it is saved, and after a pass the next one, until all have passed or Ctrl-C."""
    name, seen = name or overview.Overview.now().next, None
    try:
        while name is not None:
            stamp = _stamp(name)
            if stamp == seen:
                pause()
                continue
            report, seen = checker.checked(name, terminal=True), stamp
            print(f"\n{'─' * 100}\n{report}", flush=True)
            if report.passed:
                name, seen = overview.after(name), None
                print(f"\nNext: {name}" if name else "", flush=True)
            else:
                print(f"\nWaiting for exercises/{name}.py to be saved. Ctrl-C ends it.", flush=True)
        print("Every exercise has passed.")
    except KeyboardInterrupt:
        print()
    return 0


def pause():
    time.sleep(PAUSE)


def _stamp(name):
    try:
        status = source.exercise_path(name).stat()
    except OSError:                                    # an editor replaces the file at this moment, or it is not there
        return ()
    return status.st_mtime_ns, status.st_size


def reset(names):
    """Returns 0 if all of these are stubs again."""
    for name in names:
        try:
            _reset(name)
        except OSError as error:
            print(f"exercises/{name}.py could not be written: {error.strerror or error}")
            return 1
    return 0


def _reset(name):
    path = source.exercise_path(name)
    if stubs.present(name) not in (None, stubs.stub(name)):
        kept = _free_place(path)
        path.rename(kept)
        print(f"your version is kept as exercises/{kept.name}")
    stubs.write(name)
    lost = progress.update(name, passed=False, hints=0, file="")
    print(f"exercises/{name}.py is the stub again{lost and f'; {lost}'}")


def _free_place(path):
    """exercises/ex....mine.py, or .mine2.py where that is taken."""
    n = 1
    while (kept := path.with_name(f"{path.stem}.mine{n if n > 1 else ''}.py")).exists():
        n += 1
    return kept


def show_solutions(names, ask_for_all):
    """The solutions of passed exercises only."""
    passed = [name for name in names if progress.of(name)["passed"]]
    for name in passed:
        print(f"{name}\n{textwrap.indent(textwrap.dedent(form.exercise(name).parsed.answer()), '    ')}\n")
    for name in set(names) - set(passed) if ask_for_all else ():
        print(f"{name}: its solution is shown here once it passes (`{command.line('check', name, '--hint')}` helps on "
              "the way)")
    if not passed and not ask_for_all:
        print("no exercise has passed yet")
    return 0 if passed or not ask_for_all else 1
