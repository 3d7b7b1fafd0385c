# kind: one mistake
# what: m is overwritten before the rate of exchange is computed: the rate is always 1
# shows: a later piece with a larger score: l is too large; right where the first piece has the maximum
"""ex03_online_softmax · my answer."""

import torch

from flashlab.memory import load, tiles

inf = float("inf")


def online_softmax(x, B):
    """(m, l) of the scores x, as tensors without dimensions. tiles(N, B) gives the slices of at most B."""
    m = torch.full((), -inf, dtype=x.dtype)
    l = torch.zeros((), dtype=x.dtype)
    for part in tiles(x.numel(), B):
        chunk = load(x, part)
        m_new = torch.maximum(m, chunk.max())
        m = m_new
        l *= torch.exp(m - m_new)
        l += torch.exp(chunk - m).sum()
    return m, l
