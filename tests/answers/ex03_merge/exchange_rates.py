# kind: right
# what: a helper gives the exchange rate exp(m_half - m), and 0 where the half saw nothing; each half is converted, then added
# shows: one half empty, both empty (m stays -inf, O and l stay 0), scores 1000 apart, one row; inputs are not changed
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


def rate(m_half, m):
    """What one unit of exp(m_half) is worth in units of exp(m)."""
    seen = m_half > -inf
    gap = torch.where(seen, m_half, torch.zeros_like(m)) - torch.where(seen, m, torch.zeros_like(m))
    return torch.where(seen, torch.exp(gap), torch.zeros_like(gap))


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O_a, m_a, l_a = state_a
    O_b, m_b, l_b = state_b

    m = torch.where(m_a > m_b, m_a, m_b)
    r_a = rate(m_a, m)
    r_b = rate(m_b, m)

    l = r_a * l_a + r_b * l_b
    O = (r_a * O_a.T + r_b * O_b.T).T
    return O, m, l
