# kind: one mistake
# what: the sum is set to zero once for a row of tiles and not for each tile of C
# shows: N > B_n: from the second tile of a row of tiles on, the earlier ones are in it
"""ex04_block_matmul · my answer."""

import torch

from flashlab.memory import load, store, tiles


def block_matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    M, K = A.shape
    N = B.shape[1]
    for rows in tiles(M, B_m):
        height = rows.stop - rows.start
        acc = torch.zeros(height, B_n)
        for cols in tiles(N, B_n):
            width = cols.stop - cols.start
            for inner in tiles(K, B_k):
                acc[:, :width] += load(A, rows, inner).float() @ load(B, inner, cols).float()
            store(C, rows, acc[:, :width], cols)
