# kind: right
# what: index arithmetic for the mask, softmax, rows without a key set to zero by where
# shows: scale is compared with None, the mask is lined up at the last key, rows without keys are zeros, inputs untouched
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
    n_q, d = Q.shape
    n_k, _ = K.shape
    scale = d**-0.5 if scale is None else scale

    logits = torch.einsum("qd,kd->qk", Q, K) * scale
    if not causal:
        return logits.softmax(-1) @ V

    q_pos = torch.arange(n_q)[:, None] + (n_k - n_q)        # where the query sits on the keys' axis
    k_pos = torch.arange(n_k)[None, :]
    visible = k_pos <= q_pos
    logits = torch.where(visible, logits, -inf)
    weights = torch.softmax(logits, dim=-1)
    weights = torch.where(visible, weights, 0.0)            # also clears the NaN of rows that see nothing
    return weights @ V
