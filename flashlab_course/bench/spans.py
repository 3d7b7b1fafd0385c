"""Windows and packed sequences: a window beside the causal mask at one long N, packed sequences beside a batch.

Forward and backward, each pair by turns. The last head of each call is held against float64 first.
"""

from functools import partial
from typing import NamedTuple

import torch

from flashlab import oracle
from flashlab.operator.attention import flash_attention, flash_attention_varlen
from flashlab_course.bench import timing
from flashlab_course.bench.checks import fields
from flashlab_course.bench.options import add_integers, positive
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


def pairs(d=HEAD_DIMS, long_N=TOKENS, packed_N=(1024, 4096)):
    """(a problem, what it is timed beside): a window of an eighth of the keys, the causal mask; packed, batched."""
    found = []
    for width in d:
        one = Problem(1, max(1, WIDTH // width), long_N, width)
        found.append((one._replace(left=long_N // 8), one._replace(causal=True)))
        for N in packed_N:
            for causal in (False, True):
                batched = one._replace(B=max(1, TOKENS // N), N=N, causal=causal)
                found.append((batched._replace(packed=True), batched))
    return found


def attend(problem, cu_seqlens, Q, K, V):
    """O of Q, K and V (B, N, H, d), packed or batched, as (B, N, H, d)."""
    if not problem.packed:
        return flash_attention(*(T.transpose(1, 2) for T in (Q, K, V)), **problem.masks).transpose(1, 2)
    packed = (T.flatten(0, 1) for T in (Q, K, V))
    return flash_attention_varlen(*packed, cu_seqlens, cu_seqlens, **problem.masks).view_as(Q)


def calls(problem, Q, K, V, dO):
    """{"forward", "backward": a call, and its check against float64}, of the last head."""
    leaves = [T.detach().requires_grad_() for T in (Q, K, V)]
    ends = [n * problem.N for n in range(problem.B + 1)]
    cu_seqlens = torch.tensor(ends, device=Q.device, dtype=torch.int32)            # all layers of a model share it
    backward = partial(torch.autograd.grad, attend(problem, cu_seqlens, *leaves), leaves, dO, retain_graph=True)
    last = lambda tensors: [T[-1:, :, -1:].transpose(1, 2) for T in tensors]

    def check_forward(call):
        O, *inputs = last([call(), Q, K, V])
        return fields(oracle.judge(O, None, *inputs, **problem.masks))

    def check_backward(call):
        return fields(oracle.judge_gradients(*last([*call(), Q, K, V, dO]), **problem.masks))

    forward = partial(attend, problem, cu_seqlens, Q, K, V)
    return {"forward": (forward, check_forward), "backward": (backward, check_backward)}


def measure(it, beside, *, device="cuda", timer=timing.time_ms, rounds=3, expired=timing.never):
    """Two rows, one for each pass: `it`, and how many times as fast as the other it is."""
    normal = drawn(it.N, device)
    tensors = [normal(it.B, it.N, it.H, it.d) for _ in range(4)]
    both = {"it": calls(it, *tensors), "beside": calls(beside, *tensors)}
    for which in ("forward", "backward"):
        checks = {of[which][0]: of[which][1] for of in both.values()}
        named = {name: of[which][0] for name, of in both.items()}
        rows = timing.measure(named, lambda call: checks[call](call), rounds, timer=timer, expired=expired)
        mine, other = rows["it"], rows["beside"]
        row = it._asdict() | {"pass": which, "beside": str(beside)} | mine
        if mine["ms"] and other["ms"]:
            row |= {"beside_ms": other["ms"], "times_faster": round(other["ms"] / mine["ms"], 4)}
        yield row | {"skipped": mine["skipped"] or other["skipped"]}


def pieces(args):
    """What the options ask for, pair by pair."""
    for it, beside in pairs(args.d, args.N):
        rows, reason = timing.attempt(lambda pair: list(measure(*pair, expired=args.expired)), (it, beside))
        yield "rows", rows or [it._asdict() | {"ms": None, "skipped": reason}]


def add_arguments(parser):
    """The options of `bench spans`."""
    add_integers(parser, "--d", HEAD_DIMS, "head dimensions")
    parser.add_argument("--N", type=positive(int, "an integer >= 1"), default=TOKENS,
                        help=f"sequence length of the window, which is N/8 ({TOKENS})")
