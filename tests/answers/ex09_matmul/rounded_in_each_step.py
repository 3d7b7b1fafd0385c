# kind: one mistake
# what: the sum is kept in C's dtype from step to step
# shows: 16-bit C and K > B_k: more rounding error than one rounding at the end; in float32 nothing shows
"""ex09_matmul · a tiled matrix product"""

import triton
import triton.language as tl


@triton.jit
def matmul_kernel(A, B, C, M, N, K, stride_Am, stride_Ak, stride_Bk, stride_Bn, stride_Cm, stride_Cn,
                  B_m: tl.constexpr, B_n: tl.constexpr, B_k: tl.constexpr):
    """Tile (program_id(0), program_id(1)) of C."""
    m = (tl.program_id(0) * B_m + tl.arange(0, B_m)).to(tl.int64)
    n = (tl.program_id(1) * B_n + tl.arange(0, B_n)).to(tl.int64)
    total = tl.zeros((B_m, B_n), C.dtype.element_ty)
    for start in range(0, K, B_k):
        k = (start + tl.arange(0, B_k)).to(tl.int64)
        a = tl.load(A + m[:, None] * stride_Am + k[None, :] * stride_Ak, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(B + k[:, None] * stride_Bk + n[None, :] * stride_Bn, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        product = tl.dot(a, b, input_precision="ieee")
        total += product.to(C.dtype.element_ty)
    tl.store(C + m[:, None] * stride_Cm + n[None, :] * stride_Cn, total, mask=(m[:, None] < M) & (n[None, :] < N))


def matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    (M, K), N = A.shape, B.shape[1]
    grid = (triton.cdiv(M, B_m), triton.cdiv(N, B_n))
    matmul_kernel[grid](A, B, C, M, N, K, *A.stride(), *B.stride(), *C.stride(), B_m, B_n, B_k)
