# kind: point missed
# what: the sum's loop is outermost, so each tile of C goes back to memory after every term and is loaded again for the next; it should stay on chip and be stored once
# shows: more than one tile along K: bytes of C many times over (and for 16-bit C the partial sums are rounded); float32 numbers are right
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
    # C = A(:, 1) B(1, :) + A(:, 2) B(2, :) + ...
    for k, inner in enumerate(tiles(A.shape[1], B_k)):
        for rows in tiles(A.shape[0], B_m):
            a = load(A, rows, inner).float()
            for cols in tiles(B.shape[1], B_n):
                b = load(B, inner, cols).float()
                c = a @ b
                if k > 0:
                    c += load(C, rows, cols).float()
                store(C, rows, c, cols)
