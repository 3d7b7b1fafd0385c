# kind: one mistake
# what: B's rows beyond K are not masked, for A is 0 there
# shows: K not a multiple of B_k: reads what is not there; 0 times what is read is NaN if that is NaN or inf
"""ex09_matmul · a tiled matrix product"""

import triton
import triton.language as tl


@triton.jit
def matmul_kernel(A, B, C, M, N, K, stride_Am, stride_Ak, stride_Bk, stride_Bn, stride_Cm, stride_Cn,
                  B_m: tl.constexpr, B_n: tl.constexpr, B_k: tl.constexpr):
    """Tile (program_id(0), program_id(1)) of C."""
    rows = tl.program_id(0) * B_m + tl.arange(0, B_m)
    cols = tl.program_id(1) * B_n + tl.arange(0, B_n)
    acc = tl.zeros((B_m, B_n), tl.float32)
    for k in range(0, tl.cdiv(K, B_k)):
        inner = k * B_k + tl.arange(0, B_k)
        A_at = A + rows[:, None].to(tl.int64) * stride_Am + inner[None, :].to(tl.int64) * stride_Ak
        B_at = B + inner[:, None].to(tl.int64) * stride_Bk + cols[None, :].to(tl.int64) * stride_Bn
        a = tl.load(A_at, mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0)
        b = tl.load(B_at, mask=cols[None, :] < N, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    C_at = C + rows[:, None].to(tl.int64) * stride_Cm + cols[None, :].to(tl.int64) * stride_Cn
    tl.store(C_at, acc, mask=(rows[:, None] < M) & (cols[None, :] < N))


def matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    (M, K), N = A.shape, B.shape[1]
    grid = (triton.cdiv(M, B_m), triton.cdiv(N, B_n))
    matmul_kernel[grid](A, B, C, M, N, K, *A.stride(), *B.stride(), *C.stride(), B_m, B_n, B_k)
