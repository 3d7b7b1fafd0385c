# kind: two mistakes
# what: (1) `scale or 1/√d` takes 0 for "not given"; (2) hidden scores get -1e9, so a query without any key averages all of V instead of giving zeros
# shows: (1) scale=0; (2) causal with N_q > N_k, the first rows
"""ex01_attention · attention, causal or not

Chapter 01 · difficulty 2 of 5 · 20 minutes

The three lines of attention for one head, with a scale and a causal mask.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)

    S = Q Kᵀ · scale        P = softmax(S), each row        O = P V

With causal=True a query sees no key after its own. Where N_q ≠ N_k the last query is lined up with the last key: query i
sees the keys j ≤ i + N_k − N_q. A query that sees no key at all gets a row of zeros.
Scores lie between −1000 and 1000; scale is any number, 0 and negative ones too.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, a library's attention (F.scaled_dot_product_attention), the finished function from
flashlab or solutions/.

Hint: set hidden scores to -inf before the softmax. torch.ones(...).triu(diagonal) marks everything from a diagonal on.
"""

import torch

inf = float("inf")


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    scale = scale or Q.shape[1] ** -0.5
    S = Q @ K.T * scale
    if causal:
        n, m = S.shape
        S = S.masked_fill(torch.ones(n, m, dtype=torch.bool).triu(m - n + 1), -1e9)
    E = torch.exp(S - S.max(dim=1, keepdim=True).values)
    return (E @ V) / E.sum(dim=1, keepdim=True)
