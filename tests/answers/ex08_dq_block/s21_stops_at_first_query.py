# kind: one mistake
# what: the loop ends behind the last key that the block's first query sees; the last query decides how far it goes
# shows: causal, B_r > 1, and key blocks that only later queries of the block see: their part of dQ is missing
"""ex08_dq_block · dQ of one query block

Chapter 08 · difficulty 4 of 5 · 35 minutes

One program of the second pass: query block i stays on chip, the key blocks pass by as in the forward, and dQ[rows] is
written once. It is called once for each query block; `rows` is the slice of its queries, of which the last may be short.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   dO (N_q, d_v)   L, D (N_q,)   ->   dQ (N_q, d)

dO is the gradient of O, L the natural-log logsumexp of each row's scores, D the row sum of dO ∘ O. The scores are
Q Kᵀ · scale, and scale is any finite number. P is not given: each tile of it is made again from Q, K and L.
With causal, query n sees the keys 0 ... n + N_k − N_q. A query that sees none has L = -inf, and dQ = 0.

HBM is touched through load and store only, and each byte is counted. A program reads its rows of Q, dO, L and D once; it need
not if none of its queries sees a key. A block of K and V it reads once if any of its queries sees any key of that block
(the keys that none sees may stay out), else not at all: the first block starts at key 0, each has B_c keys, the last may be
short. dQ[rows] is stored once, also where it is 0; store rounds to dQ's dtype.
Scores lie between −1000 and 1000.
Q, K, V, dO and dQ are float16 or float32, L and D are float32. No size is 0.

Not allowed: changing the inputs, more than B_c keys at a time, a second load, a store in each step, autograd, the
finished function from flashlab or solutions/.

Hint: take the forward's loop. Which of its running values are left? What takes the place of O_i?
"""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def dq_program(Q, K, V, dO, L, D, dQ, rows, B_c, scale, causal):
    """Fills dQ[rows], with at most B_c keys on chip at a time."""
    N_q, N_k = len(Q), len(K)
    Q_i = load(Q, rows).to(L.dtype)
    dO_i = load(dO, rows).to(L.dtype)
    L_i = load(L, rows)
    D_i = load(D, rows)
    L_i = L_i.masked_fill(L_i == -inf, 0)
    dQ_i = torch.zeros_like(Q_i)

    for cols in tiles(N_k, B_c):
        if causal and cols.start > rows.start + N_k - N_q:
            continue                                          # above the diagonal
        K_j = load(K, cols).to(L.dtype)
        V_j = load(V, cols).to(L.dtype)
        S_ij = Q_i @ K_j.T * scale
        if causal:
            S_ij = S_ij.masked_fill(hidden_tile(rows, cols, N_q, N_k), -inf)
        P_ij = torch.exp(S_ij - L_i[:, None])
        dP_ij = dO_i @ V_j.T
        dS_ij = P_ij * (dP_ij - D_i[:, None])
        dQ_i = dQ_i + scale * (dS_ij @ K_j)
    store(dQ, rows, dQ_i)


def hidden_tile(rows, cols, N_q, N_k):
    """(B_r, B_c), True where the key comes after the query."""
    queries, keys = torch.arange(rows.start, rows.stop), torch.arange(cols.start, cols.stop)
    return keys > queries[:, None] + N_k - N_q
