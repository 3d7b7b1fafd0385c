# kind: one mistake
# what: the accumulator is set to zero once for each row of tiles, not for each tile: the second tile of a row starts with the first one's sum
# shows: N > B_n: every tile of C but the first column's is too large; with a short last column the shapes clash
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
    _, N = B.shape
    for rows in tiles(M, B_m):
        C_ij = torch.zeros(rows.stop - rows.start, min(B_n, N))
        for cols in tiles(N, B_n):
            for inner in tiles(K, B_k):
                A_ik = load(A, rows, inner).float()
                B_kj = load(B, inner, cols).float()
                C_ij = C_ij + A_ik @ B_kj
            store(C, rows, C_ij, cols)
