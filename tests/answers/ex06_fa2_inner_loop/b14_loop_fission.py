# kind: one mistake
# what: two loops, one for the maximum and one for the sums, so that every block of K is loaded twice; one loop with a running maximum loads it once
# shows: any sizes: the bytes read are too many by the whole of K (the numbers are right)
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
    acc_t = L.dtype
    q = load(Q, rows).to(acc_t)
    n_rows = q.shape[0]

    def score_tile(cols):
        return torch.mm(q, load(K, cols).to(acc_t).t()) * scale

    # loop 1: reduce max
    row_max = torch.full((n_rows,), -inf, dtype=acc_t)
    for cols in tiles(K.shape[0], B_c):
        row_max = torch.maximum(row_max, score_tile(cols).amax(dim=1))

    # loop 2: with the maximum final there is nothing to correct
    acc = torch.zeros(n_rows, V.shape[1], dtype=acc_t)
    row_sum = torch.zeros(n_rows, dtype=acc_t)
    for cols in tiles(K.shape[0], B_c):
        w = torch.exp(score_tile(cols) - row_max.unsqueeze(1))
        row_sum += w.sum(dim=1)
        acc += torch.mm(w, load(V, cols).to(acc_t))

    store(O, rows, acc / row_sum.unsqueeze(1))
    store(L, rows, row_max + row_sum.log())
