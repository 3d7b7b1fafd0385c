# kind: right
# what: a small class keeps (m, l, O) in base 2; blocks come from a generator; L = (m + log2(l)) / log2(e)
# shows: float32 and float64, one key, B_c larger than N_k, short last block, scores near ±1000, d_v ≠ d
"""ex12_exp2 · attention in powers of two

Chapter 12 · difficulty 2 of 5 · 20 minutes

A GPU has an instruction for 2^x and none for e^x. Write the loop of FlashAttention-2 for one query block so that it knows base 2
alone, with the scale and log2(e) folded into one factor that each score meets once.

    exp(scale · s − m) = 2^(factor · s − m')        factor = scale · log2(e)        m' = m · log2(e), the maximum in base 2

    Q (N_q, d), K (N_k, d), V (N_k, d_v)   ->   O (N_q, d_v)        L (N_q,), the natural logarithm of the sum of exponentials

All tensors are float32, or all are float64; O and L have their dtype. scale is greater than 0, each scaled score lies between
−1000 and 1000, every query sees every key, N_k is at least 1, and the last block of keys may be short. LOG2_E is log2(e).

Not allowed: torch.exp, torch.log and their kin (torch.exp2 and torch.log2 are the point), a library's softmax or attention,
the finished function from flashlab or solutions/.

Hint: keep m_i in base 2 from the first block to the last. Only L has to leave it, at the end.
"""


from dataclasses import dataclass

import torch

LOG2_E = 1.4426950408889634
inf = float("inf")


@dataclass
class Base2State:
    """Running softmax of some rows, all exponents in base 2."""

    m: torch.Tensor      # (N,)       largest exponent so far
    l: torch.Tensor      # (N,)       sum of 2^(exponent - m)
    acc: torch.Tensor    # (N, d_v)   the same sum, weighted with V

    @classmethod
    def empty(cls, rows, width, like):
        return cls(like.new_full((rows,), -inf), like.new_zeros(rows), like.new_zeros(rows, width))

    def absorb(self, exponents, values):
        m = torch.maximum(self.m, exponents.amax(dim=1))
        shrink = torch.exp2(self.m - m)
        weights = torch.exp2(exponents - m[:, None])
        self.l = self.l * shrink + weights.sum(dim=1)
        self.acc = self.acc * shrink[:, None] + weights @ values
        self.m = m

    def output(self):
        return self.acc / self.l[:, None]

    def natural_logsumexp(self):
        return (self.m + torch.log2(self.l)) / LOG2_E


def blocks(length, size):
    """Slices that cover 0 ... length - 1."""
    for first in range(0, length, size):
        yield slice(first, min(first + size, length))


def attend(Q, K, V, scale, B_c):
    """(O, L) of all queries in Q, walking the keys in blocks of B_c."""
    factor = scale * LOG2_E
    state = Base2State.empty(len(Q), V.shape[1], Q)
    for keys in blocks(len(K), B_c):
        state.absorb((Q @ K[keys].T) * factor, V[keys])
    return state.output(), state.natural_logsumexp()
