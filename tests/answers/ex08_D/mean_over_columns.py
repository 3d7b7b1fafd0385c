# kind: one mistake
# what: the mean of O_i * dO_i over the columns in place of the sum over the d_v columns
# shows: d_v > 1: D too small by the factor d_v; with d_v = 1 it is right
"""ex08_D · D without P"""

import torch

from flashlab.memory import load, store


def preprocess(O, dO, D, rows):
    """Fills D[rows]."""
    D_i = load(O, rows).to(D.dtype)
    D_i *= load(dO, rows).to(D.dtype)
    store(D, rows, D_i.mean(dim=1))
