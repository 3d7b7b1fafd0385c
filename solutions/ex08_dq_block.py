"""ex08_dq_block · dQ of one query block

Chapter 08 · difficulty 4 of 5 · 35 minutes

One program of the second pass: query block i stays on chip, the key blocks pass by as in the forward, and dQ[rows] is
written once. HBM is touched through load and store only, and each byte is counted: Q, dO, L and D are read once, K and V
once per program, and only where a query of the block sees a key.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   dO (N_q, d_v)   L, D (N_q,)   ->   dQ (N_q, d)

    P_ij  = exp(Q_i K_jᵀ · scale − L_i), 0 where hidden        dP_ij = dO_i V_jᵀ
    dS_ij = P_ij ∘ (dP_ij − D_i)                               dQ_i  = scale · Σ_j dS_ij K_j

With causal, query n sees the keys 0 ... n + N_k − N_q. A query that sees none has L = -inf, and dQ = 0.

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
    # >>> your turn: load what stays, walk the visible key blocks, store dQ[rows]
    N_q, N_k = len(Q), len(K)
    Q_i = load(Q, rows).to(L.dtype)                                 # (B_r, d)
    dO_i = load(dO, rows).to(L.dtype)                               # (B_r, d_v)
    L_i, D_i = load(L, rows), load(D, rows)                         # (B_r,)
    L_i = L_i.masked_fill(L_i == -inf, 0)                           # (B_r,)  no visible key: -inf − -inf would be NaN
    dQ_i = torch.zeros_like(Q_i)                                    # (B_r, d)
    for cols in tiles(N_k, B_c):                                    # j
        if causal and cols.start > rows.stop - 1 + N_k - N_q:
            break                                                   # hidden from the whole block, as is all that follows
        K_j = load(K, cols).to(L.dtype)                             # (B_c, d)
        V_j = load(V, cols).to(L.dtype)                             # (B_c, d_v)
        P_ij = torch.exp(Q_i @ K_j.T * scale - L_i[:, None])        # (B_r, B_c)
        if causal:
            P_ij = P_ij.masked_fill(hidden_tile(rows, cols, N_q, N_k), 0)
        dP_ij = dO_i @ V_j.T                                        # (B_r, B_c)
        dS_ij = P_ij * (dP_ij - D_i[:, None])                       # (B_r, B_c)
        dQ_i = dQ_i + scale * (dS_ij @ K_j)                         # (B_r, d)
    store(dQ, rows, dQ_i)
    # <<<


def hidden_tile(rows, cols, N_q, N_k):
    """(B_r, B_c), True where the key comes after the query."""
    queries, keys = torch.arange(rows.start, rows.stop), torch.arange(cols.start, cols.stop)
    return keys > queries[:, None] + N_k - N_q
