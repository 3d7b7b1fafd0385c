"""ex05_fa1_inner_loop · the inner step of FlashAttention-1

Chapter 05 · difficulty 4 of 5 · 35 minutes

FA1 keeps a key block on chip while the query blocks pass by. For each of them it loads O_i, l_i and m_i, adds the key
block, and stores them again. Write the part in the middle.

    Q_i (B_r, d)   K_j (B_c, d)   V_j (B_c, d_v)   O_i (B_r, d_v)   l_i, m_i (B_r,)   ->   O_i, l_i, m_i, new ones

For the keys that were added so far and are not hidden, the state means:

    m_i    the largest score of each row. Scores are Q_i Kᵀ · scale; -inf if the row saw no key yet
    l_i    the sum of exp(score − m_i) of each row, 0 if it saw no key yet
    O_i    the finished attention, already divided by l_i; 0 if the row saw no key yet

hidden is True where a query must not see a key; None means that nothing is hidden.

Dropout acts on the finished weights: where keep is False they become 0, and the others are divided by 1 − dropout_p.
l_i is the sum without dropout. Without dropout, keep is None and dropout_p is 0; with it, 0 < dropout_p < 1.

Scores lie between −1000 and 1000; scale is any finite number, 0 and negative ones too. Tensors are float32, and no size
is 0.

Not allowed: changing the inputs, the finished function from flashlab or solutions/.

Hint: undo the last division, add the new keys, divide again. In units of which maximum is each of the sums?
"""

import torch

inf = float("inf")


def fa1_step(Q_i, K_j, V_j, O_i, l_i, m_i, scale, hidden=None, keep=None, dropout_p=0.0):
    """Adds key block j to query block i. hidden and keep are (B_r, B_c) masks or None. Changes no input."""
    # >>> your turn: the whole step; return the new O_i, l_i and m_i
    S_ij = Q_i @ K_j.T * scale                                      # (B_r, B_c)
    if hidden is not None:
        S_ij = S_ij.masked_fill(hidden, -inf)
    m_new = torch.maximum(m_i, S_ij.amax(-1))                       # (B_r,)
    m_safe = m_new.masked_fill(m_new == -inf, 0)                  # (B_r,)  no visible key yet: -inf − -inf would be NaN
    alpha = torch.exp(m_i - m_safe)                                 # (B_r,)
    P_ij = torch.exp(S_ij - m_safe[:, None])                        # (B_r, B_c)
    l_new = alpha * l_i + P_ij.sum(-1)                              # (B_r,)
    if keep is not None:
        P_ij = P_ij * keep / (1 - dropout_p)                        # after the sum
    l_safe = l_new.masked_fill(l_new == 0, 1)                       # (B_r,)
    O_i = ((alpha * l_i)[:, None] * O_i + P_ij @ V_j) / l_safe[:, None]
    return O_i, l_new, m_new
    # <<<
