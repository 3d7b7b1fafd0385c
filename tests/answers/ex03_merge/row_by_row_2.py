# kind: right
# what: row by row with if and else, math.exp on numbers, results in buffers of its own
# shows: a half with m = -inf is left out of its row; rows where both are empty keep the state that the buffers begin with
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

import math

import torch

inf = float("inf")


def merge(state_a, state_b):
    """The softmax state of both sets of keys together: (O, m, l)."""
    O_a, m_a, l_a = state_a
    O_b, m_b, l_b = state_b

    O = torch.zeros_like(O_a)
    m = torch.full_like(m_a, -inf)
    l = torch.zeros_like(l_a)
    for n in range(len(m)):
        ma, mb = m_a[n].item(), m_b[n].item()
        best = ma if ma > mb else mb
        if best == -inf:
            continue
        m[n] = best
        if ma != -inf:
            O[n] += math.exp(ma - best) * O_a[n]
            l[n] += math.exp(ma - best) * l_a[n]
        if mb != -inf:
            O[n] += math.exp(mb - best) * O_b[n]
            l[n] += math.exp(mb - best) * l_b[n]
    return O, m, l
