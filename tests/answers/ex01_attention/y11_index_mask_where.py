# kind: right
# what: einsum, a mask from two aranges, softmax by hand whose empty rows are divided by 1
# shows: j <= i + N_k - N_q after the scale, the maximum of an empty row is replaced by 0, so it gives 0 / 1
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
    n_q, n_k = len(Q), len(K)
    if scale is None:
        scale = Q.shape[1] ** -0.5

    S = torch.einsum("id,jd->ij", Q, K) * scale
    if causal:
        i = torch.arange(n_q)[:, None]
        j = torch.arange(n_k)[None, :]
        S = torch.where(j <= i + n_k - n_q, S, -inf)

    m = S.amax(dim=1, keepdim=True)
    m = torch.where(m == -inf, 0.0, m)
    E = torch.exp(S - m)
    l = E.sum(dim=1, keepdim=True)
    l = torch.where(l == 0, 1.0, l)
    return torch.einsum("ij,je->ie", E / l, V)
