"""ex08_dq_block · dQ of one query block

Chapter 08 · difficulty 4 of 5 · 30 minutes

Write one program of the second pass. Query block i stays on chip, the key blocks pass by as in the forward pass, and
dQ[rows] is written once. The program is called once for each query block; `rows` is the slice of its queries. The last
block may be short.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   dO (N_q, d_v)   L, D (N_q,)   ->   dQ (N_q, d)

dO is the gradient of O, L the natural-log logsumexp of each row's scores, D the row sum of dO ∘ O. The scores are
Q Kᵀ · scale, and scale is any finite number. P is not given: compute each tile of it again from Q, K and L.
With causal, query n sees the keys 0 ... n + N_k − N_q. A query that sees none has L = -inf, and dQ = 0.

Use load and store only; every byte is counted.
- Read the rows of Q, dO, L and D once, or not at all if none of the queries sees a key.
- Read a block of K and V once if any query sees a key of it (keys that no query sees may stay out), else not at all.
  The first block starts at key 0, each has B_c keys, the last may be short.
- Store dQ[rows] once, also where it is 0; store rounds to dQ's dtype.
Scores lie between −1000 and 1000. Q, K, V, dO and dQ are float16 or float32, L and D are float32. No size is 0.

Not allowed: changing the inputs, more than B_c keys at a time, a second load, a store in each step, autograd and its
kernels, the finished function from flashlab or solutions/.

Hint: take the forward's loop. Which of its running values are left? What takes the place of O_i?
"""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def dq_program(Q, K, V, dO, L, D, dQ, rows, B_c, scale, causal):
    """Fills dQ[rows], with at most B_c keys on chip at a time.

    Tiles are turned into L.dtype after the load (`.to(L.dtype)`): sums of 16-bit numbers need 32 bits.
    hidden_tile(rows, cols, N_q, N_k) is the mask of a tile, True where the key is hidden; tiles(N, B) gives the slices.
    """
    # your turn: load what stays, walk the visible key blocks, store dQ[rows]
    raise NotImplementedError("ex08_dq_block: load what stays, walk the visible key blocks, store dQ[rows]")


def hidden_tile(rows, cols, N_q, N_k):
    """(B_r, B_c), True where the key comes after the query."""
    queries, keys = torch.arange(rows.start, rows.stop), torch.arange(cols.start, cols.stop)
    return keys > queries[:, None] + N_k - N_q
