"""The sizes to measure at, their inputs, and the forward passes that take (B, H, N, d)."""

from functools import partial
from importlib import import_module
from itertools import product
from typing import NamedTuple

import torch

from flashlab import cost
from flashlab.ladder import KERNELS, RUNGS
from flashlab.operator.attention import flash_attention
from flashlab.rungs.naive import naive_forward
from flashlab.triton_mode import import_triton
from flashlab_course.bench.peers import peers

TOKENS, WIDTH = 16384, 2048            # B·N and H·d at every N and d: equal inputs, equal work per score
SIZES = (512, 1024, 2048, 4096, 8192, 16384)
HEAD_DIMS = (64, 128)
MASKS = {"both": (False, True), "yes": (True,), "no": (False,)}


class Problem(NamedTuple):
    """One size: Q is (B, H, N, d), K and V are (B, H / share, N, d)."""

    N: int
    d: int
    causal: bool = False
    dtype: str = "bfloat16"
    B: int = 1
    H: int = 16
    share: int = 1                     # how many query heads share a key and value head

    @property
    def flops(self):
        return cost.attention_flops(self.B, self.H, self.N, self.N, self.d, causal=self.causal)


def problem_of(row):
    """The Problem that a row was measured at."""
    return Problem(**{name: row[name] for name in Problem._fields if name in row})


def problem_grid(N=SIZES, d=HEAD_DIMS, causal=(False, True), dtype=("bfloat16",), share=1):
    """Every combination, with about TOKENS = B·N and WIDTH = H·d.

    Raises: ValueError if share does not divide the heads
    """
    found = []
    for dtype_name, width, masked, n in product(dtype, d, causal, N):
        heads = max(1, WIDTH // width)
        if heads % share:
            raise ValueError(f"share must divide the {heads} heads of d = {width}, got {share}")
        found.append(Problem(n, width, masked, dtype_name, max(1, TOKENS // n), heads, share))
    return found


def implementations():
    """{name: forward(Q, K, V, causal) -> (O, L or None)}: naive attention, the rungs that take heads, the peers."""
    rungs = {rung.name: partial(run_rung, rung.name) for rung in KERNELS}
    return {RUNGS[0].name: naive_over_heads} | rungs | peers()


def naive_over_heads(Q, K, V, causal):
    """O of naive_forward of (B, H, N, d), vmapped: each operation is launched once for all heads."""
    if (share := Q.shape[1] // K.shape[1]) > 1:
        K, V = (T.repeat_interleave(share, 1) for T in (K, V))
    heads = [T.flatten(0, 1) for T in (Q, K, V)]                            # (B·H, N, d)
    O = torch.vmap(lambda *head: naive_forward(*head, causal=causal)[0])(*heads)
    return O.unflatten(0, Q.shape[:2]), None


def run_rung(name, Q, K, V, causal):
    return flash_attention(Q, K, V, causal=causal, backend=name, return_lse=True)


def inputs(problem, device):
    """Random Q, K, V, the same for every implementation."""
    B, H, N, d = problem.B, problem.H, problem.N, problem.d
    normal = drawn(N + d, device, getattr(torch, problem.dtype))
    return [normal(B, heads, N, d) for heads in (H, H // problem.share, H // problem.share)]


def drawn(seed, device, dtype=torch.bfloat16):
    """normal(*sizes): tensors of random numbers that follow from the seed."""
    return partial(torch.randn, generator=torch.Generator(device).manual_seed(seed), device=device, dtype=dtype)


def tiles(name, problem):
    """The tile sizes that the forward kernel of that name picks, {"B_r", "B_c"}; {} for all others."""
    rung = next((rung for rung in KERNELS if rung.name == name), None)
    if not rung or not import_triton():
        return {}
    X = torch.empty(problem.B, problem.H, problem.N, problem.d, dtype=getattr(torch, problem.dtype), device="meta")
    launch = import_module(rung.module).launch
    arguments = launch(X, X, X, X, torch.empty(X.shape[:3], device="meta"), causal=problem.causal, scale=1.0)[1]
    return {side: arguments[side] for side in ("B_r", "B_c") if side in arguments}
