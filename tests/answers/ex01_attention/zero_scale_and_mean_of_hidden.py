# kind: two mistakes
# what: `scale or` takes 1/√d for scale = 0 too (should ask `is None`); and hidden scores are -1e4, so a query that sees no key
#       gets the plain average of all values instead of zeros
# shows: scale = 0 with keys that differ; causal with N_q > N_k

"""ex01_attention · attention, causal or not

Chapter 01 · difficulty 2 of 5 · 20 minutes

The three lines of attention for one head, with a scale and a causal mask.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)

    S = Q Kᵀ · scale        P = softmax(S), each row        O = P V

With causal=True a query sees no key after its own. Where N_q ≠ N_k the last query is lined up with the last key: query i
sees the keys j ≤ i + N_k − N_q. A query that sees no key at all gets a row of zeros.
Scores lie between −1000 and 1000; scale is any number, 0 and negative ones too.
Tensors are float32 or float64, all of them alike, and no size is 0.

Not allowed: changing the inputs, a library's attention (F.scaled_dot_product_attention), the finished function from
flashlab or solutions/.

Hint: set hidden scores to -inf before the softmax. torch.ones(...).triu(diagonal) marks everything from a diagonal on.
"""
import torch


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    scale = scale or 1 / Q.shape[-1] ** 0.5
    S = scale * (Q @ K.T)
    if causal:
        mask = torch.ones(S.shape, dtype=torch.bool).tril(S.shape[1] - S.shape[0])
        S = S.where(mask, torch.full_like(S, -1e4))
    return torch.softmax(S, dim=1) @ V
