# kind: point missed
# what: the program loads all of O and dO and cuts its rows out of the result
# shows: numbers right; rows of other blocks are read, N_q * d_v elements twice per program
"""ex08_D · D without P"""

import torch

from flashlab.memory import load, store


def preprocess(O, dO, D, rows):
    """Fills D[rows]."""
    everything = slice(0, O.shape[0])
    product = load(O, everything).to(D.dtype) * load(dO, everything).to(D.dtype)
    store(D, rows, product.sum(-1)[rows])
