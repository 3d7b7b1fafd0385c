# kind: right
# what: exp by hand, division after the product with V, broadcast comparison as mask
"""ex01_attention · my answer."""

import torch

inf = float("inf")


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    (n, d), k = Q.shape, K.shape[0]
    S = torch.einsum("qd,kd->qk", Q, K) * (d**-0.5 if scale is None else scale)
    if causal:
        q_pos = torch.arange(k - n, k, device=Q.device)    # the query's place among the keys
        S = torch.where(torch.arange(k, device=Q.device) > q_pos[:, None], -inf, S)
    top = S.amax(1, keepdim=True)
    top = torch.where(top == -inf, torch.zeros_like(top), top)
    W = (S - top).exp()
    total = W.sum(1, keepdim=True)
    return W @ V / torch.where(total == 0, torch.ones_like(total), total)
