"""python -m flashlab doctor | check | bench | ladder"""

import argparse
import importlib
import os
import signal
import sys

import flashlab
from flashlab_course import command as typed

COMMANDS = {
    "doctor": ("flashlab_course.doctor", "what this machine can do, and what to fix"),
    "check": ("flashlab_course.check.cli", "check your exercises"),
    "bench": ("flashlab_course.bench.cli", "measure the ladder on a GPU"),
    "ladder": ("flashlab.ladder", "the rungs, and what is new in each"),
}


def print_ladder():
    """RUNGS as a table."""
    from flashlab.ladder import RUNGS

    columns = zip(*((r.title, r.name) for r in RUNGS), strict=True)
    title, name = (max(len(text) for text in column) + 2 for column in columns)
    print(f"{'rung':<6}{'title':<{title}}{'function':<{name}}{'chapter':<9}new")
    for rung in RUNGS:
        print(f"{rung.number:<6}{rung.title:<{title}}{rung.name:<{name}}{rung.chapter:<9}{rung.new}")


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    listing = "\n".join(f"  {name:<8} {text}" for name, (_, text) in COMMANDS.items())
    parser = argparse.ArgumentParser("python -m flashlab", formatter_class=argparse.RawDescriptionHelpFormatter,
                                     usage="%(prog)s [-h] command ...",
                                     epilog=f"commands (each has its own --help):\n{listing}")
    parser.add_argument("--version", action="version", version=f"flashlab {flashlab.__version__}")
    parser.add_argument("command", choices=COMMANDS, metavar="command", help="one of those below")
    sys.stdout = sys.stdout or open(os.devnull, "w")          # noqa: SIM115    it was closed: `>&-`
    typed.readable(sys.stdout, sys.stderr)
    command, rest = parser.parse_args(argv[:1]).command, argv[1:]     # what follows belongs to the command
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:             # flashlab/__init__.py says why
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = run(command, rest)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130                                            # as a shell says of what Ctrl-C ended
    except BrokenPipeError:                                   # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())     # nor is there anyone to flush to at the end
        return 1
    except OSError as error:
        if error.filename is not None:                        # not stdout, which has none
            raise
        print(f"the output could not be written: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def run(command, rest):
    if command == "ladder":
        argparse.ArgumentParser("python -m flashlab ladder", description=print_ladder.__doc__).parse_args(rest)
        print_ladder()
        return 0
    main = importlib.import_module(COMMANDS[command][0]).main
    if command != "bench":
        return main(rest)
    yours = lambda what: importlib.import_module("flashlab_course.lesson.yours").implementations(what)
    return main(rest, yours=yours)


if __name__ == "__main__":
    sys.exit(main())
