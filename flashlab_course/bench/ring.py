"""Ring attention on the GPUs of one host against flash_attention on one of them, at the same length of the whole sequence.

    torchrun --nproc-per-node 4 -m flashlab_course.bench.ring --out results/ring_h200.json

Rank 0 alone is the ring of one: flash_attention over all N. Then two ranks are a ring while the others wait, then four. Every
result is checked before it is timed. A ring is timed three ways: as it is, computing without sending, and sending without
computing; what the first takes beyond the second is communication that was not hidden.
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
from flashlab_course.bench.options import add_common, add_integers, add_names, positive
from flashlab_course.bench.problems import drawn
from flashlab_course.bench.results import collect, measured, start
from flashlab_course.bench.timing import OUT_OF_TIME, deadline, peak_bytes
from flashlab_course.bench.timing import measure as take_turns

MODES = {"all": (False, False), "causal, zig-zag": (True, True), "causal, in order": (True, False)}       # causal, zigzag
PASSES = ("forward", "forward+backward")
SIZES = (32768, 65536, 131072, 262144)
CHECKED = 16                                               # rows at the end of a rank's last chunk, held against float64
START_SECONDS = 35                                         # of the whole job: starting Python, compiling, the last measurement


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
        return once * (3.5 if self.passes == PASSES[1] else 1)                 # backward: five matrix products to forward's two


class Team(NamedTuple):
    """The ring of the first `ranks` processes. parts: into how many chunks all sequences are cut, two for each process there is.

    messages: its NCCL group (None for a ring of one); control: the same processes over gloo, for what no GPU has to know
    """

    ranks: int
    parts: int
    device: torch.device
    messages: object
    control: object

    def chunks(self, mode):
        """The chunks of the sequence that this process owns, in the order of its rows."""
        rank, each = dist.get_rank(), self.parts // (2 * self.ranks)
        if mode == "causal, zig-zag":
            last = 2 * self.ranks - 1 - rank
            return [*range(rank * each, (rank + 1) * each), *range(last * each, (last + 1) * each)]
        return list(range(2 * rank * each, 2 * (rank + 1) * each))

    def gather(self, value):
        """What each of its processes has there."""
        found = [None] * self.ranks
        dist.all_gather_object(found, value, group=self.control)
        return found


def rows(which, chunks, case, team, head=slice(None)):
    """These chunks of Q, K, V or dO (which 0, 1, 2, 3), (1, H, rows, d): random, and every process can make any of them."""
    made = []
    for chunk in chunks:
        normal = drawn(team.parts * which + chunk, team.device, getattr(torch, case.dtype))
        made.append(normal(1, case.H, case.N // team.parts, case.d)[:, head])
    return torch.cat(made, 2)


def run_once(compute, Q, K, V, dO, case):
    """O and L, and the gradients where the case has them."""
    if case.passes == PASSES[0]:
        with torch.no_grad():
            return compute(Q, K, V)
    leaves = [T.detach().requires_grad_() for T in (Q, K, V)]
    O, L = compute(*leaves)
    return O.detach(), L.detach(), *torch.autograd.grad(O, leaves, dO)


def check(function, case, team, tensors):
    """What is wrong with this process's rows of the last head, in words, or None.

    The last rows of O and L are held against float64, all gradients against one GPU's, to 8 roundings of the largest.
    """
    head, owned, size = slice(-1, None), team.chunks(case.mode), case.N // team.parts
    found = [T[:, head] for T in function()]
    whole = [rows(which, range(team.parts), case, team, head) for which in range(4)]
    last, seen = slice(-min(size, CHECKED), None), slice(0, (owned[-1] + 1) * size if case.causal else case.N)
    K, V = (T[:, :, seen] for T in whole[1:3])
    verdict = oracle.judge(*(T[:, :, last] for T in (*found[:2], tensors[0][:, head])), K, V, causal=case.causal)
    if not verdict.ok:
        return str(verdict)
    one_gpu = run_once(partial(flash_attention, causal=case.causal, return_lse=True), *whole, case)
    for name, mine, of_all in zip(("dQ", "dK", "dV"), found[2:], one_gpu[2:], strict=True):
        theirs = torch.cat([of_all[:, :, chunk * size: (chunk + 1) * size] for chunk in owned], 2)
        error, bound = oracle.max_error(mine, theirs), 8 * torch.finfo(theirs.dtype).eps * theirs.abs().max().item()
        if not error <= bound:
            return f"{name} is {error:.2e} off one GPU's, allowed {bound:.2e}"
    return None


def times(function, team, budget_ms=150):
    """ms a call, of several batches of calls in a row, each the slowest process's."""
    once = batch(function, 1, team)
    calls = int(min(20, max(1, budget_ms / 3 // once)))
    batches = 5 if once < budget_ms else 1 if once < 1000 else 0           # a call of a second is long enough to be timed once
    return ([once] if calls == 1 else []) + [batch(function, calls, team) for _ in range(batches)]


def batch(function, calls, team):
    """ms a call of so many in a row. All processes of the ring begin together, and a ring is as slow as its slowest."""
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


def messages_alone(case, team, K, V):
    """Sends what a call sends, and computes nothing."""
    place, block = ring.place_in(team.messages), [K, V]
    for step in range(team.ranks - 1):
        block = ring.pass_on(block, place, step)()
    if case.passes == PASSES[0]:
        return
    block, sums = [K, V], [torch.empty(T.shape, device=T.device) for T in (K, V)]
    for step in range(team.ranks):
        coming = ring.pass_on(block if step < team.ranks - 1 else [], place, step)
        sums = ring.pass_on(sums, place, step, tag=2)()
        block = coming()


def measure(case, team):
    """A row, but for the speed-up: that needs one GPU's time."""
    zigzag = {} if team.ranks == 1 else {"zigzag": MODES[case.mode][1], "group": team.messages}
    compute = partial(flash_attention if team.ranks == 1 else ring.ring_attention, causal=case.causal, return_lse=True, **zigzag)
    tensors = [rows(which, team.chunks(case.mode), case, team) for which in range(4)]
    function = partial(run_once, compute, *tensors, case)
    wrong = [reason for reason in team.gather(check(function, case, team, tensors)) if reason]
    refused = {"skipped": f"refused: on {team.ranks} ranks it is wrong: {'; '.join(wrong)}" if wrong else None}
    calls = {"whole": function}
    if team.ranks > 1:
        calls |= {"compute": partial(without_messages, function), "send": partial(messages_alone, case, team, *tensors[1:3])}
    found = take_turns(calls, lambda call: refused, 1, timer=partial(times, team=team), flops=case.flops)
    row = case._asdict() | {"B": 1, "ranks": team.ranks} | found["whole"]
    row["peak_bytes"] = max(team.gather(sum(T.nbytes for T in tensors) + (peak_bytes(function) or 0)))
    if team.ranks > 1 and row["ms"]:
        row |= {"compute_ms": found["compute"]["ms"], "send_ms": found["send"]["ms"]}
        row["hidden"] = round(1 - min(1.0, max(0.0, row["ms"] - row["compute_ms"]) / row["send_ms"]), 4)
    return row


def teams(device):
    """A Team for 1, 2, 4, ... ranks. All processes make all groups, also those that they are not in."""
    world, found = dist.get_world_size(), []
    for ranks in (2**n for n in range(world.bit_length())):
        members = list(range(ranks))
        messages = dist.new_group(members, timeout=timedelta(seconds=60)) if ranks > 1 else None
        control = dist.new_group(members, timeout=timedelta(seconds=600), backend="gloo")      # others measure meanwhile
        found.append(Team(ranks, 2 * world, device, messages, control))
    return found


def from_rank_0(value, control):
    """What rank 0 has there, on all ranks."""
    found = [value]
    dist.broadcast_object_list(found, src=0, group=control)
    return found[0]


def pieces(cases, all_teams, expired):
    """A row for every case on every team, the same on all ranks."""
    everyone, of_one = all_teams[-1].control, {}
    for case, team in product(cases, all_teams):
        same = case.N, case.H, case.causal, case.passes                    # for one GPU all orders are the same
        if team.ranks == 1 and same in of_one:
            continue
        if from_rank_0(expired(), everyone):
            row = case._asdict() | {"ranks": team.ranks, "ms": None, "skipped": OUT_OF_TIME}
        else:
            row = from_rank_0(measure(case, team) if dist.get_rank() < team.ranks else None, everyone)
        if team.ranks == 1:
            of_one[same] = row["ms"]
        row["speedup"] = round(of_one[same] / row["ms"], 4) if of_one[same] and row["ms"] else None
        yield "rows", [row]


def arguments(argv):
    """The options, of this process and all others alike."""
    parser = argparse.ArgumentParser("torchrun --nproc-per-node 4 -m flashlab_course.bench.ring", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_integers(parser, "--N", SIZES, "rows of the whole sequence")
    add_integers(parser, "--H", (16,), "heads")
    # torchrun takes a --d for its own
    parser.add_argument("--head-dim", type=positive(int, "an integer >= 1"), default=128, help="(128)")
    add_names(parser, "--modes", MODES)
    add_names(parser, "--passes", PASSES)
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16", help="(bfloat16)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: gloo, to see that it runs (cuda)")
    add_common(parser, 110.0)
    args = parser.parse_args(argv)
    if "RANK" not in os.environ:
        parser.error("torchrun starts it, one process a GPU: torchrun --nproc-per-node 4 -m flashlab_course.bench.ring")
    world = int(os.environ["WORLD_SIZE"])
    if world & (world - 1):
        parser.error(f"it wants 1, 2, 4 or 8 processes, got {world}")
    for N in args.N:
        if N % (2 * world):
            parser.error(f"--N must be a multiple of {2 * world}, two chunks for each rank, got {N}")
    return args


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    args = arguments(argv)
    faulthandler.dump_traceback_later(args.budget_seconds + START_SECONDS, exit=True)      # a ring that hangs ends, and says where
    device = torch.device(args.device, *([int(os.environ["LOCAL_RANK"])] if args.device == "cuda" else []))
    if args.device == "cuda":
        torch.cuda.set_device(device)
    # No device_id: then every new group is split off this one, and of a group of gloo only those that are not in it would wait for
    # the others to take part.
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo", timeout=timedelta(seconds=60))
    cases = [Case(N, H, args.head_dim, mode, passes, args.dtype)
             for N, H, mode, passes in product(args.N, args.H, args.modes, args.passes)
             if mode != "causal, in order" or passes == PASSES[0]]             # that it is slow shows in one pass
    words = ["torchrun", "--nproc-per-node", os.environ["WORLD_SIZE"], "-m", "flashlab_course.bench.ring", *argv]
    first = dist.get_rank() == 0
    run = start("ring", shlex.join(words), args.label or shlex.join(words[2:3] + argv))
    say = print if first else lambda *_, **__: None
    collect(run, pieces(cases, teams(device), deadline(args.budget_seconds)), args.out if first else None, say)
    say(f"wrote {args.out}" if args.out else "nothing written: name a file with --out", f"({len(measured(run))} rows measured)")
    dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()
    if any((row["skipped"] or "").startswith("refused") for row in run["rows"]):
        raise SystemExit("a ring is wrong: see above")


if __name__ == "__main__":
    main()
