# kind: two mistakes
# what: (1) -inf is put in before the scale, so scale 0 makes NaN and a negative one +inf; (2) the diagonal is moved by N_q − N_k, should be N_k − N_q
# shows: (1) causal with scale <= 0, also at N_q = N_k; (2) causal with N_q != N_k, scale positive
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
    N_q, d = Q.shape
    N_k, _ = K.shape
    if scale is None:
        scale = 1 / d ** 0.5

    raw = Q @ K.T
    if causal:
        future = torch.ones(N_q, N_k, dtype=torch.bool).triu(N_q - N_k + 1)
        raw = raw.masked_fill(future, -inf)
    S = raw * scale

    P = torch.softmax(S, dim=-1)
    if causal:
        P = P.masked_fill(future.all(dim=-1, keepdim=True), 0)
    return P @ V
