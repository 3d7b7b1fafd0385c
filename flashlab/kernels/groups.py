"""Query heads that share keys, in a backward pass: a program walks the queries of one head after the other.

If one program walks them all, there may be too few programs. Then they are shared out: each makes dK and dV of its part of the
heads, and they are added up here.
"""

import torch
import triton
import triton.language as tl

from flashlab.kernels.plans import temporary


@triton.jit
def head_and_tile(step, count, first_head, first_tile):
    """Which query head, and which of its tiles, a loop over all heads comes to, `count` tiles of each.

    count may be 0, and then the loop is empty. But the compiler begins the first copies before it, for which it works out the first
    step's addresses; a quotient by 0 would promise it that there is one, and it would copy a tile that is not there.
    """
    each = tl.maximum(1, count)
    return first_head + step // each, first_tile + step % each


def how_many_parts(programs, group, enough):
    """Into how many parts a group of heads is shared out, so that there are enough programs to keep all SMs busy to the end."""
    parts = 1
    while programs * parts < enough and group % (2 * parts) == 0:
        parts *= 2
    return parts


def in_parts(dK, dV, parts):
    """(dK_parts, dV_parts, launches): tensors (B, parts * H_kv, N_k, d) for the programs to write, and what adds them up."""
    (B, H, N, d), block = dK.shape, 2048
    if parts == 1:
        return dK, dV, []
    dK_parts, dV_parts = (temporary(torch.empty, B, H * parts, N, d, dtype=dK.dtype, device=dK.device) for _ in "KV")
    arguments = {"dK_parts": dK_parts, "dV_parts": dV_parts, "dK": dK, "dV": dV, "size": N * d, "parts": parts, "block": block}
    return dK_parts, dV_parts, [(add_parts_kernel, (B * H * triton.cdiv(N * d, block),), arguments)]


@triton.jit
def add_parts_kernel(dK_parts, dV_parts, dK, dV, size, parts: tl.constexpr, block: tl.constexpr):
    """dK and dV: sums, in float32, of what `parts` programs made of them. size: elements of a head"""
    blocks = tl.cdiv(size, block)
    head, n = tl.program_id(0).to(tl.int64) // blocks, tl.program_id(0) % blocks
    at = n.to(tl.int64) * block + tl.arange(0, block)
    dK_sum, dV_sum = tl.zeros((block,), tl.float32), tl.zeros((block,), tl.float32)
    for part in tl.static_range(parts):
        dK_sum += tl.load(dK_parts + (head * parts + part) * size + at, mask=at < size, other=0.0).to(tl.float32)
        dV_sum += tl.load(dV_parts + (head * parts + part) * size + at, mask=at < size, other=0.0).to(tl.float32)
    tl.store(dK + head * size + at, dK_sum, mask=at < size)
    tl.store(dV + head * size + at, dV_sum, mask=at < size)
