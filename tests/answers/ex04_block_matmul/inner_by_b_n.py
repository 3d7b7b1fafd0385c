# kind: one mistake
# what: the shared dimension is cut into pieces of B_n and not of B_k
# shows: B_n > B_k and K > B_k: numbers right, tiles larger than B_m x B_k and B_k x B_n are loaded
"""ex04_block_matmul · my answer."""

import torch

from flashlab.memory import load, store, tiles


def block_matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    for rows in tiles(A.shape[0], B_m):
        for cols in tiles(B.shape[1], B_n):
            total = None
            for inner in tiles(A.shape[1], B_n):
                a, b = load(A, rows, inner).float(), load(B, inner, cols).float()
                total = a @ b if total is None else total + a @ b
            store(C, rows, total, cols)
