# kind: one mistake
# what: line 9 has moved up to line 4, m is renewed before lines 6 and 7 use the old one: exp(m − m_new) is then always 1
# shows: two or more key blocks where a later one raises the maximum
"""ex06_published_line · find the bugs in the published lines

Chapter 06 · difficulty 3 of 5 · 25 minutes

Algorithms get copied by hand, and copies go wrong. Below is causal attention by key blocks, N_q = N_k = N, with mistakes
that stand in widely read texts: one in a paper's first version, the others in notes made from it. Four lines are wrong.
Write the function as it should be.

     1   O = 0, l = 0, m = −∞
         for each key block j = 0, 1, ...
     2       S = Q K_jᵀ · scale
     3       S = −∞ where (query's index) > (key's index)
     4       m_new = max(m, rowmax(S))
     5       P = exp(S − m_new)
     6       l = l + exp(m − m_new) + rowsum(P)
     7       O = diag(exp(m − m_new))⁻¹ · O + P V_j
     8       O = diag(l)⁻¹ · O
     9       m = m_new
    10   O = diag(l)⁻¹ · O
    11   L = m + log l

    Q (N, d)   K (N, d)   V (N, d_v)   ->   O (N, d_v), L (N,)
Scores lie between −1000 and 1000; scale is any number.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, the N by N scores at once, a library's attention (F.scaled_dot_product_attention), the
finished function from flashlab or solutions/.

Hint: take N = 1 and B_c = 1 and go through the lines with numbers. Then two key blocks, where the second one has the larger score.
"""

import torch

inf = float("inf")


def attention(Q, K, V, B_c, scale):
    """Causal attention and the natural-log logsumexp of each row: (O, L)."""
    N, d_v = V.shape
    O = torch.zeros(N, d_v)
    l = torch.zeros(N)
    m = torch.full((N,), -inf)
    i = torch.arange(N)

    for start in range(0, N, B_c):
        stop = min(N, start + B_c)
        S = Q @ K[start:stop].T * scale
        S = torch.where(i[:, None] >= i[None, start:stop], S, -inf)
        m_new = torch.maximum(m, S.amax(dim=1))
        m = m_new
        P = torch.exp(S - m[:, None])
        l = torch.exp(m - m_new) * l + P.sum(dim=1)
        O = torch.exp(m - m_new)[:, None] * O + P @ V[start:stop]

    O = O / l[:, None]
    L = m + torch.log(l)
    return O, L
