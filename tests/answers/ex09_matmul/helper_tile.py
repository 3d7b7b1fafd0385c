# kind: right
# what: a helper that loads a tile from any matrix by its row and column numbers, addresses made anew in each step; the grid by hand
# shows: within the contract: every index is 64 bits before it meets a stride, what does not exist is 0, one load of each tile
"""ex09_matmul · a tiled matrix product

Chapter 09 · difficulty 4 of 5 · 40 minutes

C = A B, one program for each tile of C. It walks along its strip of A and down its strip of B and adds up tile products.

    A (M, K)   B (K, N)   ->   C (M, N)        any strides, any M, N, K; tiles B_m × B_k of A, B_k × B_n of B

program_id(0) counts the tiles of C from the top, program_id(1) from the left. Each tensor has two strides of its own: stride_Am
passes from one row of A to the next, stride_Ak from one column to the next. A and B have the same dtype, of 16 or 32 bits.

- The sum is float32 whatever the inputs; it is rounded to C's dtype once, when it is stored.
- Load only what exists and take 0 for the rest: a 0 adds nothing to a product. Store only what exists.
- tl.dot(a, b, acc, input_precision="ieee") adds a b to acc and keeps float32 exact.
- Row and column numbers times strides can pass 2³¹: 64 bits (`.to(tl.int64)`).

Not allowed: PyTorch in place of the kernel, tensors of your own, fewer or more programs than tiles of C, larger tiles, a
second load or store of the same tile by one program, atomics, the finished function from flashlab or solutions/.

Hint: which of the three indices changes in the loop? It moves A's columns and B's rows.
"""

import triton
import triton.language as tl


@triton.jit
def numbers(block, size: tl.constexpr):
    return block.to(tl.int64) * size + tl.arange(0, size).to(tl.int64)


@triton.jit
def addresses(rows, cols, stride_r, stride_c):
    return tl.expand_dims(rows, 1) * stride_r + tl.expand_dims(cols, 0) * stride_c


@triton.jit
def exist(rows, cols, R, C):
    return tl.expand_dims(rows < R, 1) & tl.expand_dims(cols < C, 0)


@triton.jit
def matmul_kernel(A, B, C, M, N, K, stride_Am, stride_Ak, stride_Bk, stride_Bn, stride_Cm, stride_Cn,
                  B_m: tl.constexpr, B_n: tl.constexpr, B_k: tl.constexpr):
    """Tile (program_id(0), program_id(1)) of C."""
    rows = numbers(tl.program_id(0), B_m)
    cols = numbers(tl.program_id(1), B_n)
    acc = tl.full((B_m, B_n), 0, tl.float32)
    for start in range(0, K, B_k):
        inner = start + tl.arange(0, B_k).to(tl.int64)
        a = tl.load(A + addresses(rows, inner, stride_Am, stride_Ak), exist(rows, inner, M, K), 0.0)
        b = tl.load(B + addresses(inner, cols, stride_Bk, stride_Bn), exist(inner, cols, K, N), 0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(C + addresses(rows, cols, stride_Cm, stride_Cn), acc, exist(rows, cols, M, N))


def matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    (M, K), N = A.shape, B.shape[1]
    down, across = -(-M // B_m), -(-N // B_n)
    matmul_kernel[down, across](A, B, C, M, N, K, *A.stride(), *B.stride(), *C.stride(), B_m, B_n, B_k)
