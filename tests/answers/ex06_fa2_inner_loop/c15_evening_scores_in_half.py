# kind: one mistake
# what: Q_i @ K_jᵀ is done in the inputs' own dtype and turned into L.dtype only afterwards; the tiles should be turned before the product
# shows: float16 inputs with scores in the tens or more: S is rounded to 11 bits, so the weights and L are off (or inf where Q·K > 65504)
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
    acc_dtype = L.dtype
    q = load(Q, rows)
    n = q.shape[0]

    o = torch.zeros((n, V.shape[1]), dtype=acc_dtype)
    l = torch.zeros((n,), dtype=acc_dtype)
    m = torch.full((n,), -inf, dtype=acc_dtype)

    for cols in tiles(K.shape[0], B_c):
        k = load(K, cols)
        v = load(V, cols).to(acc_dtype)

        # tensor cores take 16-bit operands; softmax statistics and O are what needs 32 bits
        s = (q @ k.T).to(acc_dtype) * scale

        m_new = torch.maximum(m, s.amax(dim=-1))
        correction = torch.exp(m - m_new)
        p = torch.exp(s - m_new[:, None])
        l = l * correction + p.sum(dim=-1)
        o = o * correction[:, None] + p @ v
        m = m_new

    store(O, rows, o / l[:, None])
    store(L, rows, m + torch.log(l))
