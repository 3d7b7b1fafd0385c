# kind: right
# what: a column of ones beside V_j makes l_i the last column of the running output, so that one line rescales both
# shows: Q, K and V loaded once each, arithmetic in L.dtype, one store of O and of L, the division after the loop

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
    """Attention of the queries Q[rows] to all keys, at most B_c of them at a time: fills O[rows] and L[rows].

    Tiles are turned into L.dtype after the load (`.to(L.dtype)`): sums of 16-bit numbers need 32 bits.
    tiles(N, B) gives the slices that cut 0 ... N into blocks of at most B.
    """
    q = load(Q, rows).to(L.dtype)
    acc = torch.zeros(q.shape[0], V.shape[1] + 1, dtype=L.dtype)        # O_i and, last, l_i
    m = torch.full((q.shape[0], 1), -inf, dtype=L.dtype)
    for cols in tiles(K.shape[0], B_c):
        s = scale * (q @ load(K, cols).to(L.dtype).T)
        m_old, m = m, torch.maximum(m, s.amax(1, keepdim=True))
        v = load(V, cols).to(L.dtype)
        v1 = torch.cat([v, torch.ones(v.shape[0], 1, dtype=L.dtype)], dim=1)
        acc = torch.exp(m_old - m) * acc + torch.exp(s - m) @ v1
    o, l = acc[:, :-1], acc[:, -1:]
    store(O, rows, o / l)
    store(L, rows, (m + torch.log(l))[:, 0])
