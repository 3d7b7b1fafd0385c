# kind: one mistake
# what: stride_Bk and stride_Bn are exchanged in the load of b
# shows: B not symmetric in strides
"""ex09_matmul: my answer."""

import triton
import triton.language as tl


@triton.jit
def matmul_kernel(A, B, C, M, N, K, stride_Am, stride_Ak, stride_Bk, stride_Bn, stride_Cm, stride_Cn,
                  B_m: tl.constexpr, B_n: tl.constexpr, B_k: tl.constexpr):
    """Tile (program_id(0), program_id(1)) of C."""
    rows = (tl.program_id(0) * B_m + tl.arange(0, B_m)).to(tl.int64)
    cols = (tl.program_id(1) * B_n + tl.arange(0, B_n)).to(tl.int64)
    acc = tl.zeros((B_m, B_n), tl.float32)
    for k in range(0, tl.cdiv(K, B_k)):
        ks = (k * B_k + tl.arange(0, B_k)).to(tl.int64)
        a = tl.load(A + rows[:, None] * stride_Am + ks[None, :] * stride_Ak, mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(B + ks[:, None] * stride_Bn + cols[None, :] * stride_Bk, mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(C + rows[:, None] * stride_Cm + cols[None, :] * stride_Cn, acc, mask=(rows[:, None] < M) & (cols[None, :] < N))


def matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    (M, K), N = A.shape, B.shape[1]
    grid = (triton.cdiv(M, B_m), triton.cdiv(N, B_n))
    matmul_kernel[grid](A, B, C, M, N, K, *A.stride(), *B.stride(), *C.stride(), B_m, B_n, B_k)
