# kind: right
# what: m starts at -1e9 in place of -inf, for fear of NaN
# shows: all scores below -1e9: m is -1e9 and l is 0
# note: the stub's domain, scores between −1000 and 1000, allows it
"""ex03_online_softmax · my answer."""

import torch

from flashlab.memory import load, tiles

inf = float("inf")


def online_softmax(x, B):
    """(m, l) of the scores x, as tensors without dimensions. tiles(N, B) gives the slices of at most B."""
    m = torch.tensor(-1e9, dtype=x.dtype)
    l = torch.tensor(0.0, dtype=x.dtype)
    for part in tiles(len(x), B):
        s = load(x, part)
        m_new = torch.maximum(m, s.amax())
        l = l * torch.exp(m - m_new) + torch.exp(s - m_new).sum()
        m = m_new
    return m, l
