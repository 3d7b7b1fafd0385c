# kind: right
# what: loops over the queries, each takes only the prefix of keys it sees; softmax by hand
# shows: a query with an empty prefix keeps its zeros; scale None is told from 0; maximum subtracted, so +-1000 is safe
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
    N_q, d = Q.shape
    N_k = K.shape[0]
    if scale is None:
        scale = 1.0 / d ** 0.5
    O = torch.zeros(N_q, V.shape[1], dtype=Q.dtype)
    for i in range(N_q):
        n = N_k
        if causal:
            n = i + N_k - N_q + 1
        if n <= 0:
            continue
        s = (K[:n] @ Q[i]) * scale
        p = torch.exp(s - s.max())
        O[i] = (p @ V[:n]) / p.sum()
    return O
