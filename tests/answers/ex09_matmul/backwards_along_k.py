# kind: right
# what: walks k from the last tile to the first; addresses from a helper; the sum outside tl.dot
"""ex09_matmul · a tiled matrix product"""

import triton
import triton.language as tl


@triton.jit
def places(r, c, stride_r, stride_c):
    return r.to(tl.int64)[:, None] * stride_r + c.to(tl.int64)[None, :] * stride_c


@triton.jit
def inside(r, c, height, width):
    return (r < height)[:, None] & (c < width)[None, :]


@triton.jit
def matmul_kernel(A, B, C, M, N, K, stride_Am, stride_Ak, stride_Bk, stride_Bn, stride_Cm, stride_Cn,
                  B_m: tl.constexpr, B_n: tl.constexpr, B_k: tl.constexpr):
    """Tile (program_id(0), program_id(1)) of C."""
    r = tl.program_id(0) * B_m + tl.arange(0, B_m)
    c = tl.program_id(1) * B_n + tl.arange(0, B_n)
    total = tl.zeros([B_m, B_n], dtype=tl.float32)
    steps = tl.cdiv(K, B_k)
    for step in range(steps):
        k = (steps - 1 - step) * B_k + tl.arange(0, B_k)
        a = tl.load(A + places(r, k, stride_Am, stride_Ak), mask=inside(r, k, M, K), other=0.0)
        b = tl.load(B + places(k, c, stride_Bk, stride_Bn), mask=inside(k, c, K, N), other=0.0)
        total += tl.dot(a, b, input_precision="ieee")
    tl.store(C + places(r, c, stride_Cm, stride_Cn), total.to(C.dtype.element_ty), mask=inside(r, c, M, N))


def matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    (M, K), N = A.shape, B.shape[1]
    grid = (triton.cdiv(M, B_m), triton.cdiv(N, B_n))
    matmul_kernel[grid](A, B, C, M, N, K, *A.stride(), *B.stride(), *C.stride(), B_m, B_n, B_k)
