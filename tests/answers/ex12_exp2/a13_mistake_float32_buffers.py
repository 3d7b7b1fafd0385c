# kind: one mistake
# what: the running sum and O are made with torch.zeros (float32 by default) and updated in place, so float64 inputs are summed up and returned in float32; they need the inputs' dtype
# shows: float64 inputs: O comes back as float32 (and O and L are off by 1e-7); float32 inputs are right
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
    N_q, N_k, d_v = len(Q), len(K), V.shape[1]
    factor = scale * LOG2_E
    m = torch.full((N_q, 1), -inf)
    l = torch.zeros((N_q, 1))
    O = torch.zeros((N_q, d_v))
    j = 0
    while j < N_k:
        end = min(j + B_c, N_k)
        S = (Q @ K[j:end].T) * factor
        m_new = torch.maximum(m, S.max(1, keepdim=True)[0])
        P = torch.exp2(S - m_new)
        c = torch.exp2(m - m_new)
        l *= c
        l += P.sum(1, keepdim=True)
        O *= c
        O += P @ V[j:end]
        m = m_new
        j = end
    O /= l
    L = (m + torch.log2(l)) / LOG2_E
    return O, L[:, 0]
