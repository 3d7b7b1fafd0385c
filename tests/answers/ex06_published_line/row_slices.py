# kind: right
# what: only the rows from j on take part in block j (the others see nothing there)
"""ex06_published_line: my answer."""

import torch

inf = float("inf")


def attention(Q, K, V, B_c, scale):
    """Causal attention and the natural-log logsumexp of each row: (O, L)."""
    N, dt = len(Q), Q.dtype
    O, l, m = Q.new_zeros(N, V.shape[1]), Q.new_zeros(N, 1), Q.new_full((N, 1), -inf)
    for j in range(0, N, B_c):
        k = K[j:j + B_c]
        s = Q[j:] @ k.T * scale
        s = s + torch.full(s.shape, -inf, dtype=dt).triu(1)
        top = torch.maximum(m[j:], s.amax(1, True))
        a, p = (m[j:] - top).exp(), (s - top).exp()
        l[j:] = a * l[j:] + p.sum(1, True)
        O[j:] = a * O[j:] + p @ V[j:j + B_c]
        m[j:] = top
    return O / l, (m + l.log())[:, 0]
