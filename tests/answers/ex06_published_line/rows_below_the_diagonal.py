# kind: right
# what: key block by key block, but only the rows from the block's first key on are touched; the state is updated in place
# shows: right for every N, B_c, scale: rows above a block see none of its keys, so their O, l, m do not change
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
    N, d_v = Q.shape[0], V.shape[1]
    O = torch.zeros(N, d_v, dtype=Q.dtype)
    l = torch.zeros(N, dtype=Q.dtype)
    m = torch.full((N,), -inf, dtype=Q.dtype)

    for start in range(0, N, B_c):
        stop = min(start + B_c, N)

        # query n sees key n and all before, so queries before `start` have nothing to do with this block
        S = Q[start:] @ K[start:stop].T
        S *= scale
        query = torch.arange(start, N).unsqueeze(1)
        key = torch.arange(start, stop).unsqueeze(0)
        S[key > query] = -inf

        O_b, l_b, m_b = O[start:], l[start:], m[start:]          # views: what is done to them is done to O, l, m
        m_new = torch.maximum(m_b, S.max(dim=1).values)
        factor = torch.exp(m_b - m_new)
        P = torch.exp(S - m_new.unsqueeze(1))
        l_b.mul_(factor).add_(P.sum(dim=1))
        O_b.mul_(factor.unsqueeze(1)).add_(P @ V[start:stop])
        m_b.copy_(m_new)

    O /= l.unsqueeze(1)
    return O, m + l.log()
