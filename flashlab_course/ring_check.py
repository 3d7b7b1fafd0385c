"""Runs ring attention in real processes, on CPUs, and compares it with float64.

    torchrun --nproc-per-node 4 -m flashlab_course.ring_check [--N 256] [--json FILE]
"""

import argparse
import contextlib
import json
import os
from datetime import timedelta
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist

from flashlab import oracle
from flashlab.operator import ring

B, H_q, H_kv, d = 1, 4, 2, 32
RUNS = {"all": (False, False), "causal, zig-zag": (True, True), "causal, in order": (True, False)}   # causal, zigzag


@contextlib.contextmanager
def noted(Q, K):
    """Yields what this rank computes and sends: {"calls": [{"queries", "keys", "causal"}], "sent": bytes}.

    Queries and keys are numbers of rows in Q and K, the whole sequence. Its rows are random, so the first value of a
    row tells which one it is.
    """
    log = {"calls": [], "sent": 0}
    attend, pass_on = ring.flash_attention, ring.pass_on

    def rows(T, whole):
        where = T[0, 0, :, :1] == whole[0, 0, :, 0]                # (rows of T, N)
        return where.nonzero()[:, 1].tolist()

    def noting_attend(Q_r, K_r, V_r, **options):
        log["calls"].append({"queries": rows(Q_r, Q), "keys": rows(K_r, K), "causal": options["causal"]})
        return attend(Q_r, K_r, V_r, **options)

    def noting_pass_on(tensors, *rest, **tag):
        log["sent"] += sum(T.nbytes for T in tensors)
        return pass_on(tensors, *rest, **tag)

    with mock.patch.multiple(ring, flash_attention=noting_attend, pass_on=noting_pass_on):
        yield log


def run(N, causal, zigzag):
    """(verdicts, log of each rank) of one forward and backward pass; both are None on all ranks but 0."""
    rank, world = dist.get_rank(), dist.get_world_size()
    g = torch.Generator().manual_seed(0)
    Q, K, V, dO = (torch.randn(B, H, N, d, generator=g) for H in (H_q, H_kv, H_kv, H_q))
    *leaves, dO_r = (ring.zigzag_shard(T, rank, world) if zigzag else T.chunk(world, 2)[rank] for T in (Q, K, V, dO))
    leaves = [T.clone().requires_grad_() for T in leaves]
    with noted(Q, K) as log:
        O, L = ring.ring_attention(*leaves, causal=causal, zigzag=zigzag, return_lse=True)
    with noted(Q, K) as backward:
        gradients = torch.autograd.grad(O, leaves, dO_r)
    log["sent"] = log["sent"], backward["sent"]
    gathered = [None] * world
    dist.all_gather_object(gathered, ([T.detach() for T in (O, L[..., None], *gradients)], log))
    if rank:
        return None, None
    shards = zip(*(tensors for tensors, _ in gathered), strict=True)
    O, L, *gradients = (ring.zigzag_unshard(each) if zigzag else torch.cat(each, 2) for each in shards)
    verdicts = [oracle.judge(O, L[..., 0], Q, K, V, causal=causal),
                oracle.judge_gradients(*gradients, Q, K, V, dO, causal=causal)]
    return verdicts, [log for _, log in gathered]


def main():
    command = "torchrun --nproc-per-node 4 -m flashlab_course.ring_check"
    parser = argparse.ArgumentParser(command)
    parser.add_argument("--N", type=int, default=256, help="rows of the whole sequence (256)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the logs of all ranks there")
    args = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error(f"torchrun starts it, several processes at a time: {command}")
    world = int(os.environ["WORLD_SIZE"])
    if args.N < 1 or args.N % (2 * world):
        parser.error(f"--N must be a multiple of {2 * world}, two chunks for each rank, got {args.N}")
    torch.set_num_threads(1)                               # the processes share the machine's cores
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    found = {name: run(args.N, *modes) for name, modes in RUNS.items()}
    dist.destroy_process_group()
    if os.environ["RANK"] != "0":
        return
    print(f"{world} processes over gloo, N = {args.N}, {args.N // world} rows each")
    verdicts = {name: both for name, (both, _) in found.items()}
    for name, both in verdicts.items():
        print(f"{name}:", *both, sep="\n")
    if args.json:
        log = {"N": args.N, "H_kv": H_kv, "d": d, "runs": {name: logs for name, (_, logs) in found.items()}}
        log["verdicts"] = {name: [str(verdict) for verdict in both] for name, both in verdicts.items()}
        args.json.write_text(json.dumps(log), encoding="utf-8")
    if not all(verdict.ok for both in verdicts.values() for verdict in both):
        raise SystemExit("ring attention is wrong: see above")


if __name__ == "__main__":
    main()
