"""Attention measured on a GPU, recorded with everything needed to do it again: `python -m flashlab bench [what]`.

Without `what` it is forward.
"""

import argparse
import shlex
import sys

import torch

from flashlab_course.bench import (
    backward,
    counters,
    decode,
    forward,
    fp8,
    gpt,
    hopper,
    launch,
    parts,
    results,
    spans,
    tune,
)
from flashlab_course.bench.basics import sections
from flashlab_course.bench.options import add_common
from flashlab_course.bench.timing import deadline

# Each has SECONDS, add_arguments(parser), pieces(args), see results.collect; and why_not() if it needs more than a GPU.
SUBJECTS = {"forward": forward, "backward": backward, "counters": counters, "basics": sections, "tune": tune,
            "launch": launch, "parts": parts, "spans": spans, "decode": decode, "fp8": fp8, "gpt": gpt,
            "hopper": hopper}

NO_GPU = """bench measures on a GPU, and on this machine {why}.
Instead: in the course's repository recorded results are in results/, notebooks/16_benchmarks.ipynb plots them, and
docs/install.md says how to use a remote GPU; here `python -m flashlab doctor` says what this machine can do."""


def parsers():
    """The command's parser, and that of each subject by name."""
    formatted = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser("python -m flashlab bench", description=__doc__, **formatted)
    adder = parser.add_subparsers(dest="what", metavar="what", required=True, title="what, each with its own --help")
    each = {}
    for name, subject in SUBJECTS.items():
        words = {"help": subject.__doc__.splitlines()[0], "description": subject.__doc__}
        each[name] = adder.add_parser(name, **words, **formatted)
        subject.add_arguments(each[name])
        add_common(each[name], subject.SECONDS)
    return parser, each


def main(argv=None, yours=None):
    """Returns 0 if something was measured. yours: (what) -> {name: forward}, which --yours adds."""
    argv = sys.argv[1:] if argv is None else argv
    named = argv and (argv[0] in ("-h", "--help") or not argv[0].startswith("-"))
    parser, each = parsers()
    args = parser.parse_args(argv if named else ["forward", *argv])
    subject = SUBJECTS[args.what]
    if why := results.why_no_gpu() or getattr(subject, "why_not", lambda: "")():
        print(NO_GPU.format(why=why), file=sys.stderr)
        return 2
    args.own = {}
    if getattr(args, "yours", False):
        args.own = yours(args.what)
        if not args.own:
            parser.error(f"--yours: your {args.what} kernel has not passed yet; `python -m flashlab check` says how "
                         "far it is")
    out, label = args.out, args.label
    if is_full_set(args, each[args.what]):
        label = label or "all"
        out = out or results.ROOT / "results" / f"{args.what}_{results.gpu_slug(torch.cuda.get_device_name())}.json"
    if out and out.exists():
        results.read(out)                              # a file that cannot take the run says so first
    args.expired = deadline(args.budget_seconds)
    run = results.start(args.what, shlex.join(["python", "-m", "flashlab", "bench", *argv]), label or shlex.join(argv))
    results.collect(run, subject.pieces(args), out)
    print(f"wrote {out}" if out else "nothing written: name a file with --out")
    return 0 if results.measured(run) else 1


def is_full_set(args, parser):
    """Whether everything is measured that the subject measures by default."""
    free = ("what", "out", "label", "budget_seconds", "own")      # options that do not choose what is measured
    return all(value == parser.get_default(name) for name, value in vars(args).items() if name not in free)
