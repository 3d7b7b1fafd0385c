# kind: one mistake
# what: columns are split as (d, H): head index runs fastest
# shows: H > 1 and d > 1
"""ex01_heads: my answer."""

import torch


def multi_head(X_q, X_k, X_v, H):
    """Attention in each of H heads; the results side by side."""
    N_q, Hd = X_q.shape
    N_k = X_k.shape[0]
    d = Hd // H
    Q = X_q.reshape(N_q, d, H).permute(2, 0, 1)
    K = X_k.reshape(N_k, d, H).permute(2, 0, 1)
    V = X_v.reshape(N_k, d, H).permute(2, 0, 1)
    S = Q @ K.transpose(1, 2) / d ** 0.5
    P = S.softmax(-1)
    O = P @ V
    return O.permute(1, 2, 0).reshape(N_q, Hd)
