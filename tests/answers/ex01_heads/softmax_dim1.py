# kind: one mistake
# what: softmax over dim=1, right for one head's (N_q, N_k); in (H, N_q, N_k) the keys are dim 2, so each key's column sums to 1
# shows: every input with more than one query or more than one key
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


def split_heads(X, H):
    N, width = X.shape
    return X.reshape(N, H, width // H).permute(1, 0, 2)


def multi_head(X_q, X_k, X_v, H):
    """Attention in each of H heads; the results side by side."""
    Q = split_heads(X_q, H)
    K = split_heads(X_k, H)
    V = split_heads(X_v, H)

    S = Q @ K.transpose(1, 2) / Q.shape[-1] ** 0.5
    P = torch.softmax(S, dim=1)
    O = P @ V

    return O.permute(1, 0, 2).reshape(X_q.shape)
