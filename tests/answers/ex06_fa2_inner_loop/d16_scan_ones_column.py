# kind: right
# what: a scan as in lax.scan over the key blocks; l rides along as one more column of O, because V gets a column of ones
# shows: one load of Q_i, one of each K_j and V_j, one store of O and of L; float32 sums; m starts at -inf; one division at the end
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

from functools import reduce

import torch

from flashlab.memory import load, store, tiles

inf = float("inf")


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Attention of the queries Q[rows] to all keys, at most B_c of them at a time: fills O[rows] and L[rows].

    Tiles are turned into L.dtype after the load (`.to(L.dtype)`): sums of 16-bit numbers need 32 bits.
    tiles(N, B) gives the slices that cut 0 ... N into blocks of at most B.
    """
    acc_dtype = L.dtype
    q = load(Q, rows).to(acc_dtype)
    n, d_v = q.shape[0], V.shape[1]

    def step(carry, cols):
        acc, m = carry                                   # acc = [O_i | l_i], in units of exp(m)
        k = load(K, cols).to(acc_dtype)
        v = load(V, cols).to(acc_dtype)
        v1 = torch.cat([v, torch.ones(v.shape[0], 1, dtype=acc_dtype, device=q.device)], dim=1)
        s = torch.einsum("qd,kd->qk", q, k) * scale
        m_next = torch.maximum(m, s.amax(dim=1, keepdim=True))
        p = (s - m_next).exp()
        return acc * (m - m_next).exp() + p @ v1, m_next

    init = (
        torch.zeros(n, d_v + 1, dtype=acc_dtype, device=q.device),
        torch.full((n, 1), -inf, dtype=acc_dtype, device=q.device),
    )
    acc, m = reduce(step, tiles(K.shape[0], B_c), init)
    l = acc[:, d_v:]
    store(O, rows, acc[:, :d_v] / l)
    store(L, rows, (m + l.log())[:, 0])
