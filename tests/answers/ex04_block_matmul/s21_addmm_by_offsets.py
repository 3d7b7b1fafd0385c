# kind: right
# what: offsets and ends worked out by hand as in C, the sum kept by addmm_ in one float32 tile
# shows: no size divides, tiles larger than the matrix, B_k = 1, float16 and bfloat16; store casts the float32 tile to C's dtype
"""ex04_block_matmul · a matrix product by tiles

Chapter 04 · difficulty 3 of 5 · 25 minutes

C = A B, one tile of C at a time. The tile stays on chip while the tiles of A's rows and of B's columns pass by.

    A (M, K)   B (K, N)   ->   C (M, N)

    C[rows, cols] = sum over inner of A[rows, inner] B[inner, cols]

Tiles of C are B_m x B_n, steps along the sum take at most B_k. Sizes need not be multiples of them: the last tile of a row or
column is short. Each byte is counted: every tile of C is stored once. A and B may be 16-bit: turn tiles into float32 after
the load (`.float()`), the sum needs it.

load(T, rows, cols) brings a tile on chip, store(T, rows, tile, cols) brings one back, tiles(N, B) gives the slices.
A, B and C are float16, bfloat16 or float32, all of them alike. No size is 0.

Not allowed: changing the inputs, larger tiles, more than one tile of C on chip at a time (the product that is being added to
it is none), a second load or store of a tile for the same tile of C, the finished function from flashlab or solutions/.

Hint: three loops. Which of them run over different tiles of C, and which over the terms of one sum?
"""

import torch

from flashlab.memory import load, store, tiles


def block_matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    M, K = A.shape
    N = B.shape[1]
    for m0 in range(0, M, B_m):
        m1 = min(m0 + B_m, M)
        for n0 in range(0, N, B_n):
            n1 = min(n0 + B_n, N)
            total = torch.zeros(m1 - m0, n1 - n0, dtype=torch.float32, device=A.device)
            for k0 in range(0, K, B_k):
                k1 = min(k0 + B_k, K)
                a = load(A, slice(m0, m1), slice(k0, k1)).float()
                b = load(B, slice(k0, k1), slice(n0, n1)).float()
                total.addmm_(a, b)
            store(C, slice(m0, m1), total, slice(n0, n1))
