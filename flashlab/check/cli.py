"""python -m flashlab check [EX ...] [--hint] [--reset EX] [--solutions]"""

import argparse
import textwrap

from flashlab.check import checker, form, progress, source, stubs


def main(argv=None):
    """Returns 0 if everything that was checked passed."""
    parser = argparse.ArgumentParser("python -m flashlab check",
                                     description="Check your exercises; without a name, all that you have begun.")
    parser.add_argument("exercises", nargs="*", metavar="EX", help="such as ex06_fa2_inner_loop, or the start of a name: ex06")
    parser.add_argument("--hint", action="store_true", help="show one hint more at each call")
    parser.add_argument("--reset", metavar="EX", help="restore one stub; your version is kept beside it")
    parser.add_argument("--solutions", action="store_true", help="show the solution of the exercises that you have passed")
    args = parser.parse_args(argv)
    if args.reset:
        return reset(_named(parser, [args.reset]))
    chosen = _named(parser, args.exercises)
    if args.solutions:
        return show_solutions(chosen or form.names(), ask_for_all=bool(chosen))
    if chosen:
        return check_these(chosen, args.hint)
    return overview()


def _named(parser, wanted):
    """Full names of exercises; a beginning stands for all that start with it."""
    found = []
    for text in wanted:
        text = text.removesuffix(".py").rpartition("/")[2]
        hits = [name for name in form.names() if name == text] or [name for name in form.names() if name.startswith(text)]
        if not hits:
            parser.error(f"argument EX: no exercise {text!r}; there are {', '.join(form.names())}")
        found += hits
    return found


def check_these(chosen, hint):
    reports = [checker.check(name, hint=hint) for name in chosen]
    print("\n\n".join(str(report) for report in reports))
    return 0 if all(report.passed for report in reports) else 1


def overview():
    """Every exercise, with its state; those begun are checked. Not begun is no failure."""
    failed, left = [], []
    print(f"{'exercise':<28}{'minutes':>8}  {'level':<7}state")
    for name in form.names():
        exercise, text = form.exercise(name), stubs.present(name)
        state = "not begun"
        if text is not None and stubs.begun(name, text):
            report = checker.check(name)
            state = "passed" if report.passed else f"not yet: {report.mistake or 'wrong answers'}"
            failed += [] if report.passed else [report]
        elif progress.of(name)["passed"]:
            state = "passed in a notebook"
        left += [name] if state == "not begun" else []
        print(f"{name:<28}{exercise.head.minutes:>8}  {'•' * exercise.head.difficulty:<7}{state}", flush=True)
    for report in failed:
        print(f"\n{report}")
    done = sum(progress.of(name)["passed"] for name in form.names())
    print(f"\n{done} of {len(form.names())} passed." + (f" Next: {left[0]}." if left else ""))
    return 1 if failed else 0


def reset(names):
    for name in names:
        path = source.exercise_path(name)
        if stubs.present(name) not in (None, stubs.stub(name)):
            kept = _free_place(path)
            path.rename(kept)
            print(f"your version is kept as exercises/{kept.name}")
        stubs.write(name)
        progress.update(name, passed=False, hints=0)
        print(f"exercises/{name}.py is the stub again")
    return 0


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
        print(f"{name}: its solution is shown here once it passes (`python -m flashlab check {name} --hint` helps on the way)")
    if not passed and not ask_for_all:
        print("no exercise has passed yet")
    return 0 if passed or not ask_for_all else 1
