# kind: right
# what: tiles of C column by column, acc by addmm_ in place, inner walked backwards
"""ex04_block_matmul · my answer."""

import torch

from flashlab.memory import load, store, tiles


def block_matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    for cols in tiles(C.shape[1], B_n):
        for rows in tiles(C.shape[0], B_m):
            acc = torch.zeros(rows.stop - rows.start, cols.stop - cols.start, device=A.device)
            for inner in reversed(tiles(A.shape[1], B_k)):
                left = load(A, rows, inner).float()
                right = load(B, inner, cols).float()
                acc.addmm_(left, right)
            store(C, rows, acc, cols)
