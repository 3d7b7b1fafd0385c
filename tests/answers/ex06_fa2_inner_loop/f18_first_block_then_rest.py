# kind: right
# what: the first key block sets m, l and O directly; the others are added in place with column vectors (B_r, 1)
# shows: one load per block, one store each of O and L, 32-bit sums, one division after the last block
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


def _block(K, V, cols, Q_i, scale, dtype):
    Kj = load(K, cols).to(dtype)
    Vj = load(V, cols).to(dtype)
    return (Q_i @ Kj.T) * scale, Vj


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Attention of the queries Q[rows] to all keys, at most B_c of them at a time: fills O[rows] and L[rows]."""
    dtype = L.dtype
    Q_i = load(Q, rows).to(dtype)
    blocks = tiles(K.shape[0], B_c)

    # one block alone: plain safe softmax, not yet divided
    S, Vj = _block(K, V, blocks[0], Q_i, scale, dtype)
    m = S.amax(dim=1, keepdim=True)
    P = torch.exp(S - m)
    l = P.sum(dim=1, keepdim=True)
    acc = P @ Vj

    for cols in blocks[1:]:
        S, Vj = _block(K, V, cols, Q_i, scale, dtype)
        m_old = m
        m = torch.maximum(m_old, S.amax(dim=1, keepdim=True))
        shrink = torch.exp(m_old - m)
        P = torch.exp(S - m)
        l *= shrink
        l += P.sum(dim=1, keepdim=True)
        acc *= shrink
        acc += P @ Vj

    acc /= l
    store(O, rows, acc)
    store(L, rows, (m + torch.log(l)).squeeze(1))
