# kind: one mistake
# what: the shift of a row is the maximum over ALL keys, hidden ones included, and the mask multiplies the weights by 0 afterwards; the maximum should be over the keys that the query sees, otherwise all its weights can underflow to 0
# shows: causal=True and a hidden score more than about 100 above the visible ones: that row comes out as zeros
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
    N_k = K.shape[0]
    if scale is None:
        scale = 1 / d**0.5

    S = (Q @ K.T) * scale
    # the softmax does not depend on the shift, so take it now
    W = torch.exp(S - S.amax(dim=1, keepdim=True))
    if causal:
        visible = torch.ones(N_q, N_k, device=Q.device).tril(N_k - N_q)
        W = W * visible
    Z = W.sum(dim=1, keepdim=True)
    P = torch.where(Z > 0, W / Z, torch.zeros_like(W))
    return P @ V
