# kind: right
# what: softmax written out (maximum, exponentials, sum), in place on its own S; hidden keys found by comparing numbers
# shows: mask after the scale, bottom-right; an empty row is shifted by 0, has l = 0 and is divided by 1, so it stays zero
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
    n_q, d = Q.shape
    n_k = K.shape[0]
    if scale is None:
        scale = 1.0 / d ** 0.5

    S = torch.matmul(Q, K.transpose(0, 1))
    S *= scale

    if causal:
        i = torch.arange(n_q, device=S.device).unsqueeze(1)
        j = torch.arange(n_k, device=S.device).unsqueeze(0)
        S[j - (n_k - n_q) > i] = -inf

    m = S.max(dim=1, keepdim=True).values
    m[m == -inf] = 0                       # nothing to see: any finite shift will do
    S -= m
    S.exp_()
    l = S.sum(dim=1, keepdim=True)
    l[l == 0] = 1
    return torch.matmul(S, V) / l
