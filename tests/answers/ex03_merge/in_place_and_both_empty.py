# kind: two mistakes
# what: (1) rescales O_a and l_a in place, which changes the inputs; it needs tensors of its own. (2) exp(-inf - -inf) is NaN where both halves saw no key; the shift should be a finite number there
# shows: (1) the inputs after the call, wherever a number of O_a or l_a changes; (2) rows in which both halves have m = -inf
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
    O, m_a, l = state_a
    O_b, m_b, l_b = state_b
    m = torch.maximum(m_a, m_b)
    alpha = (m_a - m).exp()
    beta = (m_b - m).exp()

    l *= alpha
    l += beta * l_b
    O *= alpha[:, None]
    O += beta[:, None] * O_b
    return O, m, l
