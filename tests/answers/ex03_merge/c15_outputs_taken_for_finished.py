# kind: one mistake
# what: O_a and O_b are taken for finished outputs: weighted with l_a and l_b and divided by l; they are not divided yet, so O is alpha O_a + beta O_b
# shows: O of every row for which both halves saw keys (rows with one empty half are right, and so are m and l everywhere)
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

    m = torch.maximum(m_a, m_b)
    m_safe = torch.where(m == -inf, torch.zeros_like(m), m)
    weight_a = l_a * torch.exp(m_a - m_safe)
    weight_b = l_b * torch.exp(m_b - m_safe)
    l = weight_a + weight_b

    # weighted mean of the two outputs
    l_safe = torch.where(l == 0, torch.ones_like(l), l)
    O = (weight_a[:, None] * O_a + weight_b[:, None] * O_b) / l_safe[:, None]
    return O, m, l
