"""Ring attention on the GPUs of one host against flash_attention on one of them, at the same length of the sequence.

    torchrun --nproc-per-node 4 -m flashlab_course.bench.ring --out results/ring_h200.json

Rank 0 alone is the ring of one: flash_attention over all N, while the others wait. Then all of them are a ring. Every
result is checked before it is timed. A ring is timed three ways: as it is, computing without sending, and sending
without computing; what the first takes beyond the second is communication that was not hidden.
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

from flashlab import cost, oracle
from flashlab.operator import ring
from flashlab.operator.attention import flash_attention
from flashlab_course.bench import checks, timing
from flashlab_course.bench.options import add_common, add_integers, add_names, positive
from flashlab_course.bench.problems import drawn
from flashlab_course.bench.results import collect, measured, start

MODES = {"all": (False, False), "causal, zig-zag": (True, True), "causal, in order": (True, False)}    # causal, zigzag
PASSES = ("forward", "forward+backward")
SIZES = (32768, 65536, 131072, 262144)
START_SECONDS = 35                     # of the whole job: starting Python, compiling, the last measurement


class Case(NamedTuple):
    """What is computed, whatever the number of ranks."""

    N: int
    H: int
    d: int
    mode: str
    passes: str
    dtype: str

    @property
    def causal(self):
        return MODES[self.mode][0]

    @property
    def flops(self):
        once = cost.attention_flops(1, self.H, self.N, self.N, self.d, self.d, causal=self.causal)
        return once * (3.5 if self.passes == PASSES[1] else 1)     # backward: five matrix products to forward's two


class Ring(NamedTuple):
    """The processes that compute: rank 0 alone, or all. control: a group over gloo, for what no GPU has to know."""

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
        """What each of its processes has there."""
        if self.ranks == 1:
            return [value]
        found = [None] * self.ranks
        dist.all_gather_object(found, value, group=self.control)
        return found


def whole(case, device):
    """Q, K, V and dO of the whole sequence, the same in every process."""
    normal = drawn(case.N, device, getattr(torch, case.dtype))
    return [normal(1, case.H, case.N, case.d) for _ in range(4)]


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

    One GPU's result for that head is held against float64, and this process's rows against one GPU's, to 8 roundings.
    """
    head = [T[:, -1:] for T in whole(case, team.device)]
    one_gpu = run_once(partial(flash_attention, causal=case.causal, return_lse=True), *head, case)
    if reason := checks.check(lambda: one_gpu[:2], *head[:3], case.causal)["skipped"]:
        return reason
    for name, T, of_all in zip(("O", "L", "dQ", "dK", "dV"), function(), one_gpu, strict=False):
        mine, theirs = T[:, -1:], team.shard(of_all.reshape(1, 1, case.N, -1), case.mode)
        bound = 8 * torch.finfo(head[0].dtype).eps * theirs.abs().max().item()
        if not (error := oracle.max_error(mine.reshape(theirs.shape), theirs)) <= bound:
            return f"{name} is {error:.2e} off one GPU's, allowed {bound:.2e}"
    return None


def times(function, team, budget_ms=150):
    """ms a call, of several batches of calls in a row, each the slowest process's."""
    once = batch(function, 1, team)
    calls = int(min(20, max(1, budget_ms / 3 // once)))
    batches = 5 if once < budget_ms else 1 if once < 1000 else 0   # a call of a second is long enough to be timed once
    return ([once] if calls == 1 else []) + [batch(function, calls, team) for _ in range(batches)]


def batch(function, calls, team):
    """ms a call of so many in a row. All processes of the ring begin together, and it is as slow as its slowest."""
    wait = torch.cuda.synchronize if team.device.type == "cuda" else lambda: None
    wait()
    team.gather("here")
    began = time.perf_counter()
    for _ in range(calls):
        function()
    wait()
    return max(team.gather((time.perf_counter() - began) * 1e3 / calls))


def without_messages(function):
    """The same calls of the kernels, each rank with its own block all the way."""
    send, ring.pass_on = ring.pass_on, lambda tensors, place, step, tag=0: lambda: tensors
    try:
        function()
    finally:
        ring.pass_on = send


def messages_alone(case, ranks, K, V):
    """Sends what a call sends, and computes nothing."""
    place, block = ring.place_in(None), [K, V]
    for step in range(ranks - 1):
        block = ring.pass_on(block, place, step)()
    if case.passes == PASSES[0]:
        return
    block, sums = [K, V], [torch.empty(T.shape, device=T.device) for T in (K, V)]
    for step in range(ranks):
        coming = ring.pass_on(block if step < ranks - 1 else [], place, step)
        sums = ring.pass_on(sums, place, step, tag=2)()
        block = coming()


def measure(case, team):
    """A row, but for the speed-up: that needs one GPU's time."""
    compute = partial(flash_attention, causal=case.causal, return_lse=True)
    if team.ranks > 1:
        compute = partial(ring.ring_attention, causal=case.causal, zigzag=MODES[case.mode][1], return_lse=True)
    tensors = [team.shard(T, case.mode) for T in whole(case, team.device)]
    function = partial(run_once, compute, *tensors, case)
    wrong = [reason for reason in team.gather(check(function, case, team)) if reason]
    refused = {"skipped": f"refused: {'; '.join(wrong)}" if wrong else None}
    calls = {"whole": function}
    if team.ranks > 1:
        send = partial(messages_alone, case, team.ranks, *tensors[1:3])
        calls |= {"compute": partial(without_messages, function), "send": send}
    timer = partial(times, team=team)
    found = timing.measure(calls, lambda call: refused, 1, timer=timer, flops=case.flops)
    row = case._asdict() | {"B": 1, "ranks": team.ranks} | found["whole"]
    held = sum(T.nbytes for T in tensors)
    row["peak_bytes"] = max(team.gather(held + (timing.peak_bytes(function) or 0)))
    if team.ranks > 1 and row["ms"]:
        row |= {f"{part}_ms": found[part]["ms"] for part in ("compute", "send")}
        seen = max(0.0, row["ms"] - row["compute_ms"])
        row["hidden"] = round(1 - min(1.0, seen / row["send_ms"]), 4)
    return row


def from_rank_0(value, control):
    """What rank 0 has there, on all ranks."""
    found = [value]
    dist.broadcast_object_list(found, src=0, group=control)
    return found[0]


def pieces(cases, device, expired):
    """A row for every case on one GPU and on all, the same in every process."""
    control, of_one = dist.new_group(timeout=timedelta(seconds=600), backend="gloo"), {}
    for case, ranks in product(cases, (1, dist.get_world_size())):
        same = case.N, case.H, case.causal, case.passes            # for one GPU all orders are the same
        if ranks == 1 and same in of_one:
            continue
        if from_rank_0(expired(), control):
            row = case._asdict() | {"ranks": ranks, "ms": None, "skipped": timing.OUT_OF_TIME}
        else:
            mine = measure(case, Ring(ranks, device, control)) if dist.get_rank() < ranks else None
            row = from_rank_0(mine, control)
        if ranks == 1:
            of_one[same] = row["ms"]
        row["speedup"] = round(of_one[same] / row["ms"], 4) if of_one[same] and row["ms"] else None
        yield "rows", [row]


def arguments(argv):
    """The options, of this process and all others alike."""
    parser = argparse.ArgumentParser(
        "torchrun --nproc-per-node 4 -m flashlab_course.bench.ring",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_integers(parser, "--N", SIZES, "rows of the whole sequence")
    add_integers(parser, "--H", (16,), "heads")
    integer = positive(int, "an integer >= 1")
    parser.add_argument("--head-dim", type=integer, default=128, help="(128)")     # torchrun takes a --d for its own
    add_names(parser, "--modes", MODES)
    add_names(parser, "--passes", PASSES)
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16", help="(bfloat16)")
    words = "cpu: gloo, to see that it runs (cuda)"
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
    device = torch.device("cpu")
    if args.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    # no device_id: then every new group is split off this one
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo", timeout=timedelta(seconds=60))
    every = product(args.N, args.H, args.modes, args.passes)
    cases = [Case(N, H, args.head_dim, mode, passes, args.dtype) for N, H, mode, passes in every]
    # that the order of rows is slow shows in one pass
    cases = [case for case in cases if case.mode != "causal, in order" or case.passes == PASSES[0]]
    world, first = os.environ["WORLD_SIZE"], dist.get_rank() == 0
    command = ["torchrun", "--nproc-per-node", world, "-m", "flashlab_course.bench.ring", *argv]
    run = start("ring", shlex.join(command), args.label or shlex.join([world, "GPUs", *argv]))
    say = print if first else lambda *_, **__: None
    expired = timing.deadline(args.budget_seconds)
    collect(run, pieces(cases, device, expired), args.out if first else None, say)
    say(f"{len(measured(run))} rows measured,", f"wrote {args.out}" if args.out else "nothing written without --out")
    dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()
    if any((row["skipped"] or "").startswith("refused") for row in run["rows"]):
        raise SystemExit("a ring is wrong: see above")


if __name__ == "__main__":
    main()
