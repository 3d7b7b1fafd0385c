# kind: one mistake
# what: `scale = scale or 1/√d`: a scale of 0 is taken for "not given"; it should be tested with `is None`
# shows: scale=0 (the answer should be the mean of the visible values)

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
    scale = scale or Q.shape[-1] ** -0.5
    S = Q @ K.T * scale
    if causal:
        hide = torch.ones_like(S, dtype=torch.bool).triu(1 + K.shape[0] - Q.shape[0])
        S = S.masked_fill(hide, -inf)
    P = torch.softmax(S, dim=-1)
    P = torch.where(P.isnan(), torch.zeros_like(P), P)
    return P @ V
