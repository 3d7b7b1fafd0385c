# kind: right
# what: key and query positions compared by broadcasting, hidden weights multiplied to zero, division by the sum after P V
# shows: shifted by the maximum of the visible scaled scores; a row without keys has only zero weights and its sum is set to 1

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
    n_q, n_k = Q.size(0), K.size(0)
    factor = Q.size(1) ** (-1 / 2) if scale is None else scale

    scores = torch.einsum("qc,kc->qk", Q, K).mul_(factor)          # mine, so in place
    visible = torch.ones(n_q, n_k, dtype=torch.bool)
    if causal:
        pos_q = torch.arange(n_q)[:, None] + (n_k - n_q)           # position of each query among the keys
        pos_k = torch.arange(n_k)[None, :]
        visible = pos_k <= pos_q

    # the maximum over the visible keys only; 0 where there are none
    top = torch.where(visible, scores, -inf).amax(dim=1, keepdim=True)
    top = torch.where(top == -inf, torch.zeros_like(top), top)
    weights = torch.where(visible, (scores - top).exp(), 0.0)
    total = weights.sum(dim=1, keepdim=True)
    total[total == 0] = 1
    return torch.einsum("qk,kv->qv", weights, V) / total
