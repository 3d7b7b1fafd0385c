# kind: one mistake
# what: mean over the columns instead of the sum
# shows: d_v != 1
"""ex08_D: my answer."""

import torch

from flashlab.memory import load, store


def preprocess(O, dO, D, rows):
    """Fills D[rows] with rowsum(dO∘O).

    Tiles are turned into D.dtype after the load (`.to(D.dtype)`): sums of 16-bit numbers need 32 bits.
    """
    O_i = load(O, rows).to(D.dtype)
    dO_i = load(dO, rows).to(D.dtype)
    store(D, rows, (O_i * dO_i).mean(-1))
