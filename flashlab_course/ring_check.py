"""Runs ring attention in real processes, on CPUs, and holds it against float64; prints who computed what in which step.

    torchrun --nproc-per-node 4 -m flashlab_course.ring_check [--N 256] [--json FILE]
"""

import argparse
import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from flashlab import oracle
from flashlab.operator import ring

B, H_q, H_kv, d = 1, 4, 2, 32
RUNS = {"all": (False, False), "causal, zig-zag": (True, True), "causal, in order": (True, False)}        # causal, zigzag


class Notes:
    """While it is on, notes in order what this rank does in each step: sends, computes, merges, receives.

    events   [{"did", "step", "at": [file, line], "start", "end", ...}]: which rows of the whole sequence, as the tensors show it,
             and of the last query the L and the first column of O
    sent     bytes
    """

    def __init__(self, whole_Q, whole_K):
        self.whole = {"queries": whole_Q, "keys": whole_K}
        self.events, self.sent, self.step, self.begun = [], 0, 0, time.perf_counter()
        self.before = ring.flash_attention, ring.merge, ring.pass_on

    def __enter__(self):
        ring.flash_attention, ring.merge, ring.pass_on = self.compute, self.merge, self.pass_on
        return self

    def __exit__(self, *error):
        ring.flash_attention, ring.merge, ring.pass_on = self.before

    def compute(self, Q, K, V, **options):
        start = time.perf_counter()
        O, L = self.before[0](Q, K, V, **options)
        self.note("compute", start, queries=self.places("queries", Q), keys=self.places("keys", K), causal=options["causal"],
                  L=L[0, 0, -1].item(), O=O[0, 0, -1, 0].item())
        return O, L

    def merge(self, O, L, O_j, L_j):
        start = time.perf_counter()
        self.before[1](O, L, O_j, L_j)
        self.note("merge", start, L=L[0, 0, -1].item(), O=O[0, 0, -1, 0].item())

    def pass_on(self, tensors, place, step, tag=0):
        start, self.step = time.perf_counter(), step
        self.sent += sum(T.nbytes for T in tensors)
        wait = self.before[2](tensors, place, step, tag)
        if not tensors or place.world == 1:
            return wait
        self.note("send", start, keys=self.places("keys", tensors[0]), to=place.after)

        def arriving():
            start = time.perf_counter()
            found = wait()
            self.note("receive", start, keys=self.places("keys", found[0]), source=place.before)
            return found

        return arriving

    def places(self, name, T):
        """Which rows of the whole sequence these are. They are random numbers: a row is known by its first."""
        first = self.whole[name][0, 0, :, 0]               # (N,)
        return [place for value in T[0, 0, :, 0] for place in (first == value).nonzero().flatten().tolist()]

    def note(self, did, start, **what):
        frame = sys._getframe(2)                           # of ring_attention, which has called one of the above
        self.events.append({"did": did, "step": self.step, "at": [frame.f_code.co_filename, frame.f_lineno],
                            "start": start - self.begun, "end": time.perf_counter() - self.begun, **what})


def run(N, causal, zigzag):
    """On rank 0 the record of the run: (verdicts, what each rank computed and sent); elsewhere None."""
    rank, world = dist.get_rank(), dist.get_world_size()
    g = torch.Generator().manual_seed(0)
    Q, K, V, dO = (torch.randn(B, H, N, d, generator=g) for H in (H_q, H_kv, H_kv, H_q))
    order = causal and zigzag
    mine = [(ring.zigzag_shard(T, rank, world) if order else T.chunk(world, 2)[rank]).clone() for T in (Q, K, V, dO)]
    Q_r, K_r, V_r = (T.requires_grad_() for T in mine[:3])
    dist.barrier()                                         # so that all clocks begin together
    with Notes(Q, K) as forward:
        O, L = ring.ring_attention(Q_r, K_r, V_r, causal=causal, zigzag=zigzag, return_lse=True)
    with Notes(Q, K) as backward:
        grads = torch.autograd.grad(O, (Q_r, K_r, V_r), mine[3])
    log = {"events": forward.events, "calls": [event for event in forward.events if event["did"] == "compute"],
           "sent": (forward.sent, backward.sent)}
    everything = [None] * world
    dist.all_gather_object(everything, ([T.detach() for T in (O, L[..., None], *grads)], log))
    if rank:
        return None
    shards = zip(*(tensors for tensors, _ in everything), strict=True)
    O, L, *grads = (ring.zigzag_unshard(each) if order else torch.cat(each, 2) for each in shards)
    verdicts = oracle.judge(O, L[..., 0], Q, K, V, causal=causal), oracle.judge_gradients(*grads, Q, K, V, dO, causal=causal)
    return verdicts, [log for _, log in everything]


def chunks(places, size):
    """Which chunks of the sequence these rows make up: "0,7"."""
    return ",".join(map(str, dict.fromkeys(place // size for place in places)))


def table(logs, N):
    """A line for each rank, a column for each call of the kernel: which chunks of Q met which of K."""
    size = N // (2 * len(logs))
    cells = [[f"Q {chunks(call['queries'], size)} x K {chunks(call['keys'], size)}{' causal' if call['causal'] else ''}"
              for call in log["calls"]] for log in logs]
    width = 3 + max(len(cell) for line in cells for cell in line)
    return "\n".join(f"rank {rank}:  " + "".join(cell.ljust(width) for cell in line).rstrip() for rank, line in enumerate(cells))


def main():
    parser = argparse.ArgumentParser("torchrun --nproc-per-node 4 -m flashlab_course.ring_check", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--N", type=int, default=256, help="rows of the whole sequence (256)")
    parser.add_argument("--json", metavar="FILE", help="write the logs of all ranks there")
    args = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("torchrun starts it, several processes at a time: torchrun --nproc-per-node 4 -m flashlab_course.ring_check")
    torch.set_num_threads(1)                               # the processes share the machine's cores
    world = int(os.environ["WORLD_SIZE"])
    if args.N < 1 or args.N % (2 * world):
        parser.error(f"--N must be a multiple of {2 * world}, two chunks for each rank, got {args.N}")
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    found = {name: run(args.N, *one) for name, one in RUNS.items()}
    if dist.get_rank() == 0:
        print(f"{world} processes over gloo, N = {args.N}, {args.N // world} rows each; chunks of {args.N // (2 * world)} rows")
        for name, (verdicts, logs) in found.items():
            print(f"{name}:\n{table(logs, args.N)}", *verdicts, sep="\n")
        if args.json:
            with open(args.json, "w", encoding="utf-8") as file:
                runs = {name: logs for name, (_, logs) in found.items()}
                verdicts = {name: [str(verdict) for verdict in each] for name, (each, _) in found.items()}
                json.dump({"N": args.N, "H_kv": H_kv, "d": d, "runs": runs, "verdicts": verdicts}, file)
        if not all(verdict.ok for verdicts, _ in found.values() for verdict in verdicts):
            raise SystemExit("ring attention is wrong: see above")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
