# kind: one mistake
# what: hidden weights are removed by multiplying with the mask after exp; where exp overflowed, inf * 0 is NaN
# shows: causal, and a hidden key in a visited block whose score exceeds the row's L by more than 88 (float32): dQ NaN
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
    D_i = load(D, rows).to(L.dtype)
    L_i = torch.where(L_i == -inf, 0, L_i)
    dQ_i = torch.zeros_like(Q_i)
    for cols in tiles(N_k, B_c):
        if causal and cols.start > rows.stop - 1 + N_k - N_q:
            break
        K_j = load(K, cols).to(L.dtype)
        V_j = load(V, cols).to(L.dtype)
        P_ij = torch.exp(Q_i @ K_j.T * scale - L_i[:, None])
        if causal:
            P_ij = P_ij * ~hidden_tile(rows, cols, N_q, N_k)
        dS_ij = P_ij * (dO_i @ V_j.T - D_i[:, None])
        dQ_i += dS_ij @ K_j * scale
    store(dQ, rows, dQ_i)


def hidden_tile(rows, cols, N_q, N_k):
    """(B_r, B_c), True where the key comes after the query."""
    queries, keys = torch.arange(rows.start, rows.stop), torch.arange(cols.start, cols.stop)
    return keys > queries[:, None] + N_k - N_q
