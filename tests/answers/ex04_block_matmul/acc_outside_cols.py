# kind: one mistake
# what: acc is made once per row strip, outside the loop over cols
# shows: more than one column tile
"""ex04_block_matmul: my answer."""

import torch

from flashlab.memory import load, store, tiles


def block_matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    M, K_ = A.shape
    N = B.shape[1]
    for rows in tiles(M, B_m):
        acc = torch.zeros(rows.stop - rows.start, min(B_n, N))
        for cols in tiles(N, B_n):
            for inner in tiles(K_, B_k):
                a = load(A, rows, inner).float()
                b = load(B, inner, cols).float()
                acc += a @ b
            store(C, rows, acc, cols)
