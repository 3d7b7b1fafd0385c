# kind: right
# what: numpy manner: grids of indices and where, softmax by hand, an empty row by dividing by at least 1
# shows: within the contract: bottom-right alignment, rows without keys are 0, scale 0 and negative; a visible row's sum is at least 1
"""ex01_attention · attention, causal or not

Chapter 01 · difficulty 2 of 5 · 20 minutes

The three lines of attention for one head, with a scale and a causal mask.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)

    S = Q Kᵀ · scale        P = softmax(S), each row        O = P V

With causal=True a query sees no key after its own. Where N_q ≠ N_k the last query is lined up with the last key: query i
sees the keys j ≤ i + N_k − N_q. A query that sees no key at all gets a row of zeros.
Scores lie between −1000 and 1000; scale is any number, 0 and negative ones too.
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
    N_k = K.shape[0]
    if scale is None:
        scale = d ** -0.5
    scores = scale * (Q @ K.T)

    if causal:
        query = torch.arange(N_q).reshape(-1, 1)
        key = torch.arange(N_k).reshape(1, -1)
        seen = key <= query + (N_k - N_q)
    else:
        seen = torch.ones((N_q, N_k), dtype=torch.bool)

    largest = torch.where(seen, scores, -inf).max(dim=1, keepdim=True).values
    largest = torch.where(torch.isinf(largest), 0.0, largest)
    weights = torch.where(seen, torch.exp(torch.where(seen, scores - largest, 0.0)), 0.0)
    total = weights.sum(dim=1, keepdim=True)
    return (weights / torch.clamp(total, min=1.0)) @ V
