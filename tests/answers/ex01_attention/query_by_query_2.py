# kind: right
# what: a plain loop over the queries; each one takes just the keys it may see and does its own softmax with max, exp and sum
# shows: scale None / 0 / negative, N_q != N_k, queries without a key (zeros) and scores to 1000 in size are all taken care of
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
    N_k, d_v = V.shape
    if scale is None:
        scale = d ** -0.5

    O = torch.zeros((N_q, d_v), dtype=Q.dtype)
    for i in range(N_q):
        # number of keys that query i sees
        n = N_k
        if causal:
            n = i + N_k - N_q + 1
        if n <= 0:
            continue                        # sees nothing: stays zero

        s = scale * (K[:n] @ Q[i])          # (n,)
        w = torch.exp(s - s.max())
        w = w / w.sum()
        O[i] = w @ V[:n]
    return O
