# kind: one mistake
# what: the inner loop runs K // B_k times, so the last, short tile of the sum is left out; it should run ceil(K / B_k) times
# shows: K not a multiple of B_k (all of the sum is missing where K < B_k)

"""ex04_block_matmul · a matrix product by tiles

Chapter 04 · difficulty 3 of 5 · 25 minutes

C = A B, one tile of C at a time. The tile stays on chip while the tiles of A's rows and of B's columns pass by.

    A (M, K)   B (K, N)   ->   C (M, N)

    C[rows, cols] = sum over inner of A[rows, inner] B[inner, cols]

Tiles are at most B_m x B_k, B_k x B_n and B_m x B_n. Sizes need not be multiples of them. Each byte is counted: every tile
of C is stored once. A and B may be 16-bit: turn tiles into float32 after the load (`.float()`), the sum needs it.

load(T, rows, cols) brings a tile on chip, store(T, rows, tile, cols) brings one back, tiles(N, B) gives the slices.
A, B and C are float16, bfloat16 or float32, all of them alike. No size is 0.

Not allowed: changing the inputs, larger tiles, more than one tile of C on chip at a time, a second load or store of a tile for the same tile of C, the finished
function from flashlab or solutions/.

Hint: three loops. Which of them run over different tiles of C, and which over the terms of one sum?
"""

import torch

from flashlab.memory import load, store, tiles


def block_matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    K = A.shape[1]
    for rows in tiles(A.shape[0], B_m):
        for cols in tiles(B.shape[1], B_n):
            C_ij = torch.zeros(rows.stop - rows.start, cols.stop - cols.start)
            for k in range(K // B_k):
                inner = slice(k * B_k, (k + 1) * B_k)
                A_ik = load(A, rows, inner).float()
                B_kj = load(B, inner, cols).float()
                C_ij.addmm_(A_ik, B_kj)
                del A_ik, B_kj
            store(C, rows, C_ij, cols)
            del C_ij
