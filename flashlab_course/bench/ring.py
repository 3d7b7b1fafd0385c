"""Ring attention on the GPUs of one host against flash_attention on one of them, at the same length of the sequence.

    torchrun --nproc-per-node 4 -m flashlab_course.bench.ring --out results/ring_h200.json

First rank 0 alone runs flash_attention over all N, while the others wait; then all of them are a ring. Every result is
checked before it is timed.
"""

import argparse
import faulthandler
import os
import shlex
import sys
import time
from datetime import timedelta
from functools import partial
from itertools import product
from typing import NamedTuple

import torch
import torch.distributed as dist

from flashlab import oracle
from flashlab.operator import ring
from flashlab.operator.attention import flash_attention
from flashlab_course.bench import checks, timing
from flashlab_course.bench.options import add_common, add_integers
from flashlab_course.bench.problems import drawn
from flashlab_course.bench.results import collect, measured, start

MODES = {"all": (False, False), "causal, zig-zag": (True, True), "causal, in order": (True, False)}    # causal, zigzag
PASSES = ("forward", "forward+backward")
SIZES = (32768, 65536, 131072, 262144)
START_SECONDS = 35                     # of the whole job: starting Python, compiling, the last measurement


class Case(NamedTuple):
    """One computation, by any number of ranks."""

    N: int
    mode: str
    passes: str
    H: int = 16
    d: int = 128
    dtype: str = "bfloat16"

    @property
    def causal(self):
        return MODES[self.mode][0]

    def tensors(self, device):
        """Q, K, V and dO of the whole sequence, the same in every process."""
        normal = drawn(self.N, device, getattr(torch, self.dtype))
        return [normal(1, self.H, self.N, self.d) for _ in range(4)]


class Ring(NamedTuple):
    """The processes that compute: rank 0 alone, or all. control: a group over gloo, for messages about the run."""

    ranks: int
    device: torch.device
    control: object

    def shard(self, X, mode):
        """This process's rows of X (1, H, N, d)."""
        rank = dist.get_rank()
        if mode == "causal, zig-zag":
            return ring.zigzag_shard(X, rank, self.ranks)
        return X.chunk(self.ranks, 2)[rank].contiguous()

    def gather(self, value):
        """The values of all its processes."""
        found = [value] * self.ranks
        if self.ranks > 1:
            dist.all_gather_object(found, value, group=self.control)
        return found


def run_once(compute, Q, K, V, dO, case):
    """O and L, and the gradients where the case has them."""
    if case.passes == PASSES[0]:
        with torch.no_grad():
            return compute(Q, K, V)
    leaves = [T.detach().requires_grad_() for T in (Q, K, V)]
    O, L = compute(*leaves)
    return O.detach(), L.detach(), *torch.autograd.grad(O, leaves, dO)


def check(function, case, team):
    """What is wrong with this process's rows of the last head, in words, or None.

    One GPU's result for that head is compared with float64, and this process's rows with one GPU's, to 8 roundings.
    """
    head = [T[:, -1:] for T in case.tensors(team.device)]
    one_gpu = run_once(partial(flash_attention, causal=case.causal, return_lse=True), *head, case)
    if reason := checks.check(lambda: one_gpu[:2], *head[:3], causal=case.causal)["skipped"]:
        return reason
    for name, T, of_all in zip(("O", "L", "dQ", "dK", "dV"), function(), one_gpu, strict=False):
        mine, theirs = T[:, -1:], team.shard(of_all.reshape(1, 1, case.N, -1), case.mode)
        bound = 8 * torch.finfo(head[0].dtype).eps * theirs.abs().max().item()
        if not (error := oracle.max_error(mine.reshape(theirs.shape), theirs)) <= bound:
            return f"{name} is {error:.2e} off one GPU's, allowed {bound:.2e}"
    return None


def times(function, team):
    """ms a call, of several batches of calls in a row; a call of a second is long enough to be timed once."""
    def batch(calls):
        """ms a call. All processes begin together, and the slowest counts."""
        wait = torch.cuda.synchronize if team.device.type == "cuda" else lambda: None
        wait()
        team.gather("here")
        began = time.perf_counter()
        for _ in range(calls):
            function()
        wait()
        return max(team.gather((time.perf_counter() - began) * 1e3 / calls))

    once = batch(1)
    if once > 1000:
        return [once]
    calls = min(20, max(1, int(50 / once)))
    return [batch(calls) for _ in range(5 if once < 150 else 1)]


def measure(case, team):
    """A row, without the speed-up, which needs one GPU's time."""
    compute = partial(flash_attention, causal=case.causal, return_lse=True)
    if team.ranks > 1:
        compute = partial(ring.ring_attention, causal=case.causal, zigzag=MODES[case.mode][1], return_lse=True)
    tensors = [team.shard(T, case.mode) for T in case.tensors(team.device)]
    function = partial(run_once, compute, *tensors, case)
    wrong = [reason for reason in team.gather(check(function, case, team)) if reason]
    refused = {"skipped": f"refused: {'; '.join(wrong)}" if wrong else None}
    timed = timing.measure({"it": function}, lambda call: refused, 1, timer=partial(times, team=team))["it"]
    held = sum(T.nbytes for T in tensors) + (timing.peak_bytes(function) or 0)
    return case._asdict() | {"B": 1, "ranks": team.ranks} | timed | {"peak_bytes": max(team.gather(held))}


def pieces(cases, device, expired):
    """A row for every case on one GPU and on all, the same in every process."""
    control, of_one = dist.new_group(timeout=timedelta(seconds=600), backend="gloo"), {}

    def from_rank_0(value):
        found = [value]
        dist.broadcast_object_list(found, src=0, group=control)
        return found[0]

    for case, ranks in product(cases, (1, dist.get_world_size())):
        same = case.N, case.causal, case.passes        # for one GPU all orders are the same
        if ranks == 1 and same in of_one:
            continue
        if from_rank_0(expired()):
            row = case._asdict() | {"ranks": ranks, "ms": None, "skipped": timing.OUT_OF_TIME}
        else:
            mine = measure(case, Ring(ranks, device, control)) if dist.get_rank() < ranks else None
            row = from_rank_0(mine)
        if ranks == 1:
            of_one[same] = row["ms"]
        row["speedup"] = round(of_one[same] / row["ms"], 4) if of_one[same] and row["ms"] else None
        yield "rows", [row]


def arguments(argv):
    """The options, the same in every process."""
    parser = argparse.ArgumentParser(
        "torchrun --nproc-per-node 4 -m flashlab_course.bench.ring",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_integers(parser, "--N", SIZES, "rows of the whole sequence")
    words = "cpu: one small head over gloo, to see that it runs (cuda)"
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help=words)
    add_common(parser, 110.0)
    args = parser.parse_args(argv)
    if "RANK" not in os.environ:
        parser.error(f"torchrun starts it, one process a GPU: {parser.prog}")
    world = int(os.environ["WORLD_SIZE"])
    if world < 2:
        parser.error(f"it wants 2 processes or more, got {world}")
    for N in args.N:
        if N % (2 * world):
            parser.error(f"--N must be a multiple of {2 * world}, two chunks for each rank, got {N}")
    return args


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    args = arguments(argv)
    # a ring that hangs ends, and says where
    faulthandler.dump_traceback_later(args.budget_seconds + START_SECONDS, exit=True)
    device, sizes = torch.device("cpu"), {"H": 1, "d": 16, "dtype": "float32"}
    if args.device == "cuda":
        device, sizes = torch.device("cuda", int(os.environ["LOCAL_RANK"])), {}
        torch.cuda.set_device(device)
    # no device_id: then every new group is split off this one
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo", timeout=timedelta(seconds=60))
    # "in order" is timed in one pass only: that is enough to show that it is slow
    cases = [Case(N, mode, passes, **sizes) for N, mode, passes in product(args.N, MODES, PASSES)
             if mode != "causal, in order" or passes == PASSES[0]]
    world, first = os.environ["WORLD_SIZE"], dist.get_rank() == 0
    command = ["torchrun", "--nproc-per-node", world, "-m", "flashlab_course.bench.ring", *argv]
    run = start("ring", shlex.join(command), args.label or shlex.join([world, "GPUs", *argv]))
    say = print if first else lambda *_, **__: None
    collect(run, pieces(cases, device, timing.deadline(args.budget_seconds)), args.out if first else None, say)
    say(f"{len(measured(run))} rows measured,", f"wrote {args.out}" if args.out else "nothing written without --out")
    dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()
    if any((row["skipped"] or "").startswith("refused") for row in run["rows"]):
        raise SystemExit("a ring is wrong: see above")


if __name__ == "__main__":
    main()
