"""The sum of a vector, four ways: what an atomic addition costs, and what it does to the last digits."""

import torch
import triton
import triton.language as tl

from flashlab_course.gpu.launching import check_tensors


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

    Shapes:  X (N,) contiguous float32, N >= 1 -> (1,)
    how:     "element": an atomic addition per element; "block": one per program; "partial": none; a second, single
             program adds the programs' sums, in the same order every time
    """
    check_tensors(torch.float32, ndim=1, X=X)
    if how not in ("element", "block", "partial"):
        raise ValueError(f"how must be element, block or partial, got {how!r}")
    N = X.numel()
    programs = triton.cdiv(N, B)
    Out = X.new_zeros(1)
    with torch.cuda.device_of(X):
        if how == "partial":
            parts = X.new_zeros(programs)
            partial_sums_kernel[(programs,)](X, parts, N, B)
            partial_sums_kernel[(1,)](parts, Out, programs, triton.next_power_of_2(programs), num_warps=8)
        else:
            kernel = sum_by_element_kernel if how == "element" else sum_by_block_kernel
            kernel[(programs,)](X, Out, N, B)
    return Out
