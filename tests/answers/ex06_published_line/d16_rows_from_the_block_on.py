# kind: right
# what: for each key block only the queries from its first key on are touched, in place on own buffers; all rows there see at least one key, so nothing is ever -inf minus -inf
# shows: same O and L block by block; at most N x B_c scores at once; L is the natural-log logsumexp
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
    num = Q.new_zeros(N, V.shape[1])      # numerator, in units of exp(m)
    den = Q.new_zeros(N, 1)
    m = Q.new_full((N, 1), -inf)

    for start in range(0, N, B_c):
        k, v = K[start : start + B_c], V[start : start + B_c]
        live = slice(start, N)            # earlier queries see none of these keys

        s = (Q[live] @ k.T).mul_(scale)                                        # (N - start, <= B_c)
        upper = torch.ones_like(s, dtype=torch.bool).triu(1)                   # local: both begin at `start`
        s.masked_fill_(upper, -inf)

        new = torch.maximum(m[live], s.amax(1, keepdim=True))
        shrink = (m[live] - new).exp_()
        p = s.sub_(new).exp_()

        den[live] = den[live] * shrink + p.sum(1, keepdim=True)
        num[live] = num[live] * shrink + p @ v
        m[live] = new

    return num / den, (m + den.log()).squeeze(1)
