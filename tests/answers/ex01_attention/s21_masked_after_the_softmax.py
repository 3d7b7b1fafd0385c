# kind: one mistake
# what: softmax over all keys first, then hidden weights to 0 and rows divided by what is left; hidden keys must go before the softmax
# shows: causal, with a hidden score more than about 100 above the visible ones: the visible weights have underflowed and the row is lost
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
    N_k = len(K)
    if scale is None:
        scale = d ** -0.5
    S = Q @ K.T * scale
    P = torch.softmax(S, dim=-1)
    if causal:
        seen = torch.ones(N_q, N_k, dtype=torch.bool, device=Q.device).tril(N_k - N_q)
        P = P * seen
        left = P.sum(dim=-1, keepdim=True)
        P = torch.where(left > 0, P / left, torch.zeros_like(P))      # a query without keys: zeros
    return P @ V
