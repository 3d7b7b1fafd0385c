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
from flashlab_course.bench.options import json_path, positive
from flashlab_course.bench.results import finish, save, start
from flashlab_course.bench.timing import deadline, peak_bytes, statistics

MODES = {"all": (False, False), "causal, zig-zag": (True, True), "causal, in order": (True, False)}       # causal, zigzag
PASSES = ("forward", "forward+backward")
SIZES = (32768, 65536, 131072, 262144)
CHECKED = 16                                               # rows at the end of a chunk
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
    def flops(self):
        once = cost.attention_flops(1, self.H, self.N, self.N, self.d, self.d, causal=MODES[self.mode][0])
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

    def largest(self, number):
        """The largest of what all its processes measured: a ring is as slow as its slowest."""
        found = [None] * self.ranks
        dist.all_gather_object(found, number, group=self.control)
        return max(found)


# ---- the sequence: random, and every process can make any part of it

def rows(which, chunks, case, parts, device, head=slice(None)):
    """These chunks of Q, K, V or dO (which 0, 1, 2, 3), (1, H, rows, d)."""
    shape = (1, case.H, case.N // parts, case.d)
    made = []
    for chunk in chunks:
        g = torch.Generator(device).manual_seed(parts * which + chunk)
        made.append(torch.randn(shape, generator=g, device=device, dtype=getattr(torch, case.dtype))[:, head])
    return torch.cat(made, 2)


def call(case, team):
    """(compute(Q, K, V) -> O, L): the ring, or flash_attention for a ring of one."""
    causal, zigzag = MODES[case.mode]
    if team.ranks == 1:
        return partial(flash_attention, causal=causal, return_lse=True)
    return partial(ring.ring_attention, causal=causal, zigzag=zigzag, group=team.messages, return_lse=True)


def run_once(compute, Q, K, V, dO, case):
    """O and L, and the gradients where the case has them."""
    if case.passes == PASSES[0]:
        with torch.no_grad():
            return *compute(Q, K, V), ()
    O, L = compute(Q, K, V)
    return O.detach(), L.detach(), torch.autograd.grad(O, (Q, K, V), dO)


# ---- right, before it is timed

def check(case, team, tensors, of_one):
    """(largest error of O and its bound, or SystemExit); of_one: dK and dV of the ring of one, {chunk: (dK, dV)}, which it fills.

    The last rows of this process's first and last chunk, one head: O, L and dQ against float64 over all their keys. dK and dV
    come from all queries: there a ring is held against one GPU, to 8 roundings of the largest, and one GPU's are tested elsewhere.
    """
    O, L, grads = run_once(call(case, team), *tensors, case)
    causal, size, owned = MODES[case.mode][0], case.N // team.parts, team.chunks(case.mode)
    head = slice(-1, None)
    K, V = (rows(which, range(team.parts), case, team.parts, team.device, head) for which in (1, 2))
    worst, wrong = (0.0, 1.0), []
    for place in {0, len(owned) - 1}:
        here = slice((place + 1) * size - min(size, CHECKED), (place + 1) * size)
        seen = slice(0, (owned[place] + 1) * size if causal else case.N)
        part = [T.detach()[:, head, here] for T in (tensors[0], O, L, tensors[3])]
        verdict = oracle.judge(part[1], part[2], part[0], K[:, :, seen], V[:, :, seen], causal=causal)
        worst = max(worst, (verdict.error_O, verdict.bounds["O"]))
        wrong += [] if verdict.ok else [f"chunk {owned[place]}: {verdict}"]
        if grads:
            wrong += wrong_gradients(grads, part, K[:, :, seen], V[:, :, seen], here, head, causal)
    for place, chunk in enumerate(owned) if grads else ():
        here = slice((place + 1) * size - min(size, CHECKED), (place + 1) * size)
        found = [T[:, :, here].float().cpu() for T in grads[1:]]
        if team.ranks == 1:
            of_one[chunk] = found
        for name, mine, theirs in zip(("dK", "dV"), found, of_one[chunk], strict=True):
            bound = 8 * torch.finfo(tensors[0].dtype).eps * theirs.abs().max().item()
            error = oracle.max_error(mine, theirs)
            wrong += [] if error <= bound else [f"chunk {chunk}: {name} is {error:.2e} off one GPU's, allowed {bound:.2e}"]
    everybody = [None] * team.ranks
    dist.all_gather_object(everybody, wrong, group=team.control)
    if any(everybody):
        raise SystemExit(f"refused: {case} on {team.ranks} ranks is wrong: " + "; ".join(sum(everybody, [])[:4]))
    return worst


def wrong_gradients(grads, part, K, V, here, head, causal):
    """What is wrong with dQ of these rows; their dK and dV are only a part of the sequence's, and not looked at."""
    Q, _, _, dO = part
    verdict = oracle.judge_gradients(grads[0][:, head, here], torch.zeros_like(K), torch.zeros_like(V), Q, K, V, dO, causal=causal)
    error, bound = verdict.errors["dQ"], verdict.bounds["dQ"]
    return [] if error <= bound else [f"dQ is off by {error:.2e}, allowed {bound:.2e}"]


# ---- timed

def times(function, team, budget_ms=150):
    """ms a call, of several batches of calls in a row, each the slowest process's."""
    once = batch(function, 1, team)
    calls = int(min(20, max(1, budget_ms / 3 // once)))
    batches = 5 if once < budget_ms else 1 if once < 1000 else 0           # a call of a second is long enough to be timed once
    return ([once] if calls == 1 else []) + [batch(function, calls, team) for _ in range(batches)]


def batch(function, calls, team):
    """ms a call of so many in a row. All processes of the ring begin together."""
    team.largest(0)                                        # everybody is here
    if team.device.type == "cpu":
        begin = time.perf_counter()
        for _ in range(calls):
            function()
        return team.largest((time.perf_counter() - begin) * 1e3 / calls)
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        function()
    end.record()
    torch.cuda.synchronize()
    return team.largest(begin.elapsed_time(end) / calls)


def without_messages(function):
    """The same calls of the kernels, each rank with its own block all the way."""
    def alone():
        send, ring.pass_on = ring.pass_on, lambda tensors, place, step, tag=0: lambda: tensors
        try:
            function()
        finally:
            ring.pass_on = send
    return alone


def messages_alone(case, team, K, V):
    """Sends what a call sends, and computes nothing."""
    place = ring.place_in(team.messages)

    def send():
        block = [K.detach(), V.detach()]
        for step in range(team.ranks - 1):
            block = ring.pass_on(block, place, step)()
        if case.passes == PASSES[0]:
            return
        block, sums = [K.detach(), V.detach()], [torch.empty(T.shape, device=T.device) for T in (K, V)]
        for step in range(team.ranks):
            coming = ring.pass_on(block if step < team.ranks - 1 else [], place, step)
            sums = ring.pass_on(sums, place, step, tag=2)()
            block = coming()

    return send


def measure(case, team, of_one):
    """A row, but for the speed-up: that needs one GPU's time."""
    owned = team.chunks(case.mode)
    tensors = [rows(which, owned, case, team.parts, team.device) for which in range(4)]
    tensors[:3] = [T.requires_grad_(case.passes == PASSES[1]) for T in tensors[:3]]
    error, bound = check(case, team, tensors, of_one)
    compute = call(case, team)
    function = partial(run_once, compute, *tensors, case)
    peak = team.largest(sum(T.nbytes for T in tensors) + (peak_bytes(function) or 0))
    ms = times(function, team)
    row = case._asdict() | {"B": 1, "ranks": team.ranks, "runs": len(ms), "error": error, "bound": bound, "peak_bytes": peak}
    row |= statistics(ms, flops=case.flops)
    if team.ranks > 1:
        computing = statistics(times(without_messages(function), team))["ms"]
        sending = statistics(times(messages_alone(case, team, *tensors[1:3]), team))["ms"]
        seen = max(0.0, row["ms"] - computing)
        row |= {"compute_ms": computing, "send_ms": sending, "hidden": round(1 - min(1.0, seen / sending), 4)}
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


def run(cases, all_teams, *, out=None, command=None, expired=lambda: False, say=print):
    """Measure every case on every team. Rank 0 writes `out` after each row."""
    rank, everyone, results = dist.get_rank(), all_teams[-1].control, start("ring", command, rows=[])
    for case in cases:
        of_one, alone = {}, None
        for team in all_teams:
            if team.ranks == 1 and case.mode == "causal, in order" and (same := one_gpu(results, case)):
                alone = same["ms"]                         # for one GPU all orders are the same
                continue
            if from_rank_0(expired(), everyone):
                row = case._asdict() | {"ranks": team.ranks, "ms": None, "skipped": "not measured: the time budget was used up"}
            else:
                row = measure(case, team, of_one) if rank < team.ranks else None
            row, of_one = from_rank_0((row, of_one), everyone)
            alone = row["ms"] if team.ranks == 1 else alone
            row["speedup"] = round(alone / row["ms"], 4) if alone and row["ms"] else None
            results["rows"].append(row)
            if rank == 0:
                say(line(row), flush=True)
                save(results, out)
            if team.device.type != "cpu":
                torch.cuda.empty_cache()
    return finish(results, out) if rank == 0 else results


def one_gpu(results, case):
    """The row of one GPU at this size, causal."""
    return next((row for row in results["rows"] if row["ranks"] == 1 and row["mode"] == "causal, zig-zag" and row["ms"]
                 and (row["N"], row["H"], row["passes"]) == (case.N, case.H, case.passes)), None)


def line(row):
    """A row for a terminal."""
    text = f"N {row['N']:>7} H {row['H']} {row['mode']:<17}{row['passes']:<17} {row['ranks']} ranks: "
    if not row["ms"]:
        return text + row["skipped"]
    text += f"{row['ms']:9.3f} ms, {row['tflops']:7.1f} TFLOP/s, x{row['speedup']:.2f}, {row['peak_bytes'] / 2**30:6.2f} GiB a GPU"
    if row["ranks"] > 1:
        text += f", computing alone {row['compute_ms']:.3f}, sending alone {row['send_ms']:.3f}, {row['hidden']:.0%} hidden"
    return text


def trace(case, team, folder):
    """A trace of three calls on each rank of the largest ring, for ui.perfetto.dev or chrome://tracing."""
    owned = team.chunks(case.mode)
    tensors = [rows(which, owned, case, team.parts, team.device) for which in range(4)]
    tensors[:3] = [T.requires_grad_(case.passes == PASSES[1]) for T in tensors[:3]]
    function = partial(run_once, call(case, team), *tensors, case)
    batch(function, 2, team)
    with torch.profiler.profile() as profile:
        batch(function, 3, team)
    os.makedirs(folder, exist_ok=True)
    profile.export_chrome_trace(os.path.join(folder, f"ring_of_{team.ranks}_rank_{dist.get_rank()}.json.gz"))


def arguments(argv):
    """The options, of this process and all others alike."""
    integer = positive(int, "an integer >= 1")
    parser = argparse.ArgumentParser("torchrun --nproc-per-node 4 -m flashlab_course.bench.ring", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--N", type=integer, nargs="+", default=list(SIZES), help="rows of the whole sequence (32768 ... 262144)")
    parser.add_argument("--H", type=integer, nargs="+", default=[16], help="heads (16)")
    parser.add_argument("--head-dim", type=integer, default=128, help="(128)")       # torchrun takes a --d for its own
    parser.add_argument("--modes", choices=MODES, nargs="+", default=list(MODES), metavar="MODE",
                        help=f"among {', '.join(MODES)} (all)")
    parser.add_argument("--passes", choices=PASSES, nargs="+", default=list(PASSES), help="(both)")
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16", help="(bfloat16)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: gloo, to see that it runs (cuda)")
    parser.add_argument("--trace", metavar="FOLDER", help="no timing: a profiler's trace of the first case, a file for each rank")
    parser.add_argument("--budget-seconds", type=positive(float, "a number of seconds > 0"), default=110.0, metavar="S",
                        help="what is not measured by then is recorded as skipped (110)")
    parser.add_argument("--out", type=json_path, metavar="JSON", help="the file to write; without it nothing is written")
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
    expired = deadline(args.budget_seconds)
    if args.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        # No device_id: then every new group is split off this one, and of a group of gloo only those that are not in it would wait
        # for the others to take part.
        dist.init_process_group("nccl", timeout=timedelta(seconds=60))
    else:
        device = torch.device("cpu")
        torch.set_num_threads(1)
        dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    cases = [Case(N, H, args.head_dim, mode, passes, args.dtype)
             for N, H, mode, passes in product(args.N, args.H, args.modes, args.passes)
             if mode != "causal, in order" or passes == PASSES[0]]             # that it is slow shows in one pass
    every_team = teams(device)
    if args.trace:
        trace(cases[0], every_team[-1], args.trace)
    else:
        command = shlex.join(["torchrun", "--nproc-per-node", os.environ["WORLD_SIZE"], "-m", "flashlab_course.bench.ring", *argv])
        found = run(cases, every_team, out=args.out, command=command, expired=expired)
        if dist.get_rank() == 0:
            print(f"wrote {args.out}" if args.out else "nothing written: name a file with --out",
                  f"({sum(row['ms'] is not None for row in found['rows'])} rows measured)")
    dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
