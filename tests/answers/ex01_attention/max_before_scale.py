# kind: one mistake
# what: the shift is the maximum of Q Kᵀ before the scale; with a negative scale that is the smallest score and exp overflows
#       (it should be the maximum of scale · Q Kᵀ)
# shows: a negative scale with scores that spread by more than 89 (float32) or 710 (float64): inf / inf

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

inf = float("inf")


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    if scale is None:
        scale = Q.shape[1] ** -0.5
    S = Q @ K.T
    hidden = torch.zeros_like(S, dtype=torch.bool)
    if causal:
        hidden = torch.ones_like(S).triu(len(K) - len(Q) + 1).bool()
    m = S.masked_fill(hidden, -inf).amax(dim=1, keepdim=True)
    m = m.masked_fill(m == -inf, 0)
    E = torch.exp(scale * (S - m)).masked_fill(hidden, 0)
    l = E.sum(dim=1, keepdim=True)
    P = E / l.masked_fill(l == 0, 1)
    return P @ V
