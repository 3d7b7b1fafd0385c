"""The options that the subjects of `python -m flashlab bench` share, each declared once."""

import argparse
import contextlib
import math
import multiprocessing
from functools import partial
from pathlib import Path

from flashlab_course.bench.problems import MASKS


def add_budget_and_out(parser, seconds):
    """What every subject takes. seconds: how long it may measure by default."""
    parser.add_argument("--budget-seconds", type=positive(float, "a number of seconds > 0"), default=seconds, metavar="S",
                        help=f"what is not measured by then is recorded as skipped ({seconds:.0f})")
    parser.add_argument("--out", type=json_path, metavar="JSON", help="the file to write; without it the full set goes to "
                        "results/<what>_<gpu>.json, and a part of it (any other option but --budget-seconds) nowhere")


def add_jobs(parser):
    """How many processes share the cases of a subject that times nothing."""
    parser.add_argument("--jobs", type=positive(int, "an integer >= 1"), default=1, metavar="N",
                        help="processes that share the cases: most of the time goes into compiling kernels (1)")


@contextlib.contextmanager
def in_processes(jobs):
    """each(function, cases) -> the results as they come, in the order of the cases, from so many processes; here if that is 1."""
    if jobs == 1:
        yield map
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:          # leaving ends them, whatever they do
        yield partial(pool.imap, chunksize=4)


def add_sizes(parser, names, *, N, quick_N, d, causal, chosen=None):
    """What a subject takes that runs implementations `names`, `chosen` of them by default, at many sizes."""
    integer, chosen = positive(int, "an integer >= 1"), list(chosen or names)
    parser.add_argument("--N", type=integer, nargs="+", help=f"sequence lengths ({N[0]} ... {N[-1]})")
    parser.add_argument("--d", type=integer, nargs="+", default=list(d), help=f"head dimensions ({' '.join(map(str, d))})")
    parser.add_argument("--causal", choices=list(MASKS), default=causal, help=f"({causal})")
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), nargs="+", default=["bfloat16"], help="(bfloat16)")
    parser.add_argument("--implementations", choices=list(names), nargs="+", metavar="NAME", default=chosen,
                        help=f"among {', '.join(names)} ({'all' if chosen == list(names) else ' '.join(chosen)})")
    parser.add_argument("--quick", action="store_true", help=f"N {' '.join(map(str, quick_N))} only, in one short round")


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
