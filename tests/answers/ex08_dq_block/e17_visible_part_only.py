# kind: right
# what: the number of visible keys is worked out first; blocks end there, so the last one loaded may be cut short; scale multiplies once, after the loop
# shows: blocks start at multiples of B_c; keys that no query of the block sees stay out, as the stub allows; rows without a key load nothing but store zeros
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
    (N_q, d), N_k = Q.shape, K.shape[0]
    f = L.dtype
    total = torch.zeros(rows.stop - rows.start, d, dtype=f)

    end = visible_keys(rows, N_q, N_k, causal)
    if end > 0:
        Q_i, dO_i = load(Q, rows).to(f), load(dO, rows).to(f)
        L_i, D_i = load(L, rows).to(f)[:, None], load(D, rows).to(f)[:, None]
        for cols in tiles(end, B_c):
            K_j, V_j = load(K, cols).to(f), load(V, cols).to(f)
            P = weights(Q_i, K_j, L_i, scale, hidden_tile(rows, cols, N_q, N_k) if causal else None)
            total += (P * (dO_i @ V_j.T - D_i)) @ K_j

    store(dQ, rows, total * scale)


def visible_keys(rows, N_q, N_k, causal):
    """How many keys the last query of the block sees: none of the others sees more."""
    if not causal:
        return N_k
    return max(0, min(N_k, rows.stop + N_k - N_q))


def weights(Q_i, K_j, L_i, scale, hidden):
    P = torch.exp(Q_i @ K_j.T * scale - L_i)
    return P if hidden is None else P.masked_fill(hidden, 0.0)


def hidden_tile(rows, cols, N_q, N_k):
    """(B_r, B_c), True where the key comes after the query."""
    queries, keys = torch.arange(rows.start, rows.stop), torch.arange(cols.start, cols.stop)
    return keys > queries[:, None] + N_k - N_q
