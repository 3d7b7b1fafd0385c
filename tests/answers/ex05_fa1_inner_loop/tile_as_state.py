# kind: right
# what: the tile is made a state of its own (maximum, sum, weighted values), then two states are put together; NaN-free by a finite stand-in for -inf
# shows: hidden rows, first step, keep with dropout_p, negative scale, float32 and float64; inputs are only read

"""ex05_fa1_inner_loop · the inner step of FlashAttention-1

Chapter 05 · difficulty 4 of 5 · 35 minutes

FA1 keeps a key block on chip and lets the query blocks pass. Each step takes O_i, l_i, m_i from HBM, adds one key block and
puts them back. O_i is normalised at all times: it is the attention over the keys seen so far.

    Q_i (B_r, d)   K_j (B_c, d)   V_j (B_c, d_v)   O_i (B_r, d_v)   l_i, m_i (B_r,)   ->   O_i, l_i, m_i, new ones

m_i is the largest score of each row so far, l_i the sum of exp(score − m_i); the softmax is that of Q_i Kᵀ · scale over the
keys that are not hidden. A row may have no visible key yet (m_i = -inf, l_i = 0): its O_i stays 0.
hidden is True where a query must not see a key; None means that nothing is hidden.
Dropout acts on the finished weights: those where keep is False become 0, the others are divided by 1 − dropout_p. l_i is the
sum without dropout. keep is None where nothing is dropped, and dropout_p is then 0.
Scores lie between −1000 and 1000; scale is any number, 0 and negative ones too.
Tensors are float32 or float64, all of them alike, and no size is 0.

Not allowed: changing the inputs, the finished function from flashlab or solutions/.

Hint: undo the last division, add the new keys, divide again. In units of which maximum is each of the sums?
"""

import torch

inf = float("inf")


def finite(m):
    """m, with 0 where there is no maximum yet: exp(-inf - 0) is the 0 we want."""
    return torch.where(m == -inf, torch.zeros_like(m), m)


def state_of_tile(Q_i, K_j, V_j, scale, hidden, keep, dropout_p):
    S = scale * torch.einsum("rd,cd->rc", Q_i, K_j)
    if hidden is not None:
        S = torch.where(hidden, torch.full_like(S, -inf), S)
    m = S.max(dim=1).values
    E = torch.exp(S - finite(m).unsqueeze(1))
    l = E.sum(dim=1)
    if keep is not None:
        E = torch.where(keep, E / (1 - dropout_p), torch.zeros_like(E))
    return E @ V_j, l, m


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""
    U_t, l_t, m_t = state_of_tile(Q_i, K_j, V_j, scale, hidden, keep, dropout_p)
    m = torch.maximum(m_i, m_t)
    old = torch.exp(m_i - finite(m))
    new = torch.exp(m_t - finite(m))
    l = old * l_i + new * l_t
    U = (old * l_i).unsqueeze(1) * O_i + new.unsqueeze(1) * U_t
    O = torch.where((l > 0).unsqueeze(1), U / torch.where(l > 0, l, torch.ones_like(l)).unsqueeze(1), torch.zeros_like(U))
    return O, l, m
