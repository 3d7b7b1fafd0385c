# kind: point missed
# what: no break: causal loads all key blocks, also hidden ones
# shows: numbers right; too much is read with causal
"""ex08_dq_block: my answer."""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def dq_program(Q, K, V, dO, L, D, dQ, rows, B_c, scale, causal):
    """Fills dQ[rows], with at most B_c keys on chip at a time.

    Tiles are turned into L.dtype after the load (`.to(L.dtype)`): sums of 16-bit numbers need 32 bits.
    hidden_tile(rows, cols, N_q, N_k) is the mask of a tile, True where the key is hidden; tiles(N, B) gives the slices.
    """
    N_q, N_k = len(Q), len(K)
    dt = L.dtype
    Q_i, dO_i = load(Q, rows).to(dt), load(dO, rows).to(dt)
    L_i, D_i = load(L, rows), load(D, rows)
    L_i = L_i.masked_fill(L_i == -inf, 0)
    acc = torch.zeros(Q_i.shape, dtype=dt)
    for cols in tiles(N_k, B_c):
        K_j, V_j = load(K, cols).to(dt), load(V, cols).to(dt)
        S = Q_i @ K_j.T * scale
        if causal:
            S = S.masked_fill(hidden_tile(rows, cols, N_q, N_k), -inf)
        P = torch.exp(S - L_i[:, None])
        dS = P * (dO_i @ V_j.T - D_i[:, None])
        acc += dS @ K_j
    store(dQ, rows, acc * scale)


def hidden_tile(rows, cols, N_q, N_k):
    """(B_r, B_c), True where the key comes after the query."""
    queries, keys = torch.arange(rows.start, rows.stop), torch.arange(cols.start, cols.stop)
    return keys > queries[:, None] + N_k - N_q
