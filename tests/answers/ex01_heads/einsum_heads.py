# kind: right
# what: reshape to (N, H, d), two einsums, no transpose written
"""ex01_heads · my answer."""

import torch


def multi_head(X_q, X_k, X_v, H):
    """Attention in each of H heads; the results side by side."""
    q, k, v = (X.reshape(X.shape[0], H, X.shape[1] // H) for X in (X_q, X_k, X_v))
    S = torch.einsum("ihc,jhc->hij", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("hij,jhc->ihc", S.softmax(2), v).flatten(1)
