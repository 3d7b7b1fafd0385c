# kind: right
# what: C habits: while loops over i0, j0, k0 with hand-made bounds, sum in float32, names deleted when done
# shows: the same tiles as tiles() gives, also short ones; one store for each tile of C

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
    M = A.shape[0]
    K = A.shape[1]
    N = B.shape[1]
    i0 = 0
    while i0 < M:
        i1 = i0 + B_m
        if i1 > M:
            i1 = M
        j0 = 0
        while j0 < N:
            j1 = j0 + B_n
            if j1 > N:
                j1 = N
            c = torch.zeros(i1 - i0, j1 - j0, dtype=torch.float32)
            k0 = 0
            while k0 < K:
                k1 = k0 + B_k
                if k1 > K:
                    k1 = K
                a = load(A, slice(i0, i1), slice(k0, k1)).float()
                b = load(B, slice(k0, k1), slice(j0, j1)).float()
                c += a @ b
                del a, b
                k0 = k1
            store(C, slice(i0, i1), c, slice(j0, j1))
            del c
            j0 = j1
        i0 = i1
