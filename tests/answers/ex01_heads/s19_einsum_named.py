# kind: right
# what: heads stay the middle axis; einsums with named letters and a softmax by hand, shifted by each row's maximum
# shows: scores up to 1000 are shifted per row and head, N_q and N_k may differ, no loop over heads
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

import math

import torch


def multi_head(X_q, X_k, X_v, H):
    """Attention in each of H heads; the results side by side."""
    Q, K, V = (X.unflatten(1, (H, -1)) for X in (X_q, X_k, X_v))       # (N, H, d)
    d = Q.shape[-1]
    S = torch.einsum("qhc,khc->qhk", Q, K).div_(math.sqrt(d))          # own buffer
    S -= S.amax(dim=-1, keepdim=True)
    S.exp_()
    O = torch.einsum("qhk,khc->qhc", S, V) / S.sum(-1, keepdim=True)
    return O.flatten(1)
