# kind: one mistake
# what: the loop stops at cols.start >= last visible key: a block whose first key only the last query sees is skipped
# shows: causal, last visible key of the block of queries a multiple of B_c (always with B_c = 1): last query's dQ wrong
"""ex08_dq_block · dQ of one query block"""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def dq_program(Q, K, V, dO, L, D, dQ, rows, B_c, scale, causal):
    """Fills dQ[rows]."""
    N_q, N_k = Q.shape[0], K.shape[0]
    Q_i, dO_i = load(Q, rows).to(L.dtype), load(dO, rows).to(L.dtype)
    L_i, D_i = load(L, rows), load(D, rows)
    empty = L_i == -inf
    dQ_i = torch.zeros(Q_i.shape, dtype=L.dtype)
    last_key = rows.stop - 1 + N_k - N_q if causal else N_k
    for cols in tiles(N_k, B_c):
        if cols.start >= last_key:
            break
        K_j, V_j = load(K, cols).to(L.dtype), load(V, cols).to(L.dtype)
        S_ij = Q_i @ K_j.T * scale
        if causal:
            S_ij[hidden_tile(rows, cols, N_q, N_k)] = -inf
        P_ij = torch.exp(S_ij - L_i[:, None])
        P_ij[empty] = 0
        dP_ij = dO_i @ V_j.T
        dS_ij = P_ij * (dP_ij - D_i[:, None])
        dQ_i = dQ_i + scale * torch.matmul(dS_ij, K_j)
    store(dQ, rows, dQ_i)


def hidden_tile(rows, cols, N_q, N_k):
    """(B_r, B_c), True where the key comes after the query."""
    queries, keys = torch.arange(rows.start, rows.stop), torch.arange(cols.start, cols.stop)
    return keys > queries[:, None] + N_k - N_q
