# kind: right
# what: the half that has the larger maximum gets weight 1 by comparison, the other exp of the difference; no special case needed
# shows: two empty halves have equal maxima (-inf = -inf), so both weigh 1 and zeros stay zeros; -inf minus a number gives weight 0

"""ex03_merge · merging two half-finished softmaxes

Chapter 03 · difficulty 3 of 5 · 15 minutes

Two programs have each attended to half of the keys. A softmax state is (O, m, l): m the largest score seen, l the sum of
exp(score − m), O the sum of exp(score − m) · value, not yet divided by l. Make one state of two.

    state_a, state_b: O (N_q, d_v), m (N_q,), l (N_q,)   ->   O, m, l of the same shapes

The result is the state that one program would have had after all the keys.

A query that saw no key of a half has O = 0, l = 0, m = -inf there. That half changes nothing for it; two of them make another such state.
Scores lie between −1000 and 1000.
Tensors are float32 or float64, all of them alike, and no size is 0.

Not allowed: changing the inputs, the finished function from flashlab or solutions/.

Hint: l_a counts in units of exp(m_a). What turns it into units of exp(m)?
"""
import torch


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O_a, m_a, l_a = state_a
    O_b, m_b, l_b = state_b
    m = torch.where(m_a > m_b, m_a, m_b)
    w_a = torch.where(m_a == m, torch.ones_like(m), torch.exp(m_a - m))
    w_b = torch.where(m_b == m, torch.ones_like(m), torch.exp(m_b - m))
    O = torch.einsum("i,id->id", w_a, O_a) + torch.einsum("i,id->id", w_b, O_b)
    return O, m, w_a * l_a + w_b * l_b
