# kind: one mistake
# what: a query block that sees no key returns at once, before its zeros are stored
# shows: causal, N_q > N_k, a block all of whose queries see nothing: dQ[rows] keeps what was in the memory
"""ex08_dq_block · dQ of one query block"""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def dq_program(Q, K, V, dO, L, D, dQ, rows, B_c, scale, causal):
    """Fills dQ[rows]."""
    N_q, N_k = Q.shape[0], K.shape[0]
    Q_i = load(Q, rows).to(L.dtype)
    dO_i = load(dO, rows).to(L.dtype)
    L_i = load(L, rows).unsqueeze(1)
    D_i = load(D, rows).unsqueeze(1)
    if torch.all(L_i == -inf):
        return                                             # nothing to differentiate
    dQ_i = torch.zeros_like(Q_i)
    for cols in tiles(N_k, B_c):
        if causal and cols.start >= rows.stop + N_k - N_q:
            break
        K_j = load(K, cols).to(L.dtype)
        V_j = load(V, cols).to(L.dtype)
        S_ij = Q_i @ K_j.T * scale
        if causal:
            S_ij = S_ij.masked_fill(hidden_tile(rows, cols, N_q, N_k), -inf)
        P_ij = torch.exp(S_ij - L_i).masked_fill(L_i == -inf, 0)
        dP_ij = dO_i @ V_j.T
        dQ_i += scale * (P_ij * (dP_ij - D_i)) @ K_j
    store(dQ, rows, dQ_i)


def hidden_tile(rows, cols, N_q, N_k):
    """(B_r, B_c), True where the key comes after the query."""
    queries, keys = torch.arange(rows.start, rows.stop), torch.arange(cols.start, cols.stop)
    return keys > queries[:, None] + N_k - N_q
