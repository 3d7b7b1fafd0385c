# kind: one mistake
# what: .float() is called on the product of two 16-bit tiles, it should be called on the tiles: each product is rounded to 16 bits
# shows: float16 and bfloat16 A and B, clearest where products cancel between two inner tiles or exceed 65504 in float16

"""ex04_block_matmul · a matrix product by tiles

Chapter 04 · difficulty 3 of 5 · 25 minutes

C = A B, one tile of C at a time. The tile stays on chip while the tiles of A's rows and of B's columns pass by.

    A (M, K)   B (K, N)   ->   C (M, N)

    C[rows, cols] = sum over inner of A[rows, inner] B[inner, cols]

Tiles are at most B_m x B_k, B_k x B_n and B_m x B_n. Sizes need not be multiples of them. Each byte is counted: every tile
of C is stored once. A and B may be 16-bit: turn tiles into float32 after the load (`.float()`), the sum needs it.

load(T, rows, cols) brings a tile on chip, store(T, rows, tile, cols) brings one back, tiles(N, B) gives the slices.

Not allowed: changing the inputs, larger tiles, a second load or store of a tile for the same tile of C, the finished
function from flashlab or solutions/.

Hint: three loops. Which of them run over different tiles of C, and which over the terms of one sum?
"""

import torch

from flashlab.memory import load, store, tiles


def block_matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    for cols in tiles(B.shape[1], B_n):
        for rows in tiles(A.shape[0], B_m):
            C_ij = torch.zeros((rows.stop - rows.start, cols.stop - cols.start), dtype=torch.float32, device=A.device)
            for inner in tiles(A.shape[1], B_k):
                A_ik = load(A, rows, inner)
                B_kj = load(B, inner, cols)
                C_ij += (A_ik @ B_kj).float()
            store(C, rows, C_ij, cols)
