# kind: one mistake
# what: m_new is the maximum of the current key block, not max(m_i, that); the arithmetic stays consistent, but exp(m_i - m_new) can be above 1 and overflows
# shows: a later key block whose largest score lies more than about 88 below an earlier one (scores up to +-1000 are in the domain): inf and NaN
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
    dtype = L.dtype
    q = load(Q, rows).to(dtype)
    acc = torch.zeros((len(q), V.shape[1]), dtype=dtype)
    denom = torch.zeros((len(q), 1), dtype=dtype)
    prev_max = torch.full((len(q), 1), -inf, dtype=dtype)

    for block in tiles(K.shape[0], B_c):
        k = load(K, block).to(dtype)
        v = load(V, block).to(dtype)
        scores = q @ k.T * scale

        cur_max = scores.amax(dim=1, keepdim=True)
        rescale = torch.exp(prev_max - cur_max)
        weights = torch.exp(scores - cur_max)

        denom = denom * rescale + weights.sum(dim=1, keepdim=True)
        acc = acc * rescale + weights @ v
        prev_max = cur_max

    store(O, rows, acc / denom)
    store(L, rows, (prev_max + torch.log(denom))[:, 0])
