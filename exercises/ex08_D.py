"""ex08_D · D without P

Chapter 08 · difficulty 3 of 5 · 15 minutes

The softmax gradient needs D_i = Σ_j P_ij dP_ij for each row. That is a sum over all keys, and a tile has few of them.
It is also a sum over d_v columns of two tensors that are already there.

    O (N_q, d_v)   dO (N_q, d_v)   ->   D (N_q,)

Here O = P V, and dP = dO Vᵀ is the gradient of P. You get neither P nor V.
Write one program of the kernel. It is called once for each block of queries, with the slice `rows`, and fills D[rows].
Use load and store only; every byte is counted: read O and dO once, write D once. O and dO are float16, bfloat16 or
float32, D is float32. No size is 0.

Not allowed: changing the inputs, rows of other blocks, a second load, the finished function from flashlab or
solutions/.

Hint: dP_ij is a sum over columns. Put it into the sum over j, and swap the two sums.
"""

import torch

from flashlab.memory import load, store


def preprocess(O, dO, D, rows):
    """Fills D[rows].

    Tiles are turned into D.dtype after the load (`.to(D.dtype)`): sums of 16-bit numbers need 32 bits.
    """
    # your turn: load the rows of O and dO, store D[rows]
    raise NotImplementedError("ex08_D: load the rows of O and dO, store D[rows]")
