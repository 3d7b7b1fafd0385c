# kind: right
# what: C habits: while loops with hand-made slices; a helper sums up one tile of C in float32 (addmm_ into its own accumulator) and it is stored once
# shows: sizes that no tile divides, tiles larger than the matrices, 16-bit inputs (sum in float32); tiles no larger than allowed
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


def cut(start, size, end):
    return slice(start, start + size if start + size < end else end)


def sum_of_products(A, B, rows, cols, K, B_k):
    """One tile of C, from K / B_k pairs of tiles."""
    acc = torch.zeros((rows.stop - rows.start, cols.stop - cols.start), dtype=torch.float32)
    k = 0
    while k < K:
        inner = cut(k, B_k, K)
        a = load(A, rows, inner).float()
        b = load(B, inner, cols).float()
        acc.addmm_(a, b)
        k += B_k
    return acc


def block_matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    M, K = A.shape
    N = B.shape[1]
    n = 0
    while n < N:
        cols = cut(n, B_n, N)
        m = 0
        while m < M:
            rows = cut(m, B_m, M)
            store(C, rows, sum_of_products(A, B, rows, cols, K, B_k), cols)
            m += B_m
        n += B_n
