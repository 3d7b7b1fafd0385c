# kind: right
# what: short; the first block makes the state, zip over torch.split does the others
# shows: no -inf anywhere as every query sees every key; float32 and float64, any B_c
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
    c = LOG2_E * scale
    (K0, *Ks), (V0, *Vs) = K.split(B_c), V.split(B_c)
    S = c * (Q @ K0.mT)
    m = S.max(1, keepdim=True).values
    P = (S - m).exp2()
    l, O = P.sum(1, keepdim=True), P @ V0
    for Kj, Vj in zip(Ks, Vs):
        S = c * (Q @ Kj.mT)
        old, m = m, torch.maximum(m, S.max(1, keepdim=True).values)
        P, a = (S - m).exp2(), (old - m).exp2()
        l, O = a * l + P.sum(1, keepdim=True), a * O + P @ Vj
    ln2 = 1 / LOG2_E
    return O / l, ((m + l.log2()) * ln2).squeeze(1)
