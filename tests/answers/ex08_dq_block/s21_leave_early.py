# kind: right
# what: a helper makes the tile of P; the loop breaks at the first key block that no query sees; scale multiplied once, at the end
# shows: causal with N_q != N_k both ways, blocks that see nothing (zeros stored, nothing read), float16, short blocks, negative scale
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


def weights(Q_i, K_j, L_i, scale, hide):
    """One tile of P. A hidden key has weight 0; so has every key of a row that sees none, whatever its L."""
    S = torch.mm(Q_i, K_j.t()).mul_(scale)
    if hide is not None:
        S.masked_fill_(hide, -inf)
        L_i = torch.where(L_i == -inf, 0.0, L_i)
    return S.sub_(L_i.unsqueeze(1)).exp_()


def dq_program(Q, K, V, dO, L, D, dQ, rows, B_c, scale, causal):
    """Fills dQ[rows], with at most B_c keys on chip at a time."""
    N_q, N_k = Q.shape[0], K.shape[0]
    kind = L.dtype
    seen = rows.stop + N_k - N_q if causal else N_k      # this many keys are seen by the block's last query
    if seen <= 0:
        store(dQ, rows, torch.zeros(rows.stop - rows.start, Q.shape[1], dtype=kind))
        return

    Q_i, dO_i = load(Q, rows).to(kind), load(dO, rows).to(kind)
    L_i, D_i = load(L, rows), load(D, rows)
    grad = torch.zeros_like(Q_i)
    for cols in tiles(N_k, B_c):
        if cols.start >= seen:
            break
        K_j, V_j = load(K, cols).to(kind), load(V, cols).to(kind)
        P = weights(Q_i, K_j, L_i, scale, hidden_tile(rows, cols, N_q, N_k) if causal else None)
        dP = torch.mm(dO_i, V_j.t())
        grad += torch.mm(P * (dP - D_i.unsqueeze(1)), K_j)
    store(dQ, rows, grad * scale)


def hidden_tile(rows, cols, N_q, N_k):
    """(B_r, B_c), True where the key comes after the query."""
    queries, keys = torch.arange(rows.start, rows.stop), torch.arange(cols.start, cols.stop)
    return keys > queries[:, None] + N_k - N_q
