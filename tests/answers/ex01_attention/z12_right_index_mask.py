# kind: right
# what: mask from two aranges, out-of-place where, torch.softmax, blind rows replaced by zeros
# shows: None tested with `is`, the mask comes after the scale, blind rows are filled with 0 after the softmax
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
        scale = Q.size(-1) ** -0.5
    S = (Q @ K.mT) * scale
    if not causal:
        return S.softmax(-1) @ V
    n_q, n_k = S.shape
    last = torch.arange(n_q, device=S.device) + (n_k - n_q)      # last visible key of each query
    visible = torch.arange(n_k, device=S.device) <= last[:, None]
    S = torch.where(visible, S, -inf)
    P = S.softmax(-1)
    P = torch.where(visible, P, 0.0)         # also kills the NaN of blind rows
    return P @ V
