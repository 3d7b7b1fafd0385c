# kind: one mistake
# what: takes d for the default scale from V (V.shape[-1], which is d_v); it is the width of Q and K
# shows: scale=None with d_v ≠ d
"""ex01_attention · attention, causal or not

Chapter 01 · difficulty 2 of 5 · 20 minutes

The three lines of attention for one head, with a scale and a causal mask.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)

    S = Q Kᵀ · scale        P = softmax(S), each row        O = P V

With causal=True a query sees no key after its own. Where N_q ≠ N_k the last query is lined up with the last key: query i
sees the keys j ≤ i + N_k − N_q. A query that sees no key at all gets a row of zeros.
Scores lie between −1000 and 1000; scale is any number, 0 and negative ones too.

Not allowed: changing the inputs, a library's attention (F.scaled_dot_product_attention), the finished function from
flashlab or solutions/.

Hint: set hidden scores to -inf before the softmax. torch.ones(...).triu(diagonal) marks everything from a diagonal on.
"""

import math

import torch

inf = float("inf")


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    N_q = Q.shape[0]
    N_k, d = V.shape
    if scale is None:
        scale = 1 / math.sqrt(d)

    S = scale * (Q @ K.T)
    if causal:
        for i in range(N_q):
            S[i, max(0, i + N_k - N_q + 1):] = -inf

    O = torch.zeros(N_q, V.shape[1], dtype=V.dtype)
    for i in range(N_q):
        if S[i].max() > -inf:
            O[i] = torch.softmax(S[i], dim=0) @ V
    return O
