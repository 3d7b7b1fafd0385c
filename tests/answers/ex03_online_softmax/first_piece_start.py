# kind: right
# what: first piece starts the state, the rest updates it with an if
"""ex03_online_softmax: my answer."""

import torch

from flashlab.memory import load, tiles

inf = float("inf")


def online_softmax(x, B):
    """(m, l) of the scores x, as tensors without dimensions. tiles(N, B) gives the slices of at most B."""
    m = l = None
    for part in tiles(x.shape[0], B):
        xs = load(x, part)
        top = xs.amax()
        here = (xs - top).exp().sum()
        if m is None:
            m, l = top, here
        elif top > m:
            l = l * (m - top).exp() + here
            m = top
        else:
            l = l + here * (top - m).exp()
    return m, l
