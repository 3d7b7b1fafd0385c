# kind: right
# what: no mask at all: one query after the other, and of the keys only the prefix that it sees
# shows: the prefix has i + N_k - N_q + 1 keys, an empty one leaves the row at zero; scale may be 0 or negative; inputs are only read

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

import math

import torch


def attention(Q, K, V, *, causal=False, scale=None):
    """softmax(scale · Q Kᵀ) V. scale is 1/√d where it is None."""
    N_q, d = Q.shape
    N_k, d_v = V.shape
    if scale is None:
        scale = 1 / math.sqrt(d)
    O = torch.zeros(N_q, d_v)
    for i in range(N_q):
        n = N_k
        if causal:
            n = i + 1 + N_k - N_q              # keys 0 ... i + N_k - N_q
        if n < 1:
            continue                           # sees nothing, stays zero
        s = torch.mv(K[:n], Q[i]) * scale
        w = torch.exp(s - torch.max(s))
        O[i] = torch.mv(V[:n].T, w) / w.sum()
    return O
