"""The options that the subjects of `python -m flashlab bench` share, each declared once."""

import argparse
import math
from pathlib import Path

from flashlab_course.bench.problems import MASKS


def add_common(parser, seconds):
    """What every subject takes. seconds: how long it may measure by default."""
    number = positive(float, "a number of seconds > 0")
    words = f"what is not measured by then is recorded as skipped ({seconds:.0f})"
    parser.add_argument("--budget-seconds", type=number, default=seconds, metavar="S", help=words)
    words = ("the file to write; without it the full set goes to results/<what>_<gpu>.json, and a part of it "
             "(any other option but --budget-seconds) nowhere")
    parser.add_argument("--out", type=json_path, metavar="JSON", help=words)
    words = "the run's name in that file, in place of one of that name (the full set: all; a part: the command)"
    parser.add_argument("--label", help=words)


def add_sizes(parser, names, *, N, quick_N, d, causal, chosen=None):
    """What a subject takes that runs implementations `names`, `chosen` of them by default, at many sizes."""
    chosen = list(chosen or names)
    add_integers(parser, "--N", None, f"sequence lengths ({N[0]} ... {N[-1]})")
    add_integers(parser, "--d", d, "head dimensions")
    parser.add_argument("--causal", choices=list(MASKS), default=causal, help=f"({causal})")
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), nargs="+", default=["bfloat16"], help="(bfloat16)")
    add_names(parser, "--implementations", names, chosen)
    words = f"N {' '.join(map(str, quick_N))} only, in one short round"
    parser.add_argument("--quick", action="store_true", help=words)


def add_integers(parser, name, default, words):
    """An option that takes one or more integers >= 1."""
    shown = f" ({' '.join(map(str, default))})" if default else ""
    parser.add_argument(name, type=positive(int, "an integer >= 1"), nargs="+", default=default and list(default),
                        help=words + shown)


def add_names(parser, option, names, chosen=None):
    """An option that takes one or more of these names, all of them by default."""
    chosen = list(chosen or names)
    parser.add_argument(option, choices=list(names), nargs="+", metavar="NAME", default=chosen,
                        help=f"among {', '.join(names)} ({'all' if chosen == list(names) else ' '.join(chosen)})")


def positive(convert, words):
    """A type for argparse. words: what is expected."""
    def parse(text):
        try:
            value = convert(text)
        except ValueError:
            value = 0
        if not 0 < value < math.inf:
            raise argparse.ArgumentTypeError(f"expected {words}, got {text!r}")
        return value

    return parse


def json_path(text):
    """A type for argparse."""
    if Path(text).is_dir() or not text.endswith(".json"):
        raise argparse.ArgumentTypeError(f"expected the path of a .json file, got {text!r}")
    return Path(text)
