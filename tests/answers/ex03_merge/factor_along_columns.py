# kind: one mistake
# what: multiplies O (N_q, d_v) by the factors (N_q,) without a new axis, so they run along the columns; each row should have its factor, α[:, None]
# shows: N_q ≠ d_v raises (unless one of them is 1); N_q = d_v gives wrong numbers where the factors differ
"""ex03_merge · merging two half-finished softmaxes

Chapter 03 · difficulty 3 of 5 · 15 minutes

Two programs have each attended to half of the keys. A softmax state is (O, m, l): m the largest score seen, l the sum of
exp(score − m), O the sum of exp(score − m) · value, not yet divided by l. Make one state of two.

    state_a, state_b: O (N_q, d_v), m (N_q,), l (N_q,)   ->   O, m, l of the same shapes

The result is the state that one program would have had after all the keys.

A half that saw no key has O = 0, l = 0, m = -inf. It changes nothing; two of them make another such state.
Scores lie between −1000 and 1000.

Not allowed: changing the inputs, the finished function from flashlab or solutions/.

Hint: l_a counts in units of exp(m_a). What turns it into units of exp(m)?
"""

import torch

inf = float("inf")


def rate(m_old, m_new):
    """exp(m_old - m_new), and 0 where nothing was seen."""
    r = torch.zeros_like(m_old)
    seen = m_old > -inf
    r[seen] = torch.exp(m_old[seen] - m_new[seen])
    return r


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O_a, m_a, l_a = state_a
    O_b, m_b, l_b = state_b
    m = torch.maximum(m_a, m_b)
    alpha, beta = rate(m_a, m), rate(m_b, m)
    return alpha * O_a + beta * O_b, m, alpha * l_a + beta * l_b
