# kind: right
# what: one accumulator of its own for each tile of C, addmm_ in place; lengths from the slices
# shows: each tile of C is stored once, every tile of A and B is loaded once for it, the sum is float32
"""ex04_block_matmul · a matrix product by tiles

Chapter 04 · difficulty 3 of 5 · 25 minutes

C = A B, one tile of C at a time. The tile stays on chip while the tiles of A's rows and of B's columns pass by.

    A (M, K)   B (K, N)   ->   C (M, N)

    C[rows, cols] = sum over inner of A[rows, inner] B[inner, cols]

Tiles are at most B_m x B_k, B_k x B_n and B_m x B_n. Sizes need not be multiples of them. Each byte is counted: every tile
of C is stored once. A and B may be 16-bit: turn tiles into float32 after the load (`.float()`), the sum needs it.

load(T, rows, cols) brings a tile on chip, store(T, rows, tile, cols) brings one back, tiles(N, B) gives the slices.
A, B and C are float16, bfloat16 or float32, all of them alike. No size is 0.

Not allowed: changing the inputs, larger tiles, more than one tile of C on chip at a time, a second load or store of a tile
for the same tile of C, the finished function from flashlab or solutions/.

Hint: three loops. Which of them run over different tiles of C, and which over the terms of one sum?
"""

import torch

from flashlab.memory import load, store, tiles


def block_matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    M, K = A.shape
    N = B.shape[1]
    for r in tiles(M, B_m):
        for c in tiles(N, B_n):
            acc = torch.zeros((r.stop - r.start, c.stop - c.start), dtype=torch.float32)
            for k in tiles(K, B_k):
                acc.addmm_(load(A, r, k).float(), load(B, k, c).float())
            store(C, r, acc, c)
