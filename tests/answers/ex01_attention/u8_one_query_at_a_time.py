# kind: right
# what: walks query by query and cuts the keys it may see instead of masking; exp and sum by hand
# shows: no key seen leaves the row of zeros; scale None is told from 0; the maximum is taken of the scaled scores
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


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    N_q, d = Q.shape
    N_k, d_v = V.shape
    if scale is None:
        scale = 1.0 / d ** 0.5
    out = Q.new_zeros(N_q, d_v)
    for row in range(N_q):
        n = row + N_k - N_q + 1 if causal else N_k
        if n <= 0:
            continue
        s = (K[:n] @ Q[row]) * scale
        w = (s - s.max()).exp()
        out[row] = (w @ V[:n]) / w.sum()
    return out
