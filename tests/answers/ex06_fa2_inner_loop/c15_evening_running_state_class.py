# kind: right
# what: the running state (m, l, unnormalised O) lives in a small class, updated in place; scale, max, rescale, one division at the end
# shows: Q once, each key block once, everything in L.dtype, O and L stored once; any sign of scale, short blocks, any N_k
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


class OnlineSoftmax:
    """Numerator, denominator and reference exponent of a softmax-weighted sum that is still growing."""

    def __init__(self, n_rows: int, n_cols: int, like: torch.Tensor):
        self.acc = torch.zeros(n_rows, n_cols, dtype=like.dtype, device=like.device)
        self.denom = torch.zeros(n_rows, 1, dtype=like.dtype, device=like.device)
        self.ref = torch.full((n_rows, 1), -inf, dtype=like.dtype, device=like.device)

    def update(self, scores: torch.Tensor, values: torch.Tensor) -> None:
        new_ref = torch.maximum(self.ref, scores.max(dim=1, keepdim=True).values)
        shrink = (self.ref - new_ref).exp_()            # 0 for the very first block
        weights = (scores - new_ref).exp_()
        self.denom.mul_(shrink).add_(weights.sum(dim=1, keepdim=True))
        self.acc.mul_(shrink).addmm_(weights, values)
        self.ref = new_ref

    def output(self) -> torch.Tensor:
        return self.acc / self.denom

    def logsumexp(self) -> torch.Tensor:
        return (self.ref + self.denom.log()).squeeze(1)


def fa2_program(Q, K, V, O, L, rows, B_c, scale):
    """Attention of the queries Q[rows] to all keys, at most B_c of them at a time: fills O[rows] and L[rows].

    Tiles are turned into L.dtype after the load (`.to(L.dtype)`): sums of 16-bit numbers need 32 bits.
    tiles(N, B) gives the slices that cut 0 ... N into blocks of at most B.
    """
    Q_i = load(Q, rows).to(L.dtype)
    state = OnlineSoftmax(Q_i.shape[0], V.shape[1], like=Q_i)

    for cols in tiles(K.shape[0], B_c):
        K_j = load(K, cols).to(L.dtype)
        V_j = load(V, cols).to(L.dtype)
        scores = torch.mm(Q_i, K_j.t()).mul_(scale)
        state.update(scores, V_j)

    store(O, rows, state.output())
    store(L, rows, state.logsumexp())
