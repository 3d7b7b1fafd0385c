# kind: right
# what: pointers to the two tiles are made once and pushed along by B_k · stride; k_left counts down and gives the masks
# shows: any sizes and strides; row and column numbers are 64 bits, and the push is B_k times a stride, which the stub says fits
"""ex09_matmul · a tiled matrix product

Chapter 09 · difficulty 4 of 5 · 40 minutes

C = A B, one program for each tile of C. It walks along its strip of A and down its strip of B and adds up tile products.

    A (M, K)   B (K, N)   ->   C (M, N)        any strides, any M, N, K; tiles B_m × B_k of A, B_k × B_n of B

program_id(0) counts the tiles of C from the top, program_id(1) from the left; the grid has this order. Each tensor has two
strides of its own: stride_Am passes from one row of A to the next, stride_Ak from one column to the next. A, B and C have the
same dtype, float16 or float32.

- The sum is float32 whatever the inputs; it is rounded to C's dtype once, when it is stored.
- Load only what exists and take 0 for the rest: a 0 adds nothing to a product. Store only what exists.
- tl.dot(a, b, acc, input_precision="ieee") adds a b to acc and keeps float32 exact.
- Row and column numbers times strides can pass 2³¹: 64 bits (`.to(tl.int64)`). B_m, B_n or B_k times a stride cannot.
- No size is 0.

Not allowed: PyTorch in place of the kernel, tensors of your own, fewer or more programs than tiles of C, larger tiles, a
second load or store of the same tile by one program, atomics, the finished function from flashlab or solutions/.

Hint: which of the three indices changes in the loop? It moves A's columns and B's rows.
"""

import triton
import triton.language as tl


@triton.jit
def tile_at(base, rows, cols, stride_row, stride_col):
    return base + rows[:, None] * stride_row + cols[None, :] * stride_col


@triton.jit
def matmul_kernel(A, B, C, M, N, K, stride_Am, stride_Ak, stride_Bk, stride_Bn, stride_Cm, stride_Cn,
                  B_m: tl.constexpr, B_n: tl.constexpr, B_k: tl.constexpr):
    """Tile (program_id(0), program_id(1)) of C."""
    m = tl.program_id(0).to(tl.int64) * B_m + tl.arange(0, B_m)
    n = tl.program_id(1).to(tl.int64) * B_n + tl.arange(0, B_n)
    k = tl.arange(0, B_k)
    m_ok = (m < M)[:, None]
    n_ok = (n < N)[None, :]

    a_at = tile_at(A, m, k.to(tl.int64), stride_Am, stride_Ak)
    b_at = tile_at(B, k.to(tl.int64), n, stride_Bk, stride_Bn)
    total = tl.zeros((B_m, B_n), dtype=tl.float32)
    for done in range(0, K, B_k):
        k_left = K - done
        a = tl.load(a_at, mask=m_ok & (k < k_left)[None, :], other=0.0)
        b = tl.load(b_at, mask=(k < k_left)[:, None] & n_ok, other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
        a_at += B_k * stride_Ak
        b_at += B_k * stride_Bk
    tl.store(tile_at(C, m, n, stride_Cm, stride_Cn), total.to(C.dtype.element_ty), mask=m_ok & n_ok)


def matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    (M, K), N = A.shape, B.shape[1]
    grid = ((M + B_m - 1) // B_m, (N + B_n - 1) // B_n)
    matmul_kernel[grid](A, B, C, M, N, K, *A.stride(), *B.stride(), *C.stride(), B_m, B_n, B_k)
