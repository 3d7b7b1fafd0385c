# kind: one mistake
# what: keeps O normalised in each step as in FA1 (line 8 stays, line 10 goes), but line 7 undoes the old division with l after line 6 has overwritten it; it should be the l of before
# shows: two or more key blocks: old outputs weigh too much; one block (B_c >= N) is right

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
    n = torch.arange(len(Q))
    O, l, m = torch.zeros(len(Q), V.shape[1]), torch.zeros(len(Q)), torch.full((len(Q),), -inf)
    for j in range(0, len(K), B_c):
        S = (scale * Q @ K[j:j + B_c].T).masked_fill(n[:, None] < n[j:j + B_c], -inf)
        m_new = torch.maximum(m, S.amax(1))
        a = torch.exp(m - m_new)
        P = torch.exp(S - m_new[:, None])
        l = l * a + P.sum(1)
        O = (a * l)[:, None] * O + P @ V[j:j + B_c]        # undo the division of the step before, in units of m_new
        O = O / l[:, None]
        m = m_new
    return O, m + torch.log(l)
