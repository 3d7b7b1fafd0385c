# kind: right
# what: one einsum over the columns
"""ex08_D · D without P"""

import torch

from flashlab.memory import load, store


def preprocess(O, dO, D, rows):
    """Fills D[rows]."""
    o, g = (load(T, rows).to(D.dtype) for T in (O, dO))
    store(D, rows, torch.einsum("nv,nv->n", o, g))
