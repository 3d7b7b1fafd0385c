"""ex08_ds_tile · one tile of dS, and what it gives to dQ and dK

Chapter 08 · difficulty 3 of 5 · 20 minutes

With P_ij made again and D_i prepared, a tile knows all it needs to push the gradient through the softmax and on to Q and K.

    Q_i (B_r, d)   K_j (B_c, d)   V_j (B_c, d_v)   P_ij (B_r, B_c)   dO_i (B_r, d_v)   D_i (B_r,)
    ->   dQ_i (B_r, d), dK_j (B_c, d): this tile's parts

    dP_ij = dO_i V_jᵀ
    dS_ij = P_ij ∘ (dP_ij − D_i)
    dQ_i  = scale · dS_ij K_j            dK_j = scale · dS_ijᵀ Q_i

Hint: S = scale · Q Kᵀ. Its gradient by Q is that of a matrix product, times scale. Through which of the lines does it reach K?
"""


def ds_tile(Q_i, K_j, V_j, P_ij, dO_i, D_i, scale):
    """(this tile's part of dQ_i, this tile's part of dK_j)."""
    # your turn: dP_ij, dS_ij, and the two products
    raise NotImplementedError("ex08_ds_tile: dP_ij, dS_ij, and the two products")
