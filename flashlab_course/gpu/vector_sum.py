"""The sum of a vector, four ways: what an atomic addition costs, and what it does to the last digits."""

import torch
import triton
import triton.language as tl

from flashlab_course.gpu.launching import check_on


@triton.jit
def sum_by_element_kernel(X, Out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(X + i, i < N, 0.0)
    tl.atomic_add(Out + tl.zeros((B,), tl.int32), x, i < N)            # every element queues for one address


@triton.jit
def sum_by_block_kernel(X, Out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(Out, tl.sum(tl.load(X + i, i < N, 0.0), 0))          # added up on chip first: one atomic a program


@triton.jit
def partial_sums_kernel(X, Out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Out + tl.program_id(0), tl.sum(tl.load(X + i, i < N, 0.0), 0))     # no atomic: one place a program


def vector_sum(X, *, how="partial", B=1024):
    """The sum of X as a tensor of one float32.

    Shapes:  X (N,) contiguous float32 -> (1,)
    how:     "element": an atomic addition per element; "block": one per program; "partial": none; a second, single
             program adds the programs' sums, in the same order every time
    Raises:  TypeError or ValueError before anything is launched
    """
    check_on("X", X, ndim=1, contiguous=True, dtypes=(torch.float32,))
    if how not in ("element", "block", "partial"):
        raise ValueError(f"how must be element, block or partial, got {how!r}")
    N = X.numel()
    programs = triton.cdiv(N, B)
    if how == "partial" and programs > 65536:
        raise ValueError(f"B must be larger: one program adds the sums of at most 65536, got {programs}")
    with torch.cuda.device_of(X):
        Out = X.new_zeros(1)
        if how == "partial":
            parts = X.new_zeros(max(1, programs))
            partial_sums_kernel[(len(parts),)](X, parts, N, B)
            partial_sums_kernel[(1,)](parts, Out, programs, triton.next_power_of_2(len(parts)), num_warps=8)
            return Out
        kernel = sum_by_element_kernel if how == "element" else sum_by_block_kernel
        if N:
            kernel[(programs,)](X, Out, N, B)
    return Out
