# kind: right
# what: V_j gets a column of ones, so that the row sums l_i travel along as the last column of the accumulator; in place on own buffers
# shows: every tile is loaded once and turned into L.dtype, at most B_c keys at a time, one store of O[rows] and one of L[rows] after the loop
"""ex06_fa2_inner_loop · one query block of FlashAttention-2

Chapter 06 · difficulty 4 of 5 · 30 minutes

One program of FA2: query block i stays on chip, the key blocks j = 0, 1, ... pass by, O[rows] and L[rows] are written
once. HBM is touched through load and store only, and each byte is counted: Q[rows] is read once, K and V are read once
per program.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)   L (N_q,), the natural-log logsumexp of each row

The scores are Q Kᵀ · scale. O_i may be divided once, after the last block: that is what FA2 changes in the arithmetic.
Scores lie between −1000 and 1000; scale is any finite number.
Q, K, V and O are float16 or float32, L is float32. No size is 0.

Not allowed: changing the inputs, more than B_c keys at a time, a second load of a key block, a store in each step, the
finished function from flashlab or solutions/.

Hint: write the case of a single key block first. What of O_i and l_i is stale once a second one raises the maximum?
"""

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Attention of the queries Q[rows] to all keys, at most B_c of them at a time: fills O[rows] and L[rows]."""
    f = L.dtype
    q = load(Q, rows).to(f)
    n, d_v = q.shape[0], V.shape[1]
    acc = torch.zeros(n, d_v + 1, dtype=f)          # [ O | l ]
    m = torch.full((n, 1), -inf, dtype=f)
    for cols in tiles(K.shape[0], B_c):
        k = load(K, cols).to(f)
        v = load(V, cols).to(f)
        v1 = torch.cat([v, torch.ones(v.shape[0], 1, dtype=f)], dim=1)
        s = (q @ k.T).mul_(scale)
        m_new = torch.maximum(m, s.amax(dim=1, keepdim=True))
        acc.mul_(torch.exp(m - m_new))
        acc.addmm_(s.sub_(m_new).exp_(), v1)
        m = m_new
    l = acc[:, d_v:]
    store(O, rows, acc[:, :d_v] / l)
    store(L, rows, (m + l.log())[:, 0])
