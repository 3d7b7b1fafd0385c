# kind: point missed
# what: the inner loop is dropped: whole strips A[rows, :] and B[:, cols] are loaded
# shows: numbers right; tiles of K columns are larger than B_k
"""ex04_block_matmul: my answer."""

import torch

from flashlab.memory import load, store, tiles


def block_matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    for rows in tiles(A.shape[0], B_m):
        for cols in tiles(B.shape[1], B_n):
            store(C, rows, load(A, rows).float() @ load(B, slice(0, B.shape[0]), cols).float(), cols)
