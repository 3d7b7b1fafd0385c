# kind: right
# what: beginner's loop: each query's two rows are loaded on their own (no byte twice), dotted, and D[n:n+1] stored
"""ex08_D · D without P"""

import torch

from flashlab.memory import load, store


def preprocess(O, dO, D, rows):
    """Fills D[rows]."""
    for n in range(rows.start, rows.stop):
        this = slice(n, n + 1)
        o = load(O, this).to(D.dtype)[0]
        do = load(dO, this).to(D.dtype)[0]
        store(D, this, torch.dot(o, do).reshape(1))
