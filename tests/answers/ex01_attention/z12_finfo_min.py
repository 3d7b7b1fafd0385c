# kind: one mistake
# what: hidden scores get finfo.min in place of -inf and nobody zeroes the blind rows, so they become the mean of V; they should be zeros
# shows: causal with N_q > N_k: the first N_q - N_k queries
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


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    if scale is None:
        scale = K.shape[-1] ** -0.5
    scores = torch.matmul(Q, K.transpose(-1, -2)) * scale
    if causal:
        q_len, k_len = scores.shape
        mask = torch.ones(q_len, k_len, dtype=torch.bool, device=Q.device).tril(diagonal=k_len - q_len)
        # finfo.min rather than -inf: no NaNs
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    probs = torch.softmax(scores, dim=-1)
    return torch.matmul(probs, V)
