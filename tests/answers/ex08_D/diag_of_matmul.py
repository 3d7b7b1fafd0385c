# kind: point missed
# what: loads all rows of O and dO, makes all D, stores its own part
# shows: numbers right; rows of other blocks are loaded
"""ex08_D: my answer."""

import torch

from flashlab.memory import load, store


def preprocess(O, dO, D, rows):
    """Fills D[rows] with rowsum(dO∘O).

    Tiles are turned into D.dtype after the load (`.to(D.dtype)`): sums of 16-bit numbers need 32 bits.
    """
    everything = slice(0, O.shape[0])
    full = (load(O, everything).to(D.dtype) * load(dO, everything).to(D.dtype)).sum(1)
    store(D, rows, full[rows])
