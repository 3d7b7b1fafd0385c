# kind: two mistakes
# what: (1) d of the default scale is taken from V's columns, not Q's; (2) hidden weights are zeroed after the softmax and the rows never made to sum to 1 again
# shows: (1) d != d_v and scale None, causal or not; (2) causal=True with at least one hidden key, any scale

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
    N_q = Q.size(0)
    N_k, d = V.size()
    if scale is None:
        scale = d ** -0.5
    P = torch.softmax(Q @ K.T * scale, dim=-1)
    if causal:
        P = P.tril(N_k - N_q)
    return P @ V
