# kind: right
# what: blocks of pointers are moved on by a tile in each step; multiplies the transposes, (B^T A^T)^T
"""ex09_matmul · a tiled matrix product"""

import triton
import triton.language as tl


@triton.jit
def matmul_kernel(A, B, C, M, N, K, stride_Am, stride_Ak, stride_Bk, stride_Bn, stride_Cm, stride_Cn,
                  B_m: tl.constexpr, B_n: tl.constexpr, B_k: tl.constexpr):
    """Tile (program_id(0), program_id(1)) of C."""
    rows = tl.program_id(0).to(tl.int64) * B_m + tl.arange(0, B_m)
    cols = tl.program_id(1).to(tl.int64) * B_n + tl.arange(0, B_n)
    inner = tl.arange(0, B_k).to(tl.int64)
    A_T = A + inner[:, None] * stride_Ak + rows[None, :] * stride_Am           # (B_k, B_m)
    B_T = B + cols[:, None] * stride_Bn + inner[None, :] * stride_Bk           # (B_n, B_k)
    C_T = tl.zeros((B_n, B_m), tl.float32)
    for start in range(0, K, B_k):
        left = K - start
        a = tl.load(A_T, (inner < left)[:, None] & (rows < M)[None, :], 0.0)
        b = tl.load(B_T, (cols < N)[:, None] & (inner < left)[None, :], 0.0)
        C_T = tl.dot(b, a, C_T, input_precision="ieee")
        A_T += B_k * stride_Ak
        B_T += B_k * stride_Bk
    at = C + rows[None, :] * stride_Cm + cols[:, None] * stride_Cn
    tl.store(at, C_T, (cols < N)[:, None] & (rows < M)[None, :])


def matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    (M, K), N = A.shape, B.shape[1]
    grid = (triton.cdiv(M, B_m), triton.cdiv(N, B_n))
    matmul_kernel[grid](A, B, C, M, N, K, *A.stride(), *B.stride(), *C.stride(), B_m, B_n, B_k)
