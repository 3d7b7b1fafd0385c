"""Run a peer's own tests against flashlab. README.md says which peers there are, and what came of it."""

import argparse
import json
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]
PEERS = {                                              # its tests, within its checkout
    "flash-attention": "tests/test_flash_attn.py",
    "cs336": "tests/test_attention.py",
    "pytorch": None,                                   # installed with torch: sdpa_samples.py
    "transformers": "tests/models",
}
# in the names of those of transformers' tests that compare attentions
COMPARING = "sdpa|flash_attn_2|flash_attention_2|fa2"
MODELS = "llama", "mistral", "gpt2", "gemma3", "bert", "modernbert", "vit", "bart"    # as in tests/test_huggingface.py


def main(argv=None):
    args = arguments().parse_args(argv)
    if (PEERS[args.peer] is None) != (args.checkout is None):
        sys.exit(f"{args.peer} {'needs a' if PEERS[args.peer] else 'has no'} CHECKOUT")
    tests = Path(args.checkout, PEERS[args.peer]).resolve() if args.checkout else HERE / "sdpa_samples.py"
    if not tests.exists():
        sys.exit(f"CHECKOUT must have {PEERS[args.peer]}, got {args.checkout}")
    import pytest
    import torch

    device = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    about = {"peer": args.peer, "commit": args.commit or commit(args.checkout), "device": device,
             "torch": torch.__version__,
             "command": shlex.join(["python", "tests/peers/run.py", *(sys.argv[1:] if argv is None else argv)])}
    files = [tests]
    if args.peer == "transformers":
        files = [tests / model / f"test_modeling_{model}.py" for model in MODELS]
        args.tests, about["transformers"] = args.tests or COMPARING, version("transformers")
    options = {
        "--peer": args.peer, "--checkout": args.checkout and Path(args.checkout).resolve(), "--on": args.device,
        "--tests": args.tests, "--longest": args.longest, "--one-in": args.one_in, "--part": args.part, "-k": args.k,
        "-n": args.workers, "--report": Path(args.out or f"{args.peer}.json").resolve(),
        "--about": json.dumps(about), "--rootdir": args.checkout or HERE,
    }
    sys.exit(pytest.main([
        *map(str, files), "-p", "plugin", "-p", "no:cacheprovider", "-c", "/dev/null", "-q",
        "--tb=short", "--no-header",
        *(str(word) for option in options.items() if option[1] is not None for word in option),
    ]))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split(". ")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("checkout", nargs="?", help="a clone of the peer's repository; none for pytorch")
    parser.add_argument("--tests", help="only tests with names that this regular expression finds")
    parser.add_argument("-k", help="of the cases that are left, only those that pytest's -k selects")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cpu: instead of a GPU, too")
    parser.add_argument("--longest", type=int, help="leave out tests with longer sequences")
    parser.add_argument("--one-in", type=int, default=1, help="of each test, one case in so many, always the same ones")
    parser.add_argument("--part", help="of what is left, part I of N, as I/N: a long run in several goes")
    parser.add_argument("--workers", type=int, help="processes, with pytest-xdist")
    parser.add_argument("--out", help="the results, as JSON; PEER.json unless given")
    parser.add_argument("--commit", help="the peer's commit, where the checkout does not say")
    return parser


def commit(checkout):
    """The checkout's commit, if it is a clone; None without one."""
    if checkout is None:
        return None
    found = subprocess.run(["git", "-C", checkout, "rev-parse", "--show-toplevel", "HEAD"], capture_output=True,
                           text=True)
    top, head = found.stdout.split() if found.returncode == 0 else (None, None)
    return head if top and Path(top) == Path(checkout).resolve() else "unknown"


if __name__ == "__main__":
    main()
