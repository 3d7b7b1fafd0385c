# kind: right
# what: torch.split and stack make (H, N, d), one baddbmm with alpha does product and scale, softmax by hand in place on its own S
# shows: within the contract: no loop over heads, the inputs are copied by stack before anything is in place, N_q != N_k fine
"""ex01_heads · many heads from one matrix

Chapter 01 · difficulty 2 of 5 · 15 minutes

A model keeps its H heads side by side in the columns of one matrix: the first d columns belong to head 0, the next d to
head 1, and so on. Split them, attend in each head, and put the heads side by side again.

    X_q (N_q, H·d)   X_k (N_k, H·d)   X_v (N_k, H·d)   ->   (N_q, H·d)

    head h:   softmax(Q_h K_hᵀ / √d) V_h       Q_h = X_q[:, h·d : (h + 1)·d], K_h and V_h likewise

No mask. Use no loop over heads: (H, N_q, d) @ (H, d, N_k) multiplies all heads at once. A comprehension or a map() over heads is
a loop as well; one over X_q, X_k and X_v is none, nor is torch.vmap.
Scores lie between −1000 and 1000.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, a loop over heads, a library's attention (F.scaled_dot_product_attention), the finished
function from flashlab or solutions/.

Hint: X.view(N, H, d) tells the columns of a row apart by head. Which two dimensions have to trade places then?
"""

import torch


def to_heads(X, H):
    d = X.shape[1] // H
    return torch.stack(torch.split(X, d, dim=1))          # (H, N, d)


def multi_head(X_q, X_k, X_v, H):
    """Attention in each of H heads; the results side by side."""
    Q, K, V = to_heads(X_q, H), to_heads(X_k, H), to_heads(X_v, H)
    d = Q.shape[-1]

    S = torch.zeros(H, Q.shape[1], K.shape[1])
    S.baddbmm_(Q, K.transpose(1, 2), beta=0, alpha=d**-0.5)
    S -= S.amax(2, keepdim=True)
    S.exp_()
    S /= S.sum(2, keepdim=True)

    O = torch.bmm(S, V)                                   # (H, N_q, d)
    return O.permute(1, 0, 2).flatten(1)
