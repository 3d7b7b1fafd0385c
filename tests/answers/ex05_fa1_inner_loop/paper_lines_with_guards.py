# kind: right
# what: Algorithm 2's own way (tile maximum, two corrections alpha and beta) with every -inf guarded, in small helper functions
# shows: unnormalised old sum and tile's sum are both brought to m_new before they are added; unseen rows keep m = -inf, l = 0, O = 0

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
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, the finished function from flashlab or solutions/.

Hint: undo the last division, add the new keys, divide again. In units of which maximum is each of the sums?
"""

import torch

inf = float("inf")


def finite_or_zero(m):
    """A shift that may be subtracted: -inf (nothing seen) becomes 0."""
    return torch.where(torch.isinf(m), torch.zeros_like(m), m)


def tile_statistics(S):
    """m_tilde, P_tilde, l_tilde of one tile, in the tile's own unit."""
    m_tilde = S.max(dim=1).values
    P_tilde = torch.exp(S - finite_or_zero(m_tilde).unsqueeze(1))
    return m_tilde, P_tilde, P_tilde.sum(dim=1)


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Leaves its inputs as they are."""
    S = scale * torch.matmul(Q_i, K_j.transpose(0, 1))
    if hidden is not None:
        S = torch.where(hidden, torch.full_like(S, -inf), S)

    m_tilde, P_tilde, l_tilde = tile_statistics(S)

    m_new = torch.maximum(m_i, m_tilde)
    reference = finite_or_zero(m_new)
    alpha = torch.exp(m_i - reference)            # old unit  -> new unit, 0 if the old state is empty
    beta = torch.exp(m_tilde - reference)         # tile unit -> new unit, 0 if the tile shows nothing
    l_new = alpha * l_i + beta * l_tilde

    # dropout after the sum was taken
    if keep is not None:
        P_tilde = torch.where(keep, P_tilde / (1.0 - dropout_p), torch.zeros_like(P_tilde))

    old = (alpha * l_i).unsqueeze(1) * O_i        # undo the last division
    new = beta.unsqueeze(1) * torch.matmul(P_tilde, V_j)
    divisor = torch.where(l_new > 0, l_new, torch.ones_like(l_new))
    return (old + new) / divisor.unsqueeze(1), l_new, m_new
