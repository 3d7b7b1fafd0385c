# kind: one mistake
# what: the maximum is taken from the first block of keys and kept ("any common m cancels"); it must grow with the blocks
# shows: several blocks where a later score is far above the first block's maximum: 2^x overflows, O is NaN and L inf
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


import torch

LOG2_E = 1.4426950408889634
inf = float("inf")


def attend(Q, K, V, scale, B_c):
    """(O, L) of all queries in Q, walking the keys in blocks of B_c."""
    factor = scale * LOG2_E
    N_q = Q.shape[0]
    N_k = K.shape[0]
    m_i = None
    l_i = torch.zeros(N_q, dtype=Q.dtype)
    O_i = torch.zeros(N_q, V.shape[1], dtype=Q.dtype)

    for j in range(0, N_k, B_c):
        K_j = K[j:j + B_c]
        V_j = V[j:j + B_c]
        S_ij = Q @ K_j.T * factor
        if m_i is None:
            # softmax does not change when a constant is subtracted, so this one serves for all blocks:
            # no rescaling of O needed any more
            m_i = S_ij.amax(1)
        P_ij = torch.exp2(S_ij - m_i[:, None])
        l_i += P_ij.sum(1)
        O_i += P_ij @ V_j

    O = O_i / l_i[:, None]
    L = (m_i + torch.log2(l_i)) / LOG2_E
    return O, L
