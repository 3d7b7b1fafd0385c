# kind: one mistake
# what: columns taken as if heads were interleaved: view (N, d, H)
# shows: H > 1 and d > 1
"""ex01_heads · my answer."""

import torch


def multi_head(X_q, X_k, X_v, H):
    """Attention in each of H heads; the results side by side."""
    d = X_q.shape[1] // H
    Q, K, V = (X.reshape(-1, d, H).permute(2, 0, 1) for X in (X_q, X_k, X_v))
    P = (Q @ K.mT * d**-0.5).softmax(-1)
    return (P @ V).permute(1, 2, 0).reshape(len(X_q), d * H)
