# kind: one mistake
# what: the short last block is copied into a tile of B_c rows filled up with zeros, and these keys are not masked: each gets weight 2 ** (0 - m)
# shows: N_k is no multiple of B_c

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
    N_q, d = Q.shape
    N_k, d_v = V.shape
    log2_scale = scale * LOG2_E

    # "shared memory", always full tiles
    K_s = torch.zeros(B_c, d, dtype=K.dtype)
    V_s = torch.zeros(B_c, d_v, dtype=V.dtype)

    O = torch.zeros(N_q, d_v, dtype=Q.dtype)
    m = torch.full((N_q,), -inf, dtype=Q.dtype)
    l = torch.zeros(N_q, dtype=Q.dtype)

    num_blocks = (N_k + B_c - 1) // B_c
    for j in range(num_blocks):
        lo = j * B_c
        n = min(B_c, N_k - lo)
        K_s.zero_()
        V_s.zero_()
        K_s[:n] = K[lo:lo + n]
        V_s[:n] = V[lo:lo + n]

        s = (Q @ K_s.T) * log2_scale
        m_new = torch.maximum(m, s.max(dim=1)[0])
        p = 2 ** (s - m_new[:, None])
        c = 2 ** (m - m_new)
        l = l * c + p.sum(1)
        O = O * c[:, None] + p @ V_s
        m = m_new

    return O / l[:, None], (m + torch.log2(l)) / LOG2_E
