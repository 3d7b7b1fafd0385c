# kind: one mistake
# what: scores are divided by sqrt(H*d), the width of X_q, not sqrt(d)
# shows: H > 1
"""ex01_heads: my answer."""

import torch


def multi_head(X_q, X_k, X_v, H):
    """Attention in each of H heads; the results side by side."""
    N_q, Hd = X_q.shape
    N_k = X_k.shape[0]
    d = Hd // H
    Q = X_q.reshape(N_q, H, d).transpose(0, 1)
    K = X_k.reshape(N_k, H, d).transpose(0, 1)
    V = X_v.reshape(N_k, H, d).transpose(0, 1)
    S = Q @ K.transpose(1, 2) / Hd ** 0.5
    P = S.softmax(-1)
    O = P @ V
    return O.transpose(0, 1).reshape(N_q, Hd)
