# kind: point missed
# what: inner tiles are cut with B_m instead of B_k
# shows: numbers right; where B_m > B_k the tiles are larger than allowed
"""ex04_block_matmul: my answer."""

import torch

from flashlab.memory import load, store, tiles


def block_matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    M, K_ = A.shape
    N = B.shape[1]
    for rows in tiles(M, B_m):
        for cols in tiles(N, B_n):
            acc = torch.zeros(rows.stop - rows.start, cols.stop - cols.start)
            for inner in tiles(K_, B_m):
                a = load(A, rows, inner).float()
                b = load(B, inner, cols).float()
                acc += a @ b
            store(C, rows, acc, cols)
