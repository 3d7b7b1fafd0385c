# kind: right
# what: the last visible key is worked out once; blocks start at 0, B_c, ... and the one at the edge is loaded only as far as somebody sees it; the weights are set to 0 with where, after the exponential
# shows: early store of zeros if nobody sees a key; every load once; rows with L = -inf get 0; L.dtype throughout; scale once at the end
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
    """Fills dQ[rows], with at most B_c keys on chip at a time.

    Tiles are turned into L.dtype after the load (`.to(L.dtype)`): sums of 16-bit numbers need 32 bits.
    hidden_tile(rows, cols, N_q, N_k) is the mask of a tile, True where the key is hidden; tiles(N, B) gives the slices.
    """
    N_q, N_k, dtype = Q.shape[0], K.shape[0], L.dtype
    acc = torch.zeros(rows.stop - rows.start, Q.shape[1], dtype=dtype, device=Q.device)

    # the last query of the block, rows.stop - 1, sees the keys 0 ... rows.stop - 1 + N_k - N_q
    seen = min(N_k, rows.stop + N_k - N_q) if causal else N_k
    if seen <= 0:
        store(dQ, rows, acc)
        return

    q, do = load(Q, rows).to(dtype), load(dO, rows).to(dtype)
    lse, delta = load(L, rows).unsqueeze(1), load(D, rows).unsqueeze(1)

    for cols in tiles(seen, B_c):
        k = load(K, cols).to(dtype)
        p = torch.exp(torch.einsum("id,jd->ij", q, k) * scale - lse)
        if causal:
            p = torch.where(hidden_tile(rows, cols, N_q, N_k), torch.zeros_like(p), p)
        dp = torch.einsum("iv,jv->ij", do, load(V, cols).to(dtype))
        acc += torch.einsum("ij,jd->id", p * (dp - delta), k)

    store(dQ, rows, acc * scale)


def hidden_tile(rows, cols, N_q, N_k):
    """(B_r, B_c), True where the key comes after the query."""
    queries, keys = torch.arange(rows.start, rows.stop), torch.arange(cols.start, cols.stop)
    return keys > queries[:, None] + N_k - N_q
