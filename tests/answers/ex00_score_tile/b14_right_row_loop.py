# kind: right
# what: fills the tile row by row with dot products, like drawing one tile of a tile map; edges cut with min
# shows: only rows of tile i and keys of tile j are read; short last tiles come out short; divided by sqrt(d) once
"""ex00_score_tile · one tile of scores

Chapter 00 · difficulty 1 of 5 · 10 minutes

S holds a score for each query and each key. Cut it into tiles of B_r queries and B_c keys, and make a single tile, (i, j),
without making all of S.

    Q (N_q, d)   K (N_k, d)   ->   S_ij, at most (B_r, B_c)

    S = Q Kᵀ / √d        i counts the tiles of queries from 0, j counts the tiles of keys from 0

The sizes need not divide: the last tile is short, and has the rows and columns that are left.
Tensors are float32, and no size is 0.

Not allowed: all of S for a tile of it (a strip of it would do), the finished function from flashlab or solutions/.

Hint: which rows of Q does tile i take, and which rows of K does tile j take?
"""

import math

import torch


def tile_rect(index, size, limit):
    """First and one-past-last row of a tile, cut off at the edge of the map."""
    begin = index * size
    end = begin + size
    if end > limit:
        end = limit
    return begin, end


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    top, bottom = tile_rect(i, B_r, Q.shape[0])
    left, right = tile_rect(j, B_c, K.shape[0])
    root = math.sqrt(Q.shape[1])

    out = torch.zeros(bottom - top, right - left)
    for y in range(top, bottom):
        for x in range(left, right):
            out[y - top, x - left] = torch.dot(Q[y], K[x]) / root
    return out
