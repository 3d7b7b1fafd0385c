# kind: right
# what: functional: itertools.product and sum() over a generator of tile products
"""ex04_block_matmul: my answer."""

import torch

from flashlab.memory import load, store, tiles


from itertools import product


def block_matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    for r, c in product(tiles(len(A), B_m), tiles(B.shape[1], B_n)):
        store(C, r, sum(load(A, r, k).float() @ load(B, k, c).float() for k in tiles(len(B), B_k)), c)
