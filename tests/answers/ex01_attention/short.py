# kind: right
# what: four lines: tril of a boolean matrix, torch.softmax, and nan_to_num for the rows that see no key
# shows: inputs are finite and scores at most 1000, so only an empty row can make NaN; scale 0 is told from None
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
    S = torch.einsum("id,jd->ij", Q, K) * (Q.shape[1] ** -0.5 if scale is None else scale)
    if causal:
        S = torch.where(torch.ones_like(S, dtype=torch.bool).tril(S.shape[1] - S.shape[0]), S, -inf)
    return S.softmax(1).nan_to_num(nan=0.0) @ V
