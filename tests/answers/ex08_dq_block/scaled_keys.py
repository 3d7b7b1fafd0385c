# kind: right
# what: K_j is scaled once and used for S and for dQ; the number of visible keys is computed before the loop; P masked after exp
"""ex08_dq_block · dQ of one query block"""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def dq_program(Q, K, V, dO, L, D, dQ, rows, B_c, scale, causal):
    """Fills dQ[rows]."""
    N_q, N_k = len(Q), len(K)
    visible = min(N_k, max(0, rows.stop + N_k - N_q)) if causal else N_k
    q, g, lse, delta = (load(T, rows).to(L.dtype) for T in (Q, dO, L, D))
    lse, delta = lse.nan_to_num(neginf=0.0)[:, None], delta[:, None]
    grad = torch.zeros_like(q)
    for cols in tiles(N_k, B_c):
        if cols.start < visible:
            k = scale * load(K, cols).to(L.dtype)
            p = torch.exp(torch.einsum("rd,cd->rc", q, k) - lse)
            if causal:
                p = p.masked_fill(hidden_tile(rows, cols, N_q, N_k), 0)
            v = load(V, cols).to(L.dtype)
            grad += (p * (torch.einsum("rv,cv->rc", g, v) - delta)) @ k
    store(dQ, rows, grad)


def hidden_tile(rows, cols, N_q, N_k):
    """(B_r, B_c), True where the key comes after the query."""
    queries, keys = torch.arange(rows.start, rows.stop), torch.arange(cols.start, cols.stop)
    return keys > queries[:, None] + N_k - N_q
