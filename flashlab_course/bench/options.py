"""The options that the subjects of `python -m flashlab bench` share."""

import argparse
import math
from pathlib import Path

from flashlab_course.bench.problems import MASKS


def add_common(parser, seconds):
    """The options of every subject. seconds: how long it may measure by default."""
    words = f"rows not measured by then are recorded as skipped ({seconds:.0f})"
    parser.add_argument("--budget-seconds", type=duration, default=seconds, metavar="S", help=words)
    words = ("the file to write; without it the full set goes to results/<what>_<gpu>.json, and a part of it "
             "(any other option but --budget-seconds) nowhere")
    parser.add_argument("--out", type=json_path, metavar="JSON", help=words)
    words = "the run's name in that file, in place of one of that name (the full set: all; a part: the command)"
    parser.add_argument("--label", help=words)


def add_sizes(parser, implementations, *, N, d, causal, chosen=None):
    """The options of a subject that runs implementations, `chosen` of them by default, at many sizes."""
    add_integers(parser, "--N", N, "sequence lengths")
    add_integers(parser, "--d", d, "head dimensions")
    parser.add_argument("--causal", choices=list(MASKS), default=causal, help=f"({causal})")
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), nargs="+", default=["bfloat16"], help="(bfloat16)")
    add_names(parser, "--implementations", implementations, chosen)


def add_integers(parser, name, default, words):
    """An option that takes one or more integers >= 1."""
    words = f"{words} ({' '.join(map(str, default))})"
    parser.add_argument(name, type=integer, nargs="+", default=list(default), help=words)


def add_names(parser, option, names, chosen=None):
    """An option that takes one or more of these names, all of them by default."""
    words = f"among {', '.join(names)} ({' '.join(chosen or ['all'])})"
    parser.add_argument(option, choices=list(names), nargs="+", metavar="NAME", default=list(chosen or names),
                        help=words)


def integer(text):
    """A type for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected an integer >= 1, got {text!r}")
    return int(text)


def duration(text):
    """A type for argparse."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of seconds > 0, got {text!r}")
    return seconds


def json_path(text):
    """A type for argparse."""
    if Path(text).is_dir() or not text.endswith(".json"):
        raise argparse.ArgumentTypeError(f"expected the path of a .json file, got {text!r}")
    return Path(text)
