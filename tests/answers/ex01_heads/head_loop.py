# kind: point missed
# what: a loop over the heads
# shows: numbers right; loops over heads, which the stub forbids
"""ex01_heads · my answer."""

import torch


def one_head(Q, K, V):
    return torch.softmax(Q @ K.T / Q.shape[1] ** 0.5, dim=-1) @ V


def multi_head(X_q, X_k, X_v, H):
    """Attention in each of H heads; the results side by side."""
    d = X_q.shape[1] // H
    parts = []
    for h in range(H):
        c = slice(h * d, (h + 1) * d)
        parts.append(one_head(X_q[:, c], X_k[:, c], X_v[:, c]))
    return torch.cat(parts, dim=1)
