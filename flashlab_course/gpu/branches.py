"""One switch, decided while compiling or while running: what each leaves in the code."""

import triton
import triton.language as tl


@triton.jit
def constexpr_branch_kernel(X, Out, flag: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(X + i)
    if flag == 0:                                          # decided now: the other side is not compiled
        x = tl.exp(x)
    else:
        x = tl.sqrt(x)
    tl.store(Out + i, x)


@triton.jit
def runtime_branch_kernel(X, Out, flag, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(X + i)
    if flag == 0:                                          # decided on the GPU: both sides are there, and a branch
        x = tl.exp(x)
    else:
        x = tl.sqrt(x)
    tl.store(Out + i, x)
