# kind: right
# what: both states stacked, a weight for each half from one where, then sums over the stack
# shows: weights of empty halves are 0 and no NaN arises; both empty leaves 0, -inf, 0; inputs only read
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
    Os, ms, ls = (torch.stack(pair) for pair in zip(state_a, state_b))
    m = ms.amax(0)
    w = torch.where(ms == -inf, 0.0, torch.exp(ms - m))
    return (w.unsqueeze(-1) * Os).sum(0), m, (w * ls).sum(0)
