# kind: two mistakes
# what: (1) `scale or 1/√d` takes 1/√d for scale 0, too; only None should. (2) hides with -1e9 instead of -inf and does nothing for rows without a key, which become the average of all values instead of zeros
# shows: (1) scale=0 without causal; (2) causal with N_q > N_k
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

import torch

inf = float("inf")


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    scale = scale or Q.shape[1] ** -0.5
    S = Q @ K.T * scale
    if causal:
        N_q, N_k = S.shape
        hidden = torch.ones(N_q, N_k).triu(N_k - N_q + 1).bool()
        S = S.masked_fill(hidden, -1e9)
    S = S - S.amax(dim=1, keepdim=True)
    P = S.exp()
    P = P / P.sum(dim=1, keepdim=True)
    return P @ V
