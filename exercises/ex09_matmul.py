"""ex09_matmul · a tiled matrix product

Chapter 09 · difficulty 4 of 5 · 30 minutes

C = A B, one program for each tile of C. It walks along its strip of A and down its strip of B and adds up tile
products.

    A (M, K)   B (K, N)   ->   C (M, N)        any strides, any M, N, K; tiles B_m × B_k of A, B_k × B_n of B

program_id(0) counts the tiles of C from the top, program_id(1) from the left; the grid has this order. Each tensor has
two strides of its own: stride_Am passes from one row of A to the next, stride_Ak from one column to the next. A, B and
C have the same dtype, float16 or float32.

- The sum is float32 whatever the inputs; it is rounded to C's dtype once, when it is stored.
- Load only what exists and take 0 for the rest: a 0 adds nothing to a product. Store only what exists.
- tl.dot(a, b, acc, input_precision="ieee") adds a b to acc and keeps float32 exact.
- Row and column numbers times strides can pass 2³¹: 64 bits (`.to(tl.int64)`). B_m, B_n or B_k times a stride cannot.
- No size is 0.

Not allowed: PyTorch in place of the kernel, tensors of your own, fewer or more programs than tiles of C, larger tiles,
a second load or store of the same tile by one program, atomics, the finished function from flashlab or solutions/.

Hint: which of the three indices changes in the loop? It moves A's columns and B's rows.
"""

import triton
import triton.language as tl


@triton.jit
def matmul_kernel(A, B, C, M, N, K, stride_Am, stride_Ak, stride_Bk, stride_Bn, stride_Cm, stride_Cn,
                  B_m: tl.constexpr, B_n: tl.constexpr, B_k: tl.constexpr):
    """Tile (program_id(0), program_id(1)) of C."""
    # your turn: my rows and columns, the loop over k, the store
    raise NotImplementedError("ex09_matmul: my rows and columns, the loop over k, the store")


def matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    (M, K), N = A.shape, B.shape[1]
    # your turn: the grid, tiles down and across
    raise NotImplementedError("ex09_matmul: the grid, tiles down and across")
    matmul_kernel[grid](A, B, C, M, N, K, *A.stride(), *B.stride(), *C.stride(), B_m, B_n, B_k)
