"""A backward pass whose programs keep keys on chip, with several programs for the query heads of a key head.

One program for each key block of each key head may be too few to fill a GPU. Then several programs share the query
heads of a group: each makes dK and dV of its part of the heads, and the parts are added up here.
"""

import torch
import triton
import triton.language as tl

from flashlab.kernels.plans import temporary


def how_many_parts(programs, group, enough):
    """How many parts to split a group of heads into, so that there are enough programs to keep all SMs busy."""
    parts = 1
    while programs * parts < enough and group % (2 * parts) == 0:
        parts *= 2
    return parts


def in_parts(dK, dV, parts):
    """(dK_parts, dV_parts, launches): tensors (B, parts * H_kv, N_k, d) to write, and the launch that adds them up."""
    (B, H, N, d), block = dK.shape, 2048
    if parts == 1:
        return dK, dV, []
    dK_parts, dV_parts = (temporary(torch.empty, B, H * parts, N, d, dtype=dK.dtype, device=dK.device) for _ in "KV")
    arguments = {"dK_parts": dK_parts, "dV_parts": dV_parts, "dK": dK, "dV": dV, "size": N * d, "parts": parts}
    grid = (B * H * triton.cdiv(N * d, block),)
    return dK_parts, dV_parts, [(add_parts_kernel, grid, arguments | {"block": block})]


@triton.jit
def add_parts_kernel(dK_parts, dV_parts, dK, dV, size, parts: tl.constexpr, block: tl.constexpr):
    """dK and dV: sums, in float32, of the results of `parts` programs. size: elements of a head"""
    blocks = tl.cdiv(size, block)
    head, n = tl.program_id(0).to(tl.int64) // blocks, tl.program_id(0) % blocks
    at = n.to(tl.int64) * block + tl.arange(0, block)
    dK_sum, dV_sum = tl.zeros((block,), tl.float32), tl.zeros((block,), tl.float32)
    for part in tl.static_range(parts):
        dK_sum += tl.load(dK_parts + (head * parts + part) * size + at, mask=at < size, other=0.0).to(tl.float32)
        dV_sum += tl.load(dV_parts + (head * parts + part) * size + at, mask=at < size, other=0.0).to(tl.float32)
    tl.store(dK + head * size + at, dK_sum, mask=at < size)
    tl.store(dV + head * size + at, dV_sum, mask=at < size)
