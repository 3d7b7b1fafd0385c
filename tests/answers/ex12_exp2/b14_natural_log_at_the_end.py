# kind: point missed
# what: L is made with the natural logarithm, l.log(); the numbers are right, but torch.log and its kin are not allowed: it should be log2(l) divided by log2(e)
# shows: every input: torch.log is called
"""ex12_exp2 · attention in powers of two

Chapter 12 · difficulty 2 of 5 · 20 minutes

A GPU has an instruction for 2^x and none for e^x. Write the loop of FlashAttention-2 for one query block so that it knows base 2
alone, with the scale and log2(e) folded into one factor that each score meets once.

    exp(scale · s − m) = 2^(factor · s − m')        factor = scale · log2(e)        m' = m · log2(e), the maximum in base 2

    Q (N_q, d), K (N_k, d), V (N_k, d_v)   ->   O (N_q, d_v)        L (N_q,), the natural logarithm of the sum of exponentials

All tensors are float32, or all are float64; O and L have their dtype. scale is greater than 0, each scaled score lies between
−1000 and 1000, every query sees every key, N_k is at least 1, and the last block of keys may be short. LOG2_E is log2(e).
A block has at most B_c keys: no tensor of scores may have N_k columns. The factor may go into Q instead, before the loop.

Not allowed: a tensor of N_q by N_k, torch.exp, torch.log and their kin (torch.exp2, torch.log2 and 2 ** x are the point), a
library's softmax or attention, the finished function from flashlab or solutions/.

Hint: keep m_i in base 2 from the first block to the last. Only L has to leave it, at the end.
"""

import torch

LOG2_E = 1.4426950408889634
inf = float("inf")


def attend(Q, K, V, scale, B_c):
    """(O, L) of all queries in Q, walking the keys in blocks of B_c."""
    factor = scale * LOG2_E
    n_keys = len(K)
    running_max = None
    for begin in range(0, n_keys, B_c):
        K_j, V_j = K[begin:begin + B_c], V[begin:begin + B_c]
        scores = (Q @ K_j.T) * factor
        block_max = scores.max(dim=1, keepdim=True).values
        if running_max is None:                          # the first block has nothing to correct
            running_max = block_max
            weights = torch.exp2(scores - running_max)
            running_sum = weights.sum(dim=1, keepdim=True)
            numerator = weights @ V_j
            continue
        new_max = torch.maximum(running_max, block_max)
        weights = torch.exp2(scores - new_max)
        old = torch.exp2(running_max - new_max)
        running_sum = old * running_sum + weights.sum(dim=1, keepdim=True)
        numerator = old * numerator + weights @ V_j
        running_max = new_max

    O = numerator / running_sum
    L = running_max / LOG2_E + running_sum.log()         # the maximum leaves base 2, the sum has no base
    return O, L[:, 0]
