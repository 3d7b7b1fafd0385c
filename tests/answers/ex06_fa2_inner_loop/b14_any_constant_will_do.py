# kind: one mistake
# what: the shift is the maximum of the first key block and stays so ("any constant cancels"); it should follow the running maximum, with a correction of O and l
# shows: two or more key blocks, where a later one has a score more than about 88 above the first block's largest: exp overflows, O is nan
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
    Q_i = load(Q, rows).to(L.dtype)

    # softmax(s) = softmax(s - c) for every constant c of the row, so c is chosen once, in the first block.
    c = None
    top = bottom = 0
    for cols in tiles(K.shape[0], B_c):
        K_j = load(K, cols).to(L.dtype)
        V_j = load(V, cols).to(L.dtype)
        S = Q_i @ K_j.T * scale
        if c is None:
            c = S.max(dim=1, keepdim=True).values
        E = torch.exp(S - c)
        top = top + E @ V_j
        bottom = bottom + E.sum(dim=1, keepdim=True)

    store(O, rows, top / bottom)
    store(L, rows, (c + torch.log(bottom)).squeeze(1))
