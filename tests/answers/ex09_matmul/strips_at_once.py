# kind: point missed
# what: B_k is made as long as K, so that each strip is one load
# shows: numbers are right; tiles of A and B are as long as K, larger than B_k, whenever K > B_k
"""ex09_matmul · a tiled matrix product"""

import triton
import triton.language as tl


@triton.jit
def matmul_kernel(A, B, C, M, N, K, stride_Am, stride_Ak, stride_Bk, stride_Bn, stride_Cm, stride_Cn,
                  B_m: tl.constexpr, B_n: tl.constexpr, B_k: tl.constexpr):
    """Tile (program_id(0), program_id(1)) of C."""
    rows = (tl.program_id(0) * B_m + tl.arange(0, B_m)).to(tl.int64)
    cols = (tl.program_id(1) * B_n + tl.arange(0, B_n)).to(tl.int64)
    k = tl.arange(0, B_k).to(tl.int64)
    a = tl.load(A + rows[:, None] * stride_Am + k[None, :] * stride_Ak, mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
    b = tl.load(B + k[:, None] * stride_Bk + cols[None, :] * stride_Bn, mask=(k[:, None] < K) & (cols[None, :] < N), other=0.0)
    c = tl.dot(a, b, input_precision="ieee")
    tl.store(C + rows[:, None] * stride_Cm + cols[None, :] * stride_Cn, c, mask=(rows[:, None] < M) & (cols[None, :] < N))


def matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    (M, K), N = A.shape, B.shape[1]
    grid = (triton.cdiv(M, B_m), triton.cdiv(N, B_n))
    B_k = max(B_k, triton.next_power_of_2(K))          # the whole strip: no loop needed
    matmul_kernel[grid](A, B, C, M, N, K, *A.stride(), *B.stride(), *C.stride(), B_m, B_n, B_k)
