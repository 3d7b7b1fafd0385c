# kind: one mistake
# what: the heads are put side by side without trading the dimensions back
# shows: H > 1 and N_q > 1; a single query comes out right
"""ex01_heads · my answer."""

import torch


def multi_head(X_q, X_k, X_v, H):
    """Attention in each of H heads; the results side by side."""
    N_q, width = X_q.shape
    d = width // H
    Q = X_q.view(-1, H, d).transpose(0, 1)
    K = X_k.view(-1, H, d).transpose(0, 1)
    V = X_v.view(-1, H, d).transpose(0, 1)
    P = torch.softmax(Q @ K.transpose(1, 2) / d**0.5, dim=-1)
    return (P @ V).reshape(N_q, width)
