# kind: two mistakes
# what: of lines 8 and 10 the last one was struck out, so O is divided by l in each step (line 8 should go); and line 6 adds rowsum(P) to an l that is not corrected by exp(m - m_new)
# shows: two key blocks or more: the first in O wherever block 0 is not all a query sees, the second in L (and O) where a later block raises the maximum
"""ex06_published_line · find the bugs in the published lines

Chapter 06 · difficulty 3 of 5 · 25 minutes

Algorithms get copied by hand, and copies go wrong. Below is causal attention by key blocks, N_q = N_k = N, with mistakes
that stand in widely read texts: one in a paper's first version, the others in notes made from it. Four lines are wrong.
Write the function as it should be: these lines repaired, or lines of your own that give the same O and L block by block.

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
Scores lie between −1000 and 1000; scale is any finite number.
Tensors are float32, which is exact enough for the sums too, and no size is 0.

Not allowed: changing the inputs, the N by N scores at once (unless B_c is N or more), a library's attention
(F.scaled_dot_product_attention), the finished function from flashlab or solutions/.

Hint: take N = 1 and B_c = 1 and go through the lines with numbers. Then two key blocks, where the second one has the larger score.
"""

import torch

inf = float("inf")


def attention(Q, K, V, B_c, scale):
    """Causal attention and the natural-log logsumexp of each row: (O, L)."""
    N, d_v = V.shape
    O, l, m = torch.zeros(N, d_v), torch.zeros(N), torch.full((N,), -inf)
    n = torch.arange(N)
    for start in range(0, N, B_c):
        K_j, V_j, k = K[start:start + B_c], V[start:start + B_c], n[start:start + B_c]
        S = (Q @ K_j.T) * scale                                     # line 2
        S = S.masked_fill(n[:, None] < k[None, :], -inf)            # line 3, repaired: the key comes after the query
        m_new = torch.maximum(m, S.amax(-1))                        # line 4
        P = torch.exp(S - m_new[:, None])                           # line 5
        l = l + P.sum(-1)                                           # line 6, repaired: exp(m - m_new) is no part of a sum of weights
        O = torch.exp(m - m_new)[:, None] * O + P @ V_j             # line 7, repaired: no inverse
        O = O / l[:, None]                                          # line 8
        m = m_new                                                   # line 9
    # line 10 divided a second time
    L = m + torch.log(l)                                            # line 11
    return O, L
