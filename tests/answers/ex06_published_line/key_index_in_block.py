# kind: one mistake
# what: the key's index is counted from the start of the block (0 ... B_c - 1), not from key 0; it should be j * B_c + that
# shows: two key blocks or more: early queries see keys of later blocks
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

Not allowed: changing the inputs, the N by N scores at once, a library's attention (F.scaled_dot_product_attention), the
finished function from flashlab or solutions/.

Hint: take N = 1 and B_c = 1 and go through the lines with numbers. Then two key blocks, where the second one has the larger score.
"""

import math

import torch

inf = float("inf")


def attention(Q, K, V, B_c, scale):
    """Causal attention and the natural-log logsumexp of each row: (O, L)."""
    N, d = Q.shape
    O = torch.zeros((N, V.shape[1]), dtype=Q.dtype)
    l = torch.zeros((N, 1), dtype=Q.dtype)
    m = torch.full((N, 1), -inf, dtype=Q.dtype)

    for j in range(math.ceil(N / B_c)):
        Kj = K[j * B_c:(j + 1) * B_c]
        Vj = V[j * B_c:(j + 1) * B_c]
        S = scale * (Q @ Kj.T)
        mask = torch.arange(N).reshape(-1, 1) < torch.arange(Kj.shape[0]).reshape(1, -1)   # line 3: query before key
        S[mask] = -inf
        m_new = torch.maximum(m, S.max(dim=1, keepdim=True)[0])
        P = torch.exp(S - m_new)
        alpha = torch.exp(m - m_new)
        l = alpha * l + P.sum(dim=1, keepdim=True)     # line 6: times, not plus
        O = alpha * O + P @ Vj                         # line 7: no inverse
        m = m_new                                      # line 8 is gone

    return O / l, (m + torch.log(l)).squeeze(1)
