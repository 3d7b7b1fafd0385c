# kind: right
# what: batched dot product with einsum
"""ex08_D: my answer."""

import torch

from flashlab.memory import load, store


def preprocess(O, dO, D, rows):
    """Fills D[rows] with rowsum(dO∘O).

    Tiles are turned into D.dtype after the load (`.to(D.dtype)`): sums of 16-bit numbers need 32 bits.
    """
    o, g = [load(T, rows).to(D.dtype) for T in (O, dO)]
    store(D, rows, torch.einsum("rv,rv->r", o, g))
