# kind: one mistake
# what: program_id(0) counts across and program_id(1) down, in the kernel and in the grid alike
# shows: numbers are right; program (i, j) makes tile (j, i), and the grid is (across, down) against the stub
"""ex09_matmul · a tiled matrix product"""

import triton
import triton.language as tl


@triton.jit
def matmul_kernel(A, B, C, M, N, K, stride_Am, stride_Ak, stride_Bk, stride_Bn, stride_Cm, stride_Cn,
                  B_m: tl.constexpr, B_n: tl.constexpr, B_k: tl.constexpr):
    """Tile (program_id(0), program_id(1)) of C."""
    rows = (tl.program_id(1) * B_m + tl.arange(0, B_m)).to(tl.int64)
    cols = (tl.program_id(0) * B_n + tl.arange(0, B_n)).to(tl.int64)
    acc = tl.zeros((B_m, B_n), tl.float32)
    for k in range(0, tl.cdiv(K, B_k)):
        inner = (k * B_k + tl.arange(0, B_k)).to(tl.int64)
        a = tl.load(A + rows[:, None] * stride_Am + inner * stride_Ak, (rows[:, None] < M) & (inner < K), 0.0)
        b = tl.load(B + inner[:, None] * stride_Bk + cols * stride_Bn, (inner[:, None] < K) & (cols < N), 0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(C + rows[:, None] * stride_Cm + cols * stride_Cn, acc, (rows[:, None] < M) & (cols < N))


def matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    (M, K), N = A.shape, B.shape[1]
    grid = (triton.cdiv(N, B_n), triton.cdiv(M, B_m))
    matmul_kernel[grid](A, B, C, M, N, K, *A.stride(), *B.stride(), *C.stride(), B_m, B_n, B_k)
