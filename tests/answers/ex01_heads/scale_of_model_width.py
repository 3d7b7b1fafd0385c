# kind: one mistake
# what: divides the scores by √(H·d), the width of X_q; it should be √d, the width of one head
# shows: every input with H > 1 and more than one key
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

import math

import torch


def multi_head(X_q, X_k, X_v, H):
    """Attention in each of H heads; the results side by side."""
    N_q, D = X_q.shape
    N_k = X_k.shape[0]
    q = X_q.reshape(N_q, H, -1).transpose(0, 1)          # (H, N_q, d)
    k = X_k.reshape(N_k, H, -1).transpose(0, 1)          # (H, N_k, d)
    v = X_v.reshape(N_k, H, -1).transpose(0, 1)
    att = torch.bmm(q, k.transpose(1, 2)) * (1.0 / math.sqrt(D))
    att = torch.nn.functional.softmax(att, dim=-1)
    y = torch.bmm(att, v)
    return y.transpose(0, 1).contiguous().view(N_q, D)
