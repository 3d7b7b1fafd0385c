# kind: one mistake
# what: softmax over all keys first, hidden weights set to 0 and the row divided by its new sum; hidden scores should be -inf before the softmax
# shows: causal=True with a hidden score more than about 100 above the visible ones: visible weights have underflowed to 0 and the row becomes zeros
"""ex01_attention · attention, causal or not

Chapter 01 · difficulty 2 of 5 · 20 minutes

The three lines of attention for one head, with a scale and a causal mask.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)

    S = Q Kᵀ · scale        P = softmax(S), each row        O = P V

With causal=True a query sees no key after its own. Where N_q ≠ N_k the last query is lined up with the last key: query i
sees the keys j ≤ i + N_k − N_q. A query that sees no key at all gets a row of zeros.
Scores lie between −1000 and 1000; scale is any finite number, 0 and negative ones too.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, a library's attention (F.scaled_dot_product_attention), the finished function from
flashlab or solutions/.

Hint: set hidden scores to -inf before the softmax. torch.ones(...).triu(diagonal) marks everything from a diagonal on.
"""

import torch

inf = float("inf")


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    if scale is None:
        scale = Q.shape[1] ** -0.5
    P = torch.softmax(scale * (Q @ K.T), dim=1)
    if causal:
        visible = torch.ones_like(P).tril(K.shape[0] - Q.shape[0])
        P = P * visible
        total = P.sum(dim=1, keepdim=True)          # what is left has to sum to 1 again
        P = torch.where(total > 0, P / total, torch.zeros_like(P))
    return P @ V
