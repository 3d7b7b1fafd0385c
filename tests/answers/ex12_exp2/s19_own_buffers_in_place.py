# kind: right
# what: the factor goes into Q once, before the loop; the running O, l and m are buffers of ours, changed in place (mul_, addmm_)
# shows: exp2 and log2 only, at most B_c columns of scores, float32 and float64 keep their dtype, the inputs are not touched

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
    N_q, N_k, d_v = Q.shape[0], K.shape[0], V.shape[1]
    Q2 = Q * (scale * LOG2_E)                                # scores come out in base 2
    O = Q.new_zeros((N_q, d_v))
    l = Q.new_zeros((N_q, 1))
    m = Q.new_full((N_q, 1), -inf)

    lo = 0
    while lo < N_k:
        hi = min(lo + B_c, N_k)
        P = Q2.mm(K[lo:hi].t())
        m_new = torch.maximum(m, P.amax(dim=1, keepdim=True))
        P.sub_(m_new).exp2_()
        m.sub_(m_new).exp2_()                                # m is alpha now
        l.mul_(m).add_(P.sum(dim=1, keepdim=True))
        O.mul_(m).addmm_(P, V[lo:hi])
        m.copy_(m_new)
        lo = hi

    O.div_(l)
    L = l.log2_().add_(m).div_(LOG2_E).squeeze(1)
    return O, L
