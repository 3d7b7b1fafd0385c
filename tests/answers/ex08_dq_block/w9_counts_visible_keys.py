# kind: right
# what: a while loop that counts keys; the number of visible keys bounds it, the tile of dP is turned into dS in place, scale comes last
# shows: every sentence is kept: Q, dO, L, D are loaded once also if no key is visible, whole blocks of K and V, one store, sums in L.dtype
"""ex08_dq_block · dQ of one query block

Chapter 08 · difficulty 4 of 5 · 35 minutes

One program of the second pass: query block i stays on chip, the key blocks pass by as in the forward, and dQ[rows] is
written once. It is called once for each query block; `rows` is the slice of its queries, of which the last may be short.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   dO (N_q, d_v)   L, D (N_q,)   ->   dQ (N_q, d)

dO is the gradient of O, L the natural-log logsumexp of each row's scores, D the row sum of dO ∘ O. The scores are
Q Kᵀ · scale, and scale is any finite number. P is not given: each tile of it is made again from Q, K and L.
With causal, query n sees the keys 0 ... n + N_k − N_q. A query that sees none has L = -inf, and dQ = 0.

HBM is touched through load and store only, and each byte is counted. A program reads its rows of Q, dO, L and D once.
A block of K and V it reads once if any of its queries sees any key of that block, else not at all: the first
block starts at key 0, each has B_c keys, the last may be short. dQ[rows] is stored once, also where it is 0; store
rounds to dQ's dtype.
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
    n_queries = Q.shape[0]
    n_keys = K.shape[0]

    # how many keys does the LAST query of this block see? The others see fewer.
    n_visible = n_keys
    if causal:
        n_visible = min(n_keys, rows.stop + n_keys - n_queries)     # may be <= 0: then the loop does not run

    q = load(Q, rows).to(L.dtype)
    do = load(dO, rows).to(L.dtype)
    lse = load(L, rows)
    delta = load(D, rows)

    dead = lse == -inf
    lse = lse.masked_fill(dead, 0.0)          # a copy: L itself stays

    grad = torch.zeros_like(q)
    start = 0
    while start < n_visible:
        stop = start + B_c
        if stop > n_keys:
            stop = n_keys
        cols = slice(start, stop)

        k = load(K, cols).to(L.dtype)
        v = load(V, cols).to(L.dtype)

        p = torch.matmul(q, k.t())
        p *= scale
        p -= lse.unsqueeze(1)
        if causal:
            p.masked_fill_(hidden_tile(rows, cols, n_queries, n_keys), -inf)
        p.exp_()

        ds = torch.matmul(do, v.t())
        ds -= delta.unsqueeze(1)
        ds *= p
        grad += torch.matmul(ds, k)

        start = stop

    grad *= scale
    store(dQ, rows, grad)


def hidden_tile(rows, cols, N_q, N_k):
    """(B_r, B_c), True where the key comes after the query."""
    queries, keys = torch.arange(rows.start, rows.stop), torch.arange(cols.start, cols.stop)
    return keys > queries[:, None] + N_k - N_q
