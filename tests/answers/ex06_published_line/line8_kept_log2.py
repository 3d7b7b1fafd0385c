# kind: two mistakes
# what: (1) line 8, the division by l inside the loop, is still there: only line 10 may divide; (2) L uses log2 l where the natural log is asked
# shows: (1) O with two key blocks or more, and with one block already, where l != 1; (2) L of every row with l != 1 (not row 0)
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

import torch

inf = float("inf")


def attention(Q, K, V, B_c, scale):
    """Causal attention and the natural-log logsumexp of each row: (O, L)."""
    N = len(Q)
    O = torch.zeros(N, V.shape[1], dtype=V.dtype)
    l = torch.zeros(N, dtype=V.dtype)
    m = torch.full([N], -inf, dtype=V.dtype)
    for start in range(0, N, B_c):
        block = slice(start, min(N, start + B_c))
        S = Q @ K[block].T * scale                                               # 2
        q = torch.arange(N)[:, None]
        k = torch.arange(block.start, block.stop)[None, :]
        S = torch.where(q < k, torch.tensor(-inf, dtype=S.dtype), S)             # 3, the other way round
        m_new = torch.max(m, S.max(-1).values)                                   # 4
        P = torch.exp(S - m_new[:, None])                                        # 5
        l = l * torch.exp(m - m_new) + P.sum(-1)                                 # 6, times
        O = torch.diag(torch.exp(m - m_new)) @ O + P @ V[block]                  # 7, no inverse
        O = O / l[:, None]                                                       # 8
        m = m_new                                                                # 9
    O = O / l[:, None]                                                           # 10
    L = m + torch.log2(l)                                                        # 11
    return O, L
