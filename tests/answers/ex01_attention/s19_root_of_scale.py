# kind: one mistake
# what: the scale is shared out evenly, Q and K get √scale each; that root does not exist for a negative scale (multiply the scores by scale)
# shows: any scale < 0: math.sqrt raises ValueError; scale None, 0 and positive are right

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
    if scale is None:
        scale = 1 / math.sqrt(Q.shape[-1])
    half = math.sqrt(scale)                     # smaller numbers on both sides of the product
    S = (Q * half) @ (K * half).T
    if causal:
        shift = K.shape[0] - Q.shape[0]
        hidden = torch.ones(S.shape, dtype=torch.bool).triu(shift + 1)
        S = S.masked_fill(hidden, -inf)
    P = torch.softmax(S, dim=-1)
    P = torch.nan_to_num(P, nan=0.0)            # rows without any key
    return P @ V
