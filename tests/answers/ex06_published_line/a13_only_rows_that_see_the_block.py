# kind: right
# what: each key block updates, in place, only the rows from its first key on: views of own buffers, no row above the block is touched; mask by triu on the block's square
# shows: never more than (N - start, B_c) scores, B_c above N and a short last block work, every row sees key 0 in the first block so nothing is -inf - -inf
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
    N = Q.size(0)
    O = Q.new_zeros(N, V.size(1))
    l = Q.new_zeros(N, 1)
    m = Q.new_full((N, 1), -inf)

    for start in range(0, N, B_c):
        stop = min(start + B_c, N)
        O_s, l_s, m_s = O[start:], l[start:], m[start:]      # views: earlier queries see none of these keys

        S = Q[start:] @ K[start:stop].T
        S *= scale
        S += torch.full_like(S, -inf).triu(diagonal=1)       # row r of the view is query start + r

        top = torch.maximum(m_s, S.amax(dim=1, keepdim=True))
        S -= top
        P = S.exp_()
        m_s -= top
        alpha = m_s.exp()

        l_s *= alpha
        l_s += P.sum(dim=1, keepdim=True)
        O_s *= alpha
        O_s += P @ V[start:stop]
        m_s.copy_(top)

    O /= l
    return O, (m + l.log()).flatten()
