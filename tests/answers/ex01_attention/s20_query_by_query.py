# kind: right
# what: one query at a time against the prefix of the keys that it sees; no mask tensor at all
# shows: a query with no key keeps its row of zeros; scale 0 and negative go through `is None`; the row's own maximum is taken off

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
    N_k, d_v = V.shape
    if scale is None:
        scale = 1 / d**0.5
    O = torch.zeros(N_q, d_v, dtype=Q.dtype)
    for i in range(N_q):
        n = i + 1 + N_k - N_q if causal else N_k       # how many keys query i sees
        if n <= 0:
            continue
        s = K[:n].mv(Q[i]) * scale
        p = (s - s.max()).exp()
        O[i] = (p @ V[:n]) / p.sum()
    return O
