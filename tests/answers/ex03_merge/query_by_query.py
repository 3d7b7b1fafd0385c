# kind: right
# what: a copy of a's state, then each query by hand with if and else; only the smaller half is rescaled
# shows: works on clones; an empty b is skipped, an empty a is replaced by b, so -inf - -inf never occurs

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

inf = float("inf")


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O_a, m_a, l_a = state_a
    O_b, m_b, l_b = state_b
    O, m, l = O_a.clone(), m_a.clone(), l_a.clone()
    for i in range(len(m)):
        if m_b[i] == -inf:
            continue
        if m_a[i] == -inf:
            O[i], m[i], l[i] = O_b[i], m_b[i], l_b[i]
        elif m_a[i] >= m_b[i]:
            rate = torch.exp(m_b[i] - m_a[i])
            O[i] += rate * O_b[i]
            l[i] += rate * l_b[i]
        else:
            rate = torch.exp(m_a[i] - m_b[i])
            O[i] = rate * O_a[i] + O_b[i]
            l[i] = rate * l_a[i] + l_b[i]
            m[i] = m_b[i]
    return O, m, l
