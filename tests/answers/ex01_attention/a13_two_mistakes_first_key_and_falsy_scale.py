# kind: two mistakes
# what: (1) the number of visible keys is kept at 1 or more, so a query that sees no key attends to key 0; it should get a row of zeros. (2) `if not scale` takes scale = 0 for "not given" and uses 1/sqrt(d); it should be `is None`
# shows: (1) causal=True and N_q > N_k; (2) scale=0
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

import math

import torch

inf = float("inf")


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    n, d = Q.shape
    m = len(K)
    if not scale:
        scale = 1.0 / math.sqrt(d)

    S = scale * (Q @ K.T)

    if causal:
        # query i sees the first i + 1 + m - n keys
        count = torch.arange(n, device=Q.device) + 1 + m - n
        count = count.clamp(min=1, max=m)
        hidden = torch.arange(m, device=Q.device)[None, :] >= count[:, None]
        S[hidden] = -inf

    P = torch.softmax(S, dim=1)
    O = P @ V
    return O
