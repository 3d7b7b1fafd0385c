"""ex01_attention · attention, causal or not

Chapter 01 · difficulty 2 of 5 · 20 minutes

Write the three lines of attention for one head, with a scale and a causal mask.

    Q (N_q, d)   K (N_k, d)   V (N_k, d_v)   ->   O (N_q, d_v)

    S = Q Kᵀ · scale        P = softmax(S), each row        O = P V

With causal=True a query sees no key after its own. The last query lines up with the last key, also where N_q ≠ N_k:
query i sees the keys j ≤ i + N_k − N_q. A query that sees no key gets a row of zeros. Scores lie between −1000 and
1000. The scale may be any finite number, also 0 or negative. Tensors are float32, and no size is 0.

Not allowed: changing the inputs, a library's attention (F.scaled_dot_product_attention), the finished function from
flashlab or solutions/.

Hint: set hidden scores to -inf before the softmax. torch.ones(...).triu(diagonal) marks everything from a diagonal on.
"""

import torch

inf = float("inf")


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    # >>> your turn: S, its mask if causal, P and O
    N_q, N_k = len(Q), len(K)
    scale = Q.shape[-1] ** -0.5 if scale is None else scale
    S = Q @ K.T * scale                                             # (N_q, N_k)
    if causal:
        hidden = torch.ones(N_q, N_k, dtype=torch.bool).triu(N_k - N_q + 1)
        S = S.masked_fill(hidden, -inf)
    P = torch.softmax(S, dim=-1)                                    # (N_q, N_k)
    P = P.masked_fill((S == -inf).all(-1, keepdim=True), 0)         # no visible key: softmax was 0/0
    return P @ V                                                    # (N_q, d_v)
    # <<<
