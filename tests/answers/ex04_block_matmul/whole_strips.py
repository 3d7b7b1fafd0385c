# kind: point missed
# what: a whole row of A's tiles and a whole column of B's are loaded at once
# shows: K > B_k: numbers right and bytes too, but tiles of all K columns are on chip
"""ex04_block_matmul · my answer."""

import torch

from flashlab.memory import load, store, tiles


def block_matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    for rows in tiles(A.shape[0], B_m):
        for cols in tiles(B.shape[1], B_n):
            A_i, B_j = load(A, rows).float(), load(B, slice(None), cols).float()
            C_ij = torch.zeros(len(A_i), B_j.shape[1])
            for inner in tiles(A.shape[1], B_k):
                C_ij += A_i[:, inner] @ B_j[inner]
            store(C, rows, C_ij, cols)
