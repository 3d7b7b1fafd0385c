# kind: one mistake
# what: the shift N_k - N_q is cut off at 0 ("a diagonal cannot be negative"), so that with more queries than keys they are lined up at the start; no max is right
# shows: causal=True with N_q > N_k

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
        scale = Q.size(1) ** -0.5
    S = (Q @ K.T) * scale
    if causal:
        more = max(K.size(0) - Q.size(0), 0)
        i = torch.arange(Q.size(0))[:, None]
        j = torch.arange(K.size(0))[None, :]
        S[j > i + more] = -inf
    m = S.amax(dim=1, keepdim=True)
    m[m == -inf] = 0.0
    E = torch.exp(S - m)
    l = E.sum(dim=1, keepdim=True)
    l[l == 0] = 1.0
    return (E / l) @ V
