# kind: one mistake
# what: O_a and O_b are pooled like two sample means, weighted by each half's share of l; O is a sum that is not yet divided by l, so it only needs the change of units, alpha*O_a + beta*O_b
# shows: a query that saw keys in both halves: O is wrong (m and l are right; where one half is empty O is right too)
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
    shift = m.masked_fill(m == -inf, 0.0)
    n_a = l_a * torch.exp(m_a - shift)          # effective sample sizes in the same unit
    n_b = l_b * torch.exp(m_b - shift)
    n = n_a + n_b

    # pooled mean
    safe_n = n.masked_fill(n == 0, 1.0)
    O = (n_a / safe_n)[:, None] * O_a + (n_b / safe_n)[:, None] * O_b
    return O, m, n
