"""The four processes of test_ring.py. Each runs one case after the other and writes the results to OUT/rank.json.

    python -m tests.ring_worker OUT
"""

import json
import multiprocessing
import os
import socket
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

import flashlab.operator.ring as ring
from flashlab import oracle

# name: ranks, B, H_q, H_kv, N, d, d_v, options. N / 2R: 1, odd, and more than one tile
CASES = {
    "4 ranks causal, in order": (4, 1, 2, 2, 84, 16, 16, {"causal": True, "zigzag": False}),
    "4 ranks, grouped heads, d_v other than d": (4, 2, 4, 2, 56, 24, 16, {"causal": True}),
    "4 ranks, a row a chunk": (4, 1, 1, 1, 8, 16, 16, {"causal": True}),
    "4 ranks, scale": (4, 1, 2, 1, 40, 16, 16, {"scale": -0.3}),
    "2 ranks": (2, 1, 2, 1, 70, 16, 32, {}),
    "2 ranks causal": (2, 2, 2, 1, 68, 59, 59, {"causal": True}),
    "large logits": (4, 1, 1, 1, 48, 16, 16, {"causal": True, "large": 60}),
    "strided": (4, 1, 2, 2, 48, 16, 16, {"causal": True, "strided": True}),
    "bfloat16": (4, 1, 2, 1, 160, 64, 64, {"causal": True, "dtype": torch.bfloat16}),
    "float64": (2, 1, 2, 1, 24, 16, 16, {"causal": True, "dtype": torch.float64}),
    "1 rank": (1, 1, 1, 1, 24, 16, 16, {"causal": True}),
    "ulysses": (4, 1, 8, 4, 44, 16, 24, {"causal": True, "ulysses": True}),
    "ulysses on 2 ranks": (2, 1, 2, 2, 30, 16, 16, {"ulysses": True}),
}


def case(rank, groups, ranks, B, H_q, H_kv, N, d, d_v, options):
    """One call and its gradients, of O and of L, held against float64 on rank 0: what was wrong, or None."""
    options = dict(options)
    large, dtype = options.pop("large", 1), options.pop("dtype", torch.float32)
    strided, ulysses = options.pop("strided", False), options.pop("ulysses", False)
    g = torch.Generator().manual_seed(N)
    Q, K, V, dO = (torch.randn(B, H, N, width, generator=g).to(dtype)
                   for H, width in ((H_q, d), (H_kv, d), (H_kv, d_v), (H_q, d_v)))
    Q = Q * large
    order = options.get("causal", False) and options.get("zigzag", True) and not ulysses

    def mine(X):
        X = ring.zigzag_shard(X, rank, ranks) if order else X.chunk(ranks, -2)[rank]
        return X.transpose(1, 2).contiguous().transpose(1, 2) if strided else X.clone()

    leaves = [mine(X).requires_grad_() for X in (Q, K, V)]
    if ulysses:
        O, L = ring.ulysses_attention(*leaves, group=groups[ranks], return_lse=False, **options), None
    else:
        O, L = ring.ring_attention(*leaves, group=groups[ranks], return_lse=True, **options)
    grads = torch.autograd.grad(O, leaves, mine(dO), retain_graph=L is not None)
    found = {"O": O, **dict(zip(("dQ", "dK", "dV"), grads, strict=True))}
    if L is not None:
        found |= {"L": L[..., None], "of L": torch.autograd.grad(L.sum() + 0 * O.sum(), leaves)[0]}
    whole = {name: gather(X.detach(), groups[ranks], rank, ranks, order) for name, X in found.items()}
    if rank:
        return None
    masks = {name: value for name, value in options.items() if name != "zigzag"}
    L = whole["L"][..., 0] if "L" in whole else None
    verdicts = [oracle.judge(whole["O"], L, Q, K, V, **masks),
                oracle.judge_gradients(*(whole[name] for name in ("dQ", "dK", "dV")), Q, K, V, dO, **masks)]
    wrong = [str(verdict) for verdict in verdicts if not verdict.ok]
    if found["O"].dtype != dtype or found["dK"].dtype != dtype:
        wrong.append(f"O came in {found['O'].dtype}, dK in {found['dK'].dtype}")
    if L is not None and (error := error_of_dL(whole["of L"], Q, K, masks)) > 100 * torch.finfo(dtype).eps * large:
        wrong.append(f"dQ of L is off by {error:.1e}")
    return "; ".join(wrong) or None


def error_of_dL(dQ, Q, K, masks):
    """How far the gradient of L.sum() is off, beside the largest."""
    Q = Q.double().requires_grad_()
    K = K.double().repeat_interleave(Q.shape[1] // K.shape[1], 1)
    S = Q @ K.mT * masks.get("scale", Q.shape[-1] ** -0.5)
    if masks.get("causal"):
        S = S.masked_fill(torch.ones(S.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    truth = torch.autograd.grad(torch.logsumexp(S, -1).sum(), Q)[0]
    return oracle.max_error(dQ, truth) / truth.abs().max().item()


def gather(X, group, rank, ranks, order):
    """The whole tensor on rank 0."""
    all_of_them = [torch.empty_like(X, memory_format=torch.contiguous_format) for _ in range(ranks)]
    dist.all_gather(all_of_them, X.contiguous(), group=group)
    return ring.zigzag_unshard(all_of_them) if order else torch.cat(all_of_them, -2)


def said(function):
    """The error that a call ends with, in words."""
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def refusals(rank):
    """Calls that are wrong on some rank: what each rank is told. None may hang."""
    X = torch.randn(1, 2, 8, 16)
    short, odd = torch.randn(1, 2, 6, 16), torch.randn(1, 2, 7, 16)
    call = ring.ring_attention
    return {
        "unequal": said(lambda: call(*[short if rank == 2 else X] * 3)),
        "other dtype": said(lambda: call(*[X.double() if rank == 1 else X] * 3)),
        "other options": said(lambda: call(X, X, X, causal=rank == 3)),
        "one wrong argument": said(lambda: call(X, X, X[..., :4, :] if rank == 1 else X)),
        "not a tensor": said(lambda: call("Q" if rank == 1 else X, X, X)),
        "gradients on some": said(lambda: call(X.clone().requires_grad_() if rank == 0 else X, X, X)),
        "odd": said(lambda: call(odd, odd, odd, causal=True)),
        "fewer keys": said(lambda: call(X, short, short, causal=True)),
        "backend": said(lambda: call(X, X, X, backend="best")),
        "heads": said(lambda: ring.ulysses_attention(X, X, X)),
        "and after all that": said(lambda: call(X, X, X, causal=True)),
    }


def twice():
    """A second derivative is refused, and does not hang."""
    X = torch.randn(1, 1, 4, 16, requires_grad=True)
    O = ring.ring_attention(X, X, X)
    return said(lambda: torch.autograd.grad(torch.autograd.grad(O.sum(), X, create_graph=True)[0].sum(), X))


def deserted(rank):
    """Rank 3 ends in the first step, before it could pass on rank 2's block: what the others are told."""
    def ends(*arguments, **options):
        if rank == 3:
            os._exit(0)
        return whole(*arguments, **options)

    X, whole = torch.randn(1, 2, 8, 16), ring.flash_attention
    ring.flash_attention = ends
    return said(lambda: ring.ring_attention(X, X, X))


def attempted(name, rank, groups):
    """What was wrong with a case, or None."""
    try:
        return case(rank, groups, *CASES[name])
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def work(rank, out):
    """All cases on one rank."""
    dist.init_process_group("gloo", f"file://{out}/ranks", timedelta(seconds=60), world_size=4, rank=rank)
    groups = {4: dist.group.WORLD, 2: dist.new_group([0, 1]), 1: dist.new_group([0])}
    impatient, X = dist.new_group(timeout=timedelta(seconds=2)), torch.randn(1, 1, 4, 16)
    found = {"cases": {name: attempted(name, rank, groups) for name in CASES if rank < CASES[name][0]},
             "outside": said(lambda: ring.ring_attention(X, X, X, group=groups[2])) if rank == 2 else None,
             "twice": twice(), "refusals": refusals(rank),
             "absent": said(lambda: ring.ring_attention(X, X, X, group=impatient)) if rank != 2 else None,
             "deserted": deserted(rank)}
    with open(f"{out}/{rank}.json", "w", encoding="utf-8") as file:
        json.dump(found, file)


def in_ranks(world, work):
    """The worst exit code of work(rank) in processes that are forked, with the variables that torchrun would give them.

    So PyTorch is imported once.
    """
    torch.set_num_threads(1)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    os.environ |= {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}

    def one(rank):
        os.environ["RANK"] = str(rank)
        work(rank)

    ranks = [multiprocessing.get_context("fork").Process(target=one, args=(rank,)) for rank in range(world)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    return max(process.exitcode for process in ranks)


if __name__ == "__main__":
    in_ranks(4, lambda rank: work(rank, sys.argv[1]))
