# kind: right
# what: one query at a time; it sees the first i + N_k - N_q + 1 keys if causal, softmax by hand, a query without keys keeps its zeros
# shows: no mask is needed as hidden keys are never touched; max subtracted after the scale, so negative and zero scales are fine

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

import numpy as np
import torch

inf = float("inf")


def softmax_1d(s):
    e = torch.exp(s - s.max())
    return e / e.sum()


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    N_q, d = Q.shape
    N_k, d_v = V.shape
    if scale is None:
        scale = 1.0 / float(np.sqrt(d))

    O = torch.zeros((N_q, d_v), dtype=Q.dtype)
    for i in range(N_q):
        n = N_k                                  # how many keys this query sees
        if causal:
            n = min(N_k, max(0, i + N_k - N_q + 1))
        if n == 0:
            continue
        s = K[:n] @ Q[i] * scale
        p = softmax_1d(s)
        O[i] = p @ V[:n]
    return O
