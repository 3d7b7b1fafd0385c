# kind: right
# what: pointers move along by B_k each round, remaining count shrinks, explicit cast at the store
"""ex09_matmul: my answer."""

import triton
import triton.language as tl


@triton.jit
def matmul_kernel(A, B, C, M, N, K, stride_Am, stride_Ak, stride_Bk, stride_Bn, stride_Cm, stride_Cn,
                  B_m: tl.constexpr, B_n: tl.constexpr, B_k: tl.constexpr):
    """Tile (program_id(0), program_id(1)) of C."""
    i = tl.program_id(0).to(tl.int64) * B_m + tl.arange(0, B_m)[:, None]
    j = tl.program_id(1).to(tl.int64) * B_n + tl.arange(0, B_n)[None, :]
    t = tl.arange(0, B_k).to(tl.int64)
    a_at = A + i * stride_Am + t[None, :] * stride_Ak
    b_at = B + t[:, None] * stride_Bk + j * stride_Bn
    acc = tl.zeros((B_m, B_n), dtype=tl.float32)
    left = K
    while left > 0:
        a = tl.load(a_at, mask=(i < M) & (t[None, :] < left), other=0.0)
        b = tl.load(b_at, mask=(t[:, None] < left) & (j < N), other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
        a_at += B_k * stride_Ak
        b_at += B_k * stride_Bk
        left -= B_k
    tl.store(C + i * stride_Cm + j * stride_Cn, acc.to(C.dtype.element_ty), mask=(i < M) & (j < N))


def matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    (M, K), N = A.shape, B.shape[1]
    grid = (-(-M // B_m), -(-N // B_n))
    matmul_kernel[grid](A, B, C, M, N, K, *A.stride(), *B.stride(), *C.stride(), B_m, B_n, B_k)
