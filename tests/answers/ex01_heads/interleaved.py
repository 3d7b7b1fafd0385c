# kind: one mistake
# what: splits the columns as (d, H), so that head h has the columns h, h + H, h + 2H ...; head h should have h·d to (h + 1)·d, (H, d)
# shows: every input with H > 1, d > 1 and more than one key
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
    D = X_q.size(1)
    d = D // H

    def heads_first(X):
        return X.reshape(X.size(0), d, H).permute(2, 0, 1)           # (H, N, d)

    Q, K, V = heads_first(X_q), heads_first(X_k), heads_first(X_v)
    S = torch.einsum("hid,hjd->hij", Q, K) * d**-0.5
    W = torch.exp(S - S.amax(dim=-1, keepdim=True))
    W = W / W.sum(dim=-1, keepdim=True)
    O = torch.einsum("hij,hjd->hid", W, V)
    return O.permute(1, 2, 0).reshape(X_q.size(0), D)
