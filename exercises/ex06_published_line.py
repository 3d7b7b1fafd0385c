"""ex06_published_line · find the bugs in the published lines

Chapter 06 · difficulty 3 of 5 · 25 minutes

Algorithms get copied by hand, and copies go wrong. Below is causal attention by key blocks, N_q = N_k = N. Four of the
lines are wrong, as they were printed: one in the first version of a paper, the others in notes made from it. Write the
function as it should be. Repair these lines, or write lines of your own that give the same O and L block by block.

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

Hint: go through the lines with numbers. Take N = 1 and B_c = 1 first. Then take two key blocks, where the second one
has the larger score.
"""

import torch

inf = float("inf")


def attention(Q, K, V, B_c, scale):
    """Causal attention and the natural-log logsumexp of each row: (O, L)."""
    # your turn: the eleven lines, four of them repaired
    raise NotImplementedError("ex06_published_line: the eleven lines, four of them repaired")
