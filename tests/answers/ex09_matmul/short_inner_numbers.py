# kind: one mistake
# what: rows and columns of C are 64 bits, the numbers along k stay 32 bits
# shows: k times stride_Ak or stride_Bk beyond 2^31 (few rows far apart): wrapped addresses; else right
"""ex09_matmul · a tiled matrix product"""

import triton
import triton.language as tl


@triton.jit
def matmul_kernel(A, B, C, M, N, K, stride_Am, stride_Ak, stride_Bk, stride_Bn, stride_Cm, stride_Cn,
                  B_m: tl.constexpr, B_n: tl.constexpr, B_k: tl.constexpr):
    """Tile (program_id(0), program_id(1)) of C."""
    rows = tl.program_id(0) * B_m + tl.arange(0, B_m)
    cols = tl.program_id(1) * B_n + tl.arange(0, B_n)
    row_ok, col_ok = rows[:, None] < M, cols[None, :] < N
    rows, cols = rows.to(tl.int64)[:, None], cols.to(tl.int64)[None, :]
    acc = tl.zeros((B_m, B_n), tl.float32)
    for start in range(0, K, B_k):
        k = start + tl.arange(0, B_k)
        a = tl.load(A + rows * stride_Am + k[None, :] * stride_Ak, row_ok & (k[None, :] < K), 0.0)
        b = tl.load(B + k[:, None] * stride_Bk + cols * stride_Bn, (k[:, None] < K) & col_ok, 0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(C + rows * stride_Cm + cols * stride_Cn, acc, row_ok & col_ok)


def matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    (M, K), N = A.shape, B.shape[1]
    grid = (triton.cdiv(M, B_m), triton.cdiv(N, B_n))
    matmul_kernel[grid](A, B, C, M, N, K, *A.stride(), *B.stride(), *C.stride(), B_m, B_n, B_k)
