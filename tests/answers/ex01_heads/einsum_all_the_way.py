# kind: right
# what: three einsums that keep the head as a letter, softmax by hand; the result is reshaped back without any transpose
# shows: N_q != N_k, H = 1, d = 1, scores to 1000 in size (row maximum is subtracted); no loop, inputs untouched
"""ex01_heads · many heads from one matrix

Chapter 01 · difficulty 2 of 5 · 15 minutes

A model keeps its H heads side by side in the columns of one matrix: the first d columns belong to head 0, the next d to
head 1, and so on. Split them, attend in each head, and put the heads side by side again.

    X_q (N_q, H·d)   X_k (N_k, H·d)   X_v (N_k, H·d)   ->   (N_q, H·d)

    head h:   softmax(Q_h K_hᵀ / √d) V_h       Q_h = X_q[:, h·d : (h + 1)·d], K_h and V_h likewise

No mask. Use no loop over heads: (H, N_q, d) @ (H, d, N_k) multiplies all heads at once.
Scores lie between −1000 and 1000.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, a loop over heads, a library's attention (F.scaled_dot_product_attention), the finished
function from flashlab or solutions/.

Hint: X.view(N, H, d) tells the columns of a row apart by head. Which two dimensions have to trade places then?
"""

import torch


def multi_head(X_q, X_k, X_v, H):
    """Attention in each of H heads; the results side by side."""
    n, Hd = X_q.shape
    m, _ = X_k.shape
    d = Hd // H

    q = X_q.reshape(n, H, d)
    k = X_k.reshape(m, H, d)
    v = X_v.reshape(m, H, d)

    s = torch.einsum("nhd,mhd->hnm", q, k) / d ** 0.5
    s -= s.amax(dim=2, keepdim=True)            # s is ours
    e = s.exp_()
    z = torch.einsum("hnm->nh", e)

    out = torch.einsum("hnm,mhd->nhd", e, v) / z[:, :, None]
    return out.reshape(n, Hd)
