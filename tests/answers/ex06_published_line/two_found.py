# kind: two mistakes
# what: only lines 3 and 8 are repaired: (1) line 6 still adds exp(m − m_new) instead of multiplying l by it; (2) line 7 still has the inverse
# shows: (1) and (2) two or more key blocks; (1) also where the maximum does not change
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
    N = Q.shape[0]
    O = torch.zeros(N, V.shape[1])
    l = torch.zeros(N, 1)
    m = torch.full((N, 1), -inf)
    rows = torch.arange(N).view(N, 1)
    for j in range(0, N, B_c):
        cols = torch.arange(j, min(j + B_c, N)).view(1, -1)
        S = Q @ K[j:j + B_c].T * scale
        S = S.masked_fill(rows < cols, -inf)
        m_new = torch.maximum(m, S.amax(dim=1, keepdim=True))
        P = torch.exp(S - m_new)
        l = l + torch.exp(m - m_new) + P.sum(dim=1, keepdim=True)
        if j == 0:
            O = P @ V[:B_c]                                # exp(m - m_new) is 0 here, its inverse would be inf
        else:
            O = O / torch.exp(m - m_new) + P @ V[j:j + B_c]
        m = m_new
    O = O / l
    return O, (m + torch.log(l)).view(N)
