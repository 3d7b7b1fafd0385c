"""Windows and packed sequences: a window beside the causal mask at one long N, packed sequences beside a batch.

Forward and backward; the two of a pair take turns, and both are checked against float64 first.
"""

from functools import partial
from typing import NamedTuple

import torch

from flashlab.operator.attention import flash_attention, flash_attention_varlen
from flashlab_course.bench import timing
from flashlab_course.bench.checks import check, check_gradients
from flashlab_course.bench.options import add_integers, integer
from flashlab_course.bench.problems import HEAD_DIMS, TOKENS, WIDTH, drawn

SECONDS = 120.0


class Problem(NamedTuple):
    """B sequences of N tokens, packed or not; in a window each query sees the `left` keys before it, and its own."""

    B: int
    H: int
    N: int
    d: int
    causal: bool = False
    packed: bool = False
    left: int | None = None

    @property
    def masks(self):
        return {"causal": self.causal} | ({} if self.left is None else {"window": (self.left, 0)})


def pairs(d=HEAD_DIMS, long_N=TOKENS):
    """(a problem, the one beside it): a window of an eighth of the keys, the causal mask; packed, batched."""
    for width in d:
        one = Problem(1, max(1, WIDTH // width), long_N, width)
        yield one._replace(left=long_N // 8), one._replace(causal=True)
        for N in (1024, 4096):
            for causal in (False, True):
                batched = one._replace(B=TOKENS // N, N=N, causal=causal)
                yield batched._replace(packed=True), batched


def attend(problem, cu_seqlens, Q, K, V):
    """O of Q, K and V (B, H, N, d), in memory (B, N, H, d)."""
    if not problem.packed:
        return flash_attention(Q, K, V, **problem.masks)
    packed = (T.transpose(1, 2).flatten(0, 1) for T in (Q, K, V))
    O = flash_attention_varlen(*packed, cu_seqlens, cu_seqlens, **problem.masks)
    return O.unflatten(0, (problem.B, problem.N)).transpose(1, 2)


def measure(it, beside, *, device="cuda", rounds=3, **timed):
    """Two rows, one for each pass: `it`, and how many times as fast as the other it is."""
    normal = drawn(it.N, device)
    *qkv, dO = (normal(it.B, it.N, it.H, it.d).transpose(1, 2) for _ in range(4))
    leaves = [T.detach().requires_grad_() for T in qkv]
    ends = torch.arange(it.B + 1, device=device, dtype=torch.int32) * it.N     # made once: a model's layers share it
    forward = {problem: partial(attend, problem, ends, *qkv) for problem in (it, beside)}
    outputs = {problem: attend(problem, ends, *leaves) for problem in (it, beside)}
    backward = {problem: partial(torch.autograd.grad, O, leaves, dO, retain_graph=True)
                for problem, O in outputs.items()}
    checks = {call: partial(check, lambda call=call: (call(), None), *qkv, **problem.masks)
              for problem, call in forward.items()}
    checks |= {call: partial(check_gradients, call, *qkv, dO, **problem.masks) for problem, call in backward.items()}
    for which, calls in (("forward", forward), ("backward", backward)):
        rows = timing.measure(calls, lambda call: checks[call](), rounds, **timed)
        row = it._asdict() | {"pass": which, "beside": str(beside)} | rows[it]
        if rows[it]["ms"] and rows[beside]["ms"]:
            row["times_faster"] = round(rows[beside]["ms"] / rows[it]["ms"], 4)
        yield row | {"skipped": rows[it]["skipped"] or rows[beside]["skipped"]}


def pieces(args):
    beside = dict(pairs(args.d, args.N))
    return timing.sweep(beside, lambda it: list(measure(it, beside[it], expired=args.expired)))


def add_arguments(parser):
    add_integers(parser, "--d", HEAD_DIMS, "head dimensions")
    words = f"sequence length of the window, which is N/8 ({TOKENS})"
    parser.add_argument("--N", type=integer, default=TOKENS, help=words)
