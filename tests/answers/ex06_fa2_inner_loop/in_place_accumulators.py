# kind: right
# what: accumulators as (B_r, 1) columns updated in place (own buffers only), first block taken as the initial state, so that no -inf is ever needed
# shows: float16 and float32, one key block or many, short last blocks, any scale; K and V loaded once a block, one store of O and L

"""ex06_fa2_inner_loop · one query block of FlashAttention-2

Chapter 06 · difficulty 4 of 5 · 30 minutes

One program of FA2: query block i stays on chip, the key blocks j = 0, 1, ... pass by, O[rows] and L[rows] are written
once. HBM is touched through load and store only, and each byte is counted: Q[rows] is read once, K and V are read once
per program.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)   L (N_q,), the natural-log logsumexp of each row

The scores are Q Kᵀ · scale. O_i may be divided once, after the last block: that is what FA2 changes in the arithmetic.
Scores lie between −1000 and 1000; scale is any number.
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
    acc = norm = top = None

    for cols in tiles(len(K), B_c):
        k = load(K, cols).to(L.dtype)
        p = q @ k.T
        p.mul_(scale)
        del k
        here = p.max(dim=1, keepdim=True).values
        if top is None:
            top = here
            p.sub_(top).exp_()
            norm = p.sum(dim=1, keepdim=True)
            acc = p @ load(V, cols).to(L.dtype)
            continue
        new_top = torch.maximum(top, here)
        p.sub_(new_top).exp_()
        shrink = top.sub_(new_top).exp_()          # exp(old maximum - new maximum), at most 1
        norm.mul_(shrink).add_(p.sum(dim=1, keepdim=True))
        acc.mul_(shrink).add_(p @ load(V, cols).to(L.dtype))
        top = new_top

    acc.div_(norm)
    store(O, rows, acc)
    store(L, rows, (top + norm.log()).squeeze(1))
