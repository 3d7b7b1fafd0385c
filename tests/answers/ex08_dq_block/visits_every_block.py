# kind: point missed
# what: all key blocks are loaded and masked, also those that no query of the block sees
# shows: causal: numbers right, more of K and V is read than allowed
"""ex08_dq_block · dQ of one query block"""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def dq_program(Q, K, V, dO, L, D, dQ, rows, B_c, scale, causal):
    """Fills dQ[rows]."""
    N_q, N_k = Q.shape[0], K.shape[0]
    Q_i = load(Q, rows).to(L.dtype)
    dO_i = load(dO, rows).to(L.dtype)
    L_i = load(L, rows)
    L_i = L_i.masked_fill(L_i == -inf, 0)[:, None]
    D_i = load(D, rows)[:, None]
    dQ_i = torch.zeros_like(Q_i)
    for cols in tiles(N_k, B_c):
        K_j = load(K, cols).to(L.dtype)
        V_j = load(V, cols).to(L.dtype)
        S_ij = Q_i @ K_j.T * scale
        if causal:
            S_ij = S_ij.masked_fill(hidden_tile(rows, cols, N_q, N_k), -inf)
        dS_ij = torch.exp(S_ij - L_i) * (dO_i @ V_j.T - D_i)
        dQ_i += scale * dS_ij @ K_j
    store(dQ, rows, dQ_i)


def hidden_tile(rows, cols, N_q, N_k):
    """(B_r, B_c), True where the key comes after the query."""
    queries, keys = torch.arange(rows.start, rows.stop), torch.arange(cols.start, cols.stop)
    return keys > queries[:, None] + N_k - N_q
