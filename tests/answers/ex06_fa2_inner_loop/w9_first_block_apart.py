# kind: right
# what: the first key block is done before the loop and makes O_i, l_i, m_i, so there is no -inf; later blocks update them in place (own buffers)
# shows: each key block is loaded once, Q once, O and L stored once; float32 sums; one division after the last block
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


def _tile(Q_i, K, V, cols, scale):
    """Scores (B_r, B_c) and values (B_c, d_v) of one key block."""
    K_j = load(K, cols).to(Q_i.dtype)
    S_ij = torch.mm(Q_i, K_j.t()).mul_(scale)
    return S_ij, load(V, cols).to(Q_i.dtype)


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Attention of the queries Q[rows] to all keys, at most B_c of them at a time: fills O[rows] and L[rows].

    Tiles are turned into L.dtype after the load (`.to(L.dtype)`): sums of 16-bit numbers need 32 bits.
    tiles(N, B) gives the slices that cut 0 ... N into blocks of at most B.
    """
    Q_i = load(Q, rows).to(L.dtype)
    first, *others = tiles(K.shape[0], B_c)

    S, V_j = _tile(Q_i, K, V, first, scale)
    m = S.amax(dim=1, keepdim=True)
    S.sub_(m).exp_()
    l = S.sum(dim=1, keepdim=True)
    acc = S.mm(V_j)

    for cols in others:
        S, V_j = _tile(Q_i, K, V, cols, scale)
        m_new = torch.maximum(m, S.amax(dim=1, keepdim=True))
        shrink = (m - m_new).exp_()
        S.sub_(m_new).exp_()
        l.mul_(shrink).add_(S.sum(dim=1, keepdim=True))
        acc.mul_(shrink).add_(S.mm(V_j))
        m = m_new

    store(O, rows, acc.div_(l))
    store(L, rows, (m + l.log())[:, 0])
