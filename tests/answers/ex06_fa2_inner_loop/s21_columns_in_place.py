# kind: right
# what: state kept as columns (B_r, 1), everything updated in place on own tiles, one division at the end
# shows: float16 and float32, one key block or many, negative and zero scale: the shift is the running maximum of the scaled scores
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
    acc_type = L.dtype
    q = load(Q, rows).to(acc_type)
    n = q.shape[0]

    acc = torch.zeros((n, V.shape[1]), dtype=acc_type)
    total = torch.zeros((n, 1), dtype=acc_type)
    top = torch.full((n, 1), -inf, dtype=acc_type)

    for cols in tiles(K.shape[0], B_c):
        s = torch.matmul(q, load(K, cols).to(acc_type).t())
        s *= scale
        new_top = torch.maximum(top, s.max(dim=1, keepdim=True).values)
        shrink = torch.exp(top - new_top)
        s -= new_top
        s.exp_()                                              # these are the weights from here on
        total *= shrink
        total += s.sum(dim=1, keepdim=True)
        acc *= shrink
        acc += torch.matmul(s, load(V, cols).to(acc_type))
        top = new_top

    acc /= total
    store(O, rows, acc)
    store(L, rows, (top + total.log()).squeeze(1))
