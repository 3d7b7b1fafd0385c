# kind: right
# what: a helper loads any tile by two number vectors; the product is made transposed, C^T = B^T A^T, and stored so
# shows: tiles of C^T hold the same sums; sizes of the tiles, loads and stores as in the stub
"""ex09_matmul · a tiled matrix product

Chapter 09 · difficulty 4 of 5 · 40 minutes

C = A B, one program for each tile of C. It walks along its strip of A and down its strip of B and adds up tile products.

    A (M, K)   B (K, N)   ->   C (M, N)        any strides, any M, N, K; tiles B_m × B_k of A, B_k × B_n of B

program_id(0) counts the tiles of C from the top, program_id(1) from the left. Each tensor has two strides of its own: stride_Am
passes from one row of A to the next, stride_Ak from one column to the next. A and B have the same dtype, float16 or float32.

- The sum is float32 whatever the inputs; it is rounded to C's dtype once, when it is stored.
- Load only what exists and take 0 for the rest: a 0 adds nothing to a product. Store only what exists.
- tl.dot(a, b, acc, input_precision="ieee") adds a b to acc and keeps float32 exact.
- Row and column numbers times strides can pass 2³¹: 64 bits (`.to(tl.int64)`).
- No size is 0.

Not allowed: PyTorch in place of the kernel, tensors of your own, fewer or more programs than tiles of C, larger tiles, a
second load or store of the same tile by one program, atomics, the finished function from flashlab or solutions/.

Hint: which of the three indices changes in the loop? It moves A's columns and B's rows.
"""

import triton
import triton.language as tl


@triton.jit
def numbers(t, B: tl.constexpr):
    """The B numbers of tile t, in 64 bits."""
    return tl.cast(t, tl.int64) * B + tl.arange(0, B)


@triton.jit
def tile_of(P, down, across, stride_down, stride_across, n_down, n_across):
    ok = (down[:, None] < n_down) & (across[None, :] < n_across)
    return tl.load(P + down[:, None] * stride_down + across[None, :] * stride_across, ok, 0.0)


@triton.jit
def matmul_kernel(A, B, C, M, N, K, stride_Am, stride_Ak, stride_Bk, stride_Bn, stride_Cm, stride_Cn,
                  B_m: tl.constexpr, B_n: tl.constexpr, B_k: tl.constexpr):
    """Tile (program_id(0), program_id(1)) of C."""
    m = numbers(tl.program_id(0), B_m)
    n = numbers(tl.program_id(1), B_n)
    total_T = tl.zeros((B_n, B_m), tl.float32)
    for t in range(tl.cdiv(K, B_k)):
        k = numbers(t, B_k)
        b_T = tile_of(B, n, k, stride_Bn, stride_Bk, N, K)         # (B_n, B_k)
        a_T = tile_of(A, k, m, stride_Ak, stride_Am, K, M)         # (B_k, B_m)
        total_T += tl.dot(b_T, a_T, input_precision="ieee")
    ok = (n[:, None] < N) & (m[None, :] < M)
    tl.store(C + n[:, None] * stride_Cn + m[None, :] * stride_Cm, total_T, ok)


def matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    (M, K), N = A.shape, B.shape[1]
    down, across = -(-M // B_m), -(-N // B_n)
    grid = (down, across)
    matmul_kernel[grid](A, B, C, M, N, K, *A.stride(), *B.stride(), *C.stride(), B_m, B_n, B_k)
