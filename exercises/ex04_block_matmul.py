"""ex04_block_matmul · a matrix product by tiles

Chapter 04 · difficulty 3 of 5 · 25 minutes

C = A B, one tile of C at a time. The tile of C stays on chip while the tiles of A's rows and of B's columns pass by.

    A (M, K)   B (K, N)   ->   C (M, N)

    C[rows, cols] = sum over inner of A[rows, inner] B[inner, cols]

A tile of C is at most B_m x B_n, and a step along the sum takes at most B_k. Sizes need not be multiples of them: the
last tile of a row or column is short. Every byte is counted, so store each tile of C once. A and B may be 16-bit, but
the sum needs float32: convert each tile after the load (`.float()`).

load(T, rows, cols) brings a tile on chip, store(T, rows, tile, cols) writes one back, tiles(N, B) gives the slices.
A, B and C have the same dtype: float16, bfloat16 or float32. No size is 0.

Not allowed: changing the inputs, larger tiles, more than one tile of C on chip at a time (the product that is being
added to it does not count), a second load or store of a tile for the same tile of C, the finished function from
flashlab or solutions/.

Hint: write three loops. Which of them visit the tiles of C, and which visits the terms of one sum?
"""

import torch

from flashlab.memory import load, store, tiles


def block_matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    # your turn: the loops over rows and cols, the sum over inner, one store for each tile of C
    raise NotImplementedError("ex04_block_matmul: the loops over rows and cols, the sum over inner, one store for each tile of C")
