# kind: right
# what: a small accumulator object (push one key block, finish once); the first block sets the state instead of starting from -inf; sums in place on own buffers
# shows: one load of Q[rows], one of each K and V block of at most B_c keys, two stores; everything in L.dtype
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


class RunningSoftmax:
    """Weighted sum over everything pushed so far, in units of exp(self.peak)."""

    def __init__(self):
        self.peak = None

    def push(self, scores, values):
        block_peak = scores.amax(dim=1, keepdim=True)
        if self.peak is None:
            self.peak = block_peak
            weights = torch.exp(scores - block_peak)
            self.total = weights.sum(dim=1, keepdim=True)
            self.output = weights @ values
            return

        new_peak = torch.maximum(self.peak, block_peak)
        shrink = torch.exp(self.peak - new_peak)
        weights = torch.exp(scores - new_peak)
        self.total.mul_(shrink).add_(weights.sum(dim=1, keepdim=True))
        self.output.mul_(shrink).add_(weights @ values)
        self.peak = new_peak

    def finish(self):
        return self.output / self.total, (self.peak + self.total.log()).squeeze(1)


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Attention of the queries Q[rows] to all keys, at most B_c of them at a time: fills O[rows] and L[rows].

    Tiles are turned into L.dtype after the load (`.to(L.dtype)`): sums of 16-bit numbers need 32 bits.
    tiles(N, B) gives the slices that cut 0 ... N into blocks of at most B.
    """
    queries = load(Q, rows).to(L.dtype)
    softmax = RunningSoftmax()
    for keys in tiles(K.shape[0], B_c):
        K_j = load(K, keys).to(L.dtype)
        V_j = load(V, keys).to(L.dtype)
        softmax.push(queries @ K_j.T * scale, V_j)

    output, logsumexp = softmax.finish()
    store(O, rows, output)
    store(L, rows, logsumexp)
