# kind: right
# what: no m and l kept at all: each block gives an output and a logsumexp of its own, and those are merged by logaddexp
# shows: N by B_c scores at most; a row that sees nothing of a block has -inf there and is left as it was; key 0 is in block 0, so L is finite
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


def _block(Q, K_j, V_j, start, scale):
    """(O_j, L_j) of one key block, rows that see none of it: 0 and -inf."""
    S = scale * (Q @ K_j.T)
    late = torch.arange(start, start + len(K_j)) > torch.arange(len(Q)).unsqueeze(1)
    S = S.masked_fill(late, -inf)
    top = S.max(dim=1, keepdim=True).values
    top = top.masked_fill(top == -inf, 0)
    P = torch.exp(S - top)
    l = P.sum(dim=1, keepdim=True)
    return P @ V_j / l.clamp(min=1), top + torch.log(l)


def attention(Q, K, V, B_c, scale):
    """Causal attention and the natural-log logsumexp of each row: (O, L)."""
    O, L = _block(Q, K[:B_c], V[:B_c], 0, scale)
    for start in range(B_c, K.shape[0], B_c):
        O_j, L_j = _block(Q, K[start:start + B_c], V[start:start + B_c], start, scale)
        L_new = torch.logaddexp(L, L_j)
        O = torch.exp(L - L_new) * O + torch.exp(L_j - L_new) * O_j
        L = L_new
    return O, L.squeeze(1)
