"""bfloat16 to FP8 with a scale for each block of rows, in one pass: rotate, find the largest, divide, round.

fp8.py says why. V goes out transposed, (d, keys), and its keys within each 16 in the order in which a thread of
fp8_kernel.py has their weights.
"""

import triton
import triton.language as tl

LARGEST = tl.constexpr(448.0)                          # of e4m3
SMALLEST = tl.constexpr(1e-12)                         # a block of zeros has a scale, too


@triton.jit
def quantize_kernel(
    X, H, values, scales, stride_b, stride_h, stride_n, heads, N, root,            # H: (d, d) of +1 and -1, or None
    block: tl.constexpr, blocks: tl.constexpr, d: tl.constexpr, transposed: tl.constexpr,
):
    # Several blocks of one head: H is loaded once for all of them.
    T = tl.cdiv(N, block)
    parts = tl.cdiv(T, blocks)
    first, head = tl.program_id(0) % parts * blocks, tl.program_id(0) // parts
    start = X + (head // heads).to(tl.int64) * stride_b + (head % heads).to(tl.int64) * stride_h
    n = tl.arange(0, block)                            # (block,)
    columns = tl.arange(0, d)                          # (d,)
    order = n
    if transposed:                                     # place 4t + 2b + e of 16 holds key 8b + 2t + e
        order = (n & -16) + ((n >> 1) & 1) * 8 + ((n >> 2) & 3) * 2 + (n & 1)
    if H is not None:
        H_all = tl.load(H + columns[:, None] * d + columns)                        # (d, d)
    for j in tl.range(first, tl.minimum(first + blocks, T)):
        rows = j * block + order
        X_j = tl.load(start + rows[:, None].to(tl.int64) * stride_n + columns, mask=rows[:, None] < N, other=0.0)
        if H is not None:
            X_j = tl.dot(X_j, H_all, input_precision="ieee") * root
        X_j = X_j.to(tl.float32)
        scale = tl.maximum(tl.max(tl.abs(X_j)), SMALLEST) / LARGEST
        X_j = (X_j / scale).to(values.dtype.element_ty)
        if transposed:
            to = values + (head.to(tl.int64) * d + columns[:, None]) * (T * block) + j * block + n
            tl.store(to, X_j.T)                        # the last block is whole: zeros past the end
            tl.store(scales + head * T + j, tl.log2(scale))
        else:
            tl.store(values + (head.to(tl.int64) * N + rows[:, None]) * d + columns, X_j, mask=rows[:, None] < N)
            tl.store(scales + head * T + j, scale)


def launch(X, H, values, scales, block, transposed=False, blocks=4):
    """The grid and the arguments of one launch; nothing is checked, nothing runs. X (B, H, N, d), columns adjacent."""
    heads, N, d = X.shape[1:]
    arguments = {"X": X, "H": H, "values": values, "scales": scales, "heads": heads, "N": N, "root": d**-0.5}
    arguments |= {f"stride_{axis}": step for axis, step in zip("bhn", X.stride(), strict=False)}
    arguments |= {"block": block, "blocks": blocks, "d": d, "transposed": transposed}
    arguments |= {"num_warps": 8 if block * d > 8192 else 4}
    # At d = 256 H takes 128 KiB of shared memory: there is no room for blocks of X that are loaded ahead.
    arguments["num_stages"] = 1 if d == 256 else 3
    return (X.shape[0] * heads * triton.cdiv(triton.cdiv(N, block), blocks),), arguments
