# kind: one mistake
# what: -inf is put in before the multiplication by scale, which turns it into +inf (negative scale) or nan (scale 0); scale first, mask after
# shows: causal=True with a scale that is negative or 0

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
        scale = Q.shape[-1] ** -0.5
    N_q, N_k = len(Q), len(K)
    S = Q @ K.T
    if causal:
        hidden = torch.ones(N_q, N_k, dtype=torch.bool).triu(N_k - N_q + 1)
        S = S.masked_fill(hidden, -inf)
    S = S * scale
    m = S.max(dim=-1, keepdim=True).values
    m = m.masked_fill(m == -inf, 0.0)
    E = torch.exp(S - m)
    l = E.sum(dim=-1, keepdim=True)
    P = E / torch.where(l == 0, torch.ones_like(l), l)
    return P @ V
