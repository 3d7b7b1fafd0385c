# kind: one mistake
# what: softmax by hand without the shift by the maximum
# shows: scores above 88 (float32) give NaN, rows below -104 too; ordinary inputs are right
"""ex01_heads · my answer."""

import torch


def multi_head(X_q, X_k, X_v, H):
    """Attention in each of H heads; the results side by side."""
    d = X_q.shape[1] // H
    Q, K, V = (X.unflatten(1, (H, d)).movedim(1, 0) for X in (X_q, X_k, X_v))
    E = torch.exp(Q @ K.mT / d**0.5)
    O = E @ V / E.sum(-1, keepdim=True)
    return O.movedim(0, 1).flatten(1)
