# kind: one mistake
# what: K // B_k steps along the shared dimension: the short last one is left out
# shows: K > B_k and not a multiple of it: the last terms of each sum are missing
"""ex04_block_matmul · my answer."""

import torch

from flashlab.memory import load, store, tiles


def block_matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    K = A.shape[1]
    for rows in tiles(len(A), B_m):
        for cols in tiles(B.shape[1], B_n):
            C_ij = torch.zeros(rows.stop - rows.start, cols.stop - cols.start)
            for k in range(max(1, K // B_k)):
                inner = slice(k * B_k, (k + 1) * B_k)
                C_ij += load(A, rows, inner).float() @ load(B, inner, cols).float()
            store(C, rows, C_ij, cols)
