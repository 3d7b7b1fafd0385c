# kind: right
# what: a small class for the output tile, whose sum begins as the first product
"""ex04_block_matmul · my answer."""

import torch

from flashlab.memory import load, store, tiles


class Tile:
    def __init__(self, rows, cols):
        self.rows, self.cols, self.sum = rows, cols, None

    def add(self, a, b):
        if self.sum is None:
            self.sum = a @ b
        else:
            self.sum += a @ b


def block_matmul(A, B, C, B_m, B_n, B_k):
    """Fills C with A B."""
    M, K = A.shape
    _, N = B.shape
    for tile in [Tile(r, c) for r in tiles(M, B_m) for c in tiles(N, B_n)]:
        for k in tiles(K, B_k):
            tile.add(load(A, tile.rows, k).float(), load(B, k, tile.cols).float())
        store(C, tile.rows, tile.sum, tile.cols)
        tile.sum = None
