# kind: point missed
# what: the sum is built in C: store in every inner step and load back
# shows: numbers right (float32); C stored K/B_k times
"""ex04_block_matmul: my answer."""

import torch

from flashlab.memory import load, store, tiles


def block_matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    for rows in tiles(A.shape[0], B_m):
        for cols in tiles(B.shape[1], B_n):
            first = True
            for inner in tiles(A.shape[1], B_k):
                part = load(A, rows, inner).float() @ load(B, inner, cols).float()
                if not first:
                    part = part + load(C, rows, cols).float()
                store(C, rows, part, cols)
                first = False
