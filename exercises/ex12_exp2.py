"""ex12_exp2 · attention in powers of two

Chapter 12 · difficulty 2 of 5 · 20 minutes

A GPU has an instruction for 2^x and none for e^x. Write the loop of FlashAttention-2 for one query block so that it
knows base 2 alone, with the scale and log2(e) folded into one factor that each score meets once.

    exp(scale · s − m) = 2^(factor · s − m')      factor = scale · log2(e)       m' = m · log2(e), the maximum in base 2

    Q (N_q, d), K (N_k, d), V (N_k, d_v)  ->   O (N_q, d_v)   L (N_q,), the natural logarithm of the sum of exponentials

All tensors are float32, or all are float64; O and L have their dtype. scale is greater than 0, each scaled score lies
between −1000 and 1000, every query sees every key, N_k is at least 1, and the last block of keys may be short. LOG2_E
is log2(e). A block has at most B_c keys: no tensor of scores may have N_k columns. The factor may go into Q instead,
before the loop.

Not allowed: a tensor of N_q by N_k, exp, log and their kin, from torch or numpy, math.e ** x (torch.exp2, torch.log2
and 2 ** x are the point), a library's softmax or attention, the finished function from flashlab or solutions/.

Hint: keep m_i in base 2 from the first block to the last. Only L has to leave it, at the end.
"""

import torch

LOG2_E = 1.4426950408889634
inf = float("inf")


def attend(Q, K, V, scale, B_c):
    """(O, L) of all queries in Q, walking the keys in blocks of B_c."""
    # your turn: the factor, the loop over blocks of keys, O and L
    raise NotImplementedError("ex12_exp2: the factor, the loop over blocks of keys, O and L")
