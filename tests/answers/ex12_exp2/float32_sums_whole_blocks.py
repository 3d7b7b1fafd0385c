# kind: two mistakes
# what: (1) the running values are float32 whatever the inputs; (2) only N_k // B_c blocks are walked and the short last one is left out
# shows: (1) float64 inputs: O and L are float32; (2) N_k not a multiple of B_c
"""ex12_exp2 · attention in powers of two

Chapter 12 · difficulty 2 of 5 · 20 minutes

A GPU has an instruction for 2^x and none for e^x. Write the loop of FlashAttention-2 for one query block so that it knows base 2
alone, with the scale and log2(e) folded into one factor that each score meets once.

    exp(scale · s − m) = 2^(factor · s − m')        factor = scale · log2(e)        m' = m · log2(e), the maximum in base 2

    Q (N_q, d), K (N_k, d), V (N_k, d_v)   ->   O (N_q, d_v)        L (N_q,), the natural logarithm of the sum of exponentials

All tensors are float32, or all are float64; O and L have their dtype. scale is greater than 0, each scaled score lies between
−1000 and 1000, every query sees every key, N_k is at least 1, and the last block of keys may be short. LOG2_E is log2(e).
A block has at most B_c keys: no tensor of N_k columns may appear.

Not allowed: a tensor of N_q by N_k, torch.exp, torch.log and their kin (torch.exp2 and torch.log2 are the point), a library's
softmax or attention, the finished function from flashlab or solutions/.

Hint: keep m_i in base 2 from the first block to the last. Only L has to leave it, at the end.
"""

import torch

LOG2_E = 1.4426950408889634
inf = float("inf")


def attend(Q, K, V, scale, B_c):
    """(O, L) of all queries in Q, walking the keys in blocks of B_c."""
    N_q, N_k = Q.shape[0], K.shape[0]
    factor = scale * LOG2_E
    m = torch.full((N_q,), -inf, dtype=torch.float32)
    l = torch.zeros((N_q,), dtype=torch.float32)
    O = torch.zeros((N_q, V.shape[1]), dtype=torch.float32)
    for j in range(N_k // B_c):
        K_j, V_j = K[j * B_c:(j + 1) * B_c], V[j * B_c:(j + 1) * B_c]
        S = (Q @ K_j.T * factor).float()
        m_new = torch.maximum(m, S.amax(dim=1))
        P = torch.exp2(S - m_new[:, None])
        alpha = torch.exp2(m - m_new)
        l = l * alpha + P.sum(dim=1)
        O = O * alpha[:, None] + P @ V_j.float()
        m = m_new
    return O / l[:, None], (m + torch.log2(l)) / LOG2_E
