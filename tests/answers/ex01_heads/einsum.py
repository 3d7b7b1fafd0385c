# kind: right
# what: reshape to (N, H, d) and two einsums with a letter for the head; the heads never have to trade places by hand
# shows: "ihd" puts the heads side by side again; N_q and N_k are separate letters; reshape also takes inputs with gaps
"""ex01_heads · many heads from one matrix

Chapter 01 · difficulty 2 of 5 · 15 minutes

A model keeps its H heads side by side in the columns of one matrix: the first d columns belong to head 0, the next d to
head 1, and so on. Split them, attend in each head, and put the heads side by side again.

    X_q (N_q, H·d)   X_k (N_k, H·d)   X_v (N_k, H·d)   ->   (N_q, H·d)

    head h:   softmax(Q_h K_hᵀ / √d) V_h       Q_h = X_q[:, h·d : (h + 1)·d], K_h and V_h likewise

No mask. Use no loop over heads: (H, N_q, d) @ (H, d, N_k) multiplies all heads at once.
Scores lie between −1000 and 1000.

Not allowed: changing the inputs, a loop over heads, a library's attention (F.scaled_dot_product_attention), the finished
function from flashlab or solutions/.

Hint: X.view(N, H, d) tells the columns of a row apart by head. Which two dimensions have to trade places then?
"""

import torch


def multi_head(X_q, X_k, X_v, H):
    """Attention in each of H heads; the results side by side."""
    d = X_q.shape[1] // H
    Q, K, V = (X.reshape(X.shape[0], H, d) for X in (X_q, X_k, X_v))
    S = torch.einsum("ihd,jhd->hij", Q, K) / d**0.5
    P = S.softmax(-1)
    return torch.einsum("hij,jhd->ihd", P, V).flatten(1)
