# kind: two mistakes
# what: only half a is converted to the new unit, as if b were the new tile of a loop and counted in exp(m) already; and two empty halves give NaN
# shows: the first in every row with m_b < m_a; the second in rows empty in both halves

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


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O, m, l = state_a
    O_new, m_b, l_new = state_b
    m_new = torch.maximum(m, m_b)
    alpha = torch.exp(m - m_new)                        # exp(-inf) = 0: an empty a is forgotten
    l = alpha * l + l_new
    O = alpha[:, None] * O + O_new
    return O, m_new, l
