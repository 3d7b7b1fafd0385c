# kind: one mistake
# what: the tile's origin is clamped so that a whole tile fits (like a camera at the map's border); the last tile should start at i*B_r and be short
# shows: N_q not a multiple of B_r, last i (or N_k not of B_c, last j): wrong rows and a tile that is too large
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


def clamp(v, lo, hi):
    return max(lo, min(v, hi))


def score_tile(Q, K, i, j, B_r, B_c):
    """Tile (i, j) of Q Kᵀ / √d."""
    N_q, d = Q.shape
    N_k = K.shape[0]
    # keep the window inside the world
    y = clamp(i * B_r, 0, max(0, N_q - B_r))
    x = clamp(j * B_c, 0, max(0, N_k - B_c))
    q = Q[y : y + B_r]
    k = K[x : x + B_c]
    return (q @ k.T) / d**0.5
