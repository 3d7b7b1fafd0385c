# kind: one mistake
# what: .float() stands after the product: a @ b is done in 16 bits
# shows: 16-bit inputs
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
            for inner in tiles(K_, B_k):
                a = load(A, rows, inner)
                b = load(B, inner, cols)
                acc += (a @ b).float()
            store(C, rows, acc, cols)
