# kind: one mistake
# what: takes the sizes for (B_m, B_k, B_n), the order of M, K, N: cols are cut by B_k and inner by B_n; numbers right, tiles of the wrong size
# shows: B_k != B_n: C's tiles are B_m x B_k (larger than allowed if B_k > B_n), the number of loads and stores and the bytes read are others

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
    sizes = (B_m, B_n, B_k)
    row_tiles, inner_tiles, col_tiles = (
        tiles(n, b) for n, b in zip((A.shape[0], A.shape[1], B.shape[1]), sizes)
    )
    for rows in row_tiles:
        for cols in col_tiles:
            C_tile = None
            for inner in inner_tiles:
                term = torch.einsum("mk,kn->mn", load(A, rows, inner).float(), load(B, inner, cols).float())
                C_tile = term if C_tile is None else C_tile + term
            store(C, rows, C_tile, cols)
