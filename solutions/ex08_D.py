"""ex08_D · D without P

Chapter 08 · difficulty 3 of 5 · 20 minutes

The softmax gradient needs D_i = Σ_j P_ij dP_ij for each row: a sum over all keys, but a tile shows only a few. It is also
a sum over d_v columns, of two things that are there already.

    O (N_q, d_v)   dO (N_q, d_v)   ->   D (N_q,)

    Σ_j P_ij dP_ij = Σ_j P_ij (dO_i · V_j) = dO_i · Σ_j P_ij V_j = dO_i · O_i

Write one program of that kernel. HBM is touched through load and store only, and each byte is counted: O and dO are read
once, D is written once.

Hint: the sum runs over columns, so each row of O and dO is needed whole, and no other row is.
"""

from flashlab.memory import load, store


def preprocess(O, dO, D, rows):
    """Fills D[rows] with rowsum(dO∘O).

    Tiles are turned into D.dtype after the load (`.to(D.dtype)`): sums of 16-bit numbers need 32 bits.
    """
    # >>> your turn: load the rows of O and dO, store D[rows]
    O_i = load(O, rows).to(D.dtype)                                 # (B_r, d_v)
    dO_i = load(dO, rows).to(D.dtype)                               # (B_r, d_v)
    store(D, rows, (dO_i * O_i).sum(-1))
    # <<<
