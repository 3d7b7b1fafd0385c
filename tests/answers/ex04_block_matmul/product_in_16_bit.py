# kind: one mistake
# what: `.float()` comes after the product and not after the load
# shows: 16-bit A and B: every product of tiles is rounded to 16 bits (overflow to inf above 65504 in float16); float32 is right
"""ex04_block_matmul · my answer."""

import torch

from flashlab.memory import load, store, tiles


def block_matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    for rows in tiles(A.shape[0], B_m):
        for cols in tiles(B.shape[1], B_n):
            C_ij = torch.zeros(rows.stop - rows.start, cols.stop - cols.start)
            for inner in tiles(A.shape[1], B_k):
                C_ij = C_ij + (load(A, rows, inner) @ load(B, inner, cols)).float()
            store(C, rows, C_ij, cols)
