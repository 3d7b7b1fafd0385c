# kind: one mistake
# what: merges O with the formula for outputs that are divided by l already, (α l_a O_a + β l_b O_b) / l; here O is not divided, so α O_a + β O_b
# shows: two halves that both saw keys (beside an empty half O comes out right)
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


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O_a, m_a, l_a = state_a
    O_b, m_b, l_b = state_b

    m = torch.max(m_a, m_b)
    shift = torch.where(m == -inf, torch.zeros_like(m), m)
    w_a = l_a * torch.exp(m_a - shift)
    w_b = l_b * torch.exp(m_b - shift)
    l = w_a + w_b

    share = torch.where(l > 0, l, torch.ones_like(l))
    O = (w_a / share)[:, None] * O_a + (w_b / share)[:, None] * O_b
    return O, m, l
