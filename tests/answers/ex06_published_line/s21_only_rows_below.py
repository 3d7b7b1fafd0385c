# kind: right
# what: the repaired lines, but each key block touches only the queries from its first key on, in place on views of own buffers
# shows: at most N by B_c scores at a time, last key block may be short, B_c > N allowed; every query sees key 0, so m is finite after block 0
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
    N = Q.shape[0]
    O = torch.zeros(N, V.shape[1])
    l = torch.zeros(N)
    m = torch.full((N,), -inf)
    for a in range(0, N, B_c):
        b = min(a + B_c, N)
        # queries before a see nothing of this block: leave them alone
        o_, l_, m_ = O[a:], l[a:], m[a:]
        S = Q[a:] @ K[a:b].T * scale
        n_here = b - a
        S[:n_here].masked_fill_(torch.ones(n_here, n_here, dtype=torch.bool).triu(1), -inf)
        m_new = torch.maximum(m_, S.amax(1))
        old = torch.exp(m_ - m_new)
        P = torch.exp(S - m_new[:, None])
        l_.mul_(old).add_(P.sum(1))
        o_.mul_(old[:, None]).add_(P @ V[a:b])
        m_.copy_(m_new)
    return O / l[:, None], m + torch.log(l)
