# kind: right
# what: both halves stacked along a new first axis; weights exp(m_s - shift) with shift 0 where no half saw a key, then sums over that axis
# shows: -inf in one half gives weight 0; in both, exp(-inf - 0) = 0, so O = 0, l = 0 and m = -inf come out
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
    O_s, m_s, l_s = (torch.stack(pair) for pair in zip(state_a, state_b))
    m = m_s.amax(0)
    shift = m.masked_fill(m == -inf, 0.0)
    w = (m_s - shift).exp()                                   # (2, N_q)
    return torch.einsum("sn,snc->nc", w, O_s), m, (w * l_s).sum(0)
