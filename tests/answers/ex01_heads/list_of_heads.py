# kind: point missed
# what: heads handled one by one in a list comprehension over torch.chunk
# shows: numbers right, a loop over heads
"""ex01_heads: my answer."""

import torch


def multi_head(X_q, X_k, X_v, H):
    """Attention in each of H heads; the results side by side."""
    chunks = zip(X_q.chunk(H, 1), X_k.chunk(H, 1), X_v.chunk(H, 1))
    return torch.cat([((q @ k.T) / q.shape[1] ** 0.5).softmax(1) @ v for q, k, v in chunks], 1)
