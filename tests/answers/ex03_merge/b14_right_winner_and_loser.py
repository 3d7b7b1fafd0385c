# kind: right
# what: sorts the two halves of each row into the one with the larger maximum and the other; only the other is scaled, by exp of the distance
# shows: factor is exp(-inf) = 0 where one half is empty; where both are, -inf - -inf is NaN and is replaced by 0
"""ex03_merge · merging two half-finished softmaxes

Chapter 03 · difficulty 3 of 5 · 15 minutes

Two programs have each attended to half of the keys. A softmax state is (O, m, l): m the largest score seen, l the sum of
exp(score − m), O the sum of exp(score − m) · value, not yet divided by l. Make one state of two.

    state_a, state_b: O (N_q, d_v), m (N_q,), l (N_q,)   ->   O, m, l of the same shapes

The result is the state that one program would have had after all the keys.

A query that saw no key of a half has O = 0, l = 0, m = -inf there. That half changes nothing for it; two of them make
another such state.
Scores lie between −1000 and 1000.
Tensors are float32, and no size is 0.

Not allowed: changing the inputs, the finished function from flashlab or solutions/.

Hint: l_a counts in units of exp(m_a). What turns it into units of exp(m)?
"""

import torch

inf = float("inf")


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O_a, m_a, l_a = state_a
    O_b, m_b, l_b = state_b

    a_wins = m_a >= m_b
    top, low = torch.where(a_wins, m_a, m_b), torch.where(a_wins, m_b, m_a)
    fade = torch.exp(low - top)
    fade[top == -inf] = 0.0                    # both empty

    l = torch.where(a_wins, l_a, l_b) + fade * torch.where(a_wins, l_b, l_a)
    a_wins, fade = a_wins[:, None], fade[:, None]
    O = torch.where(a_wins, O_a, O_b) + fade * torch.where(a_wins, O_b, O_a)
    return O, top, l
