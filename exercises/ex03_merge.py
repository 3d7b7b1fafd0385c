"""ex03_merge · merging two half-finished softmaxes

Chapter 03 · difficulty 3 of 5 · 15 minutes

Two programs have processed half of the keys each. A softmax state is (O, m, l): m the largest score seen, l the sum
of exp(score − m), O the sum of exp(score − m) · value, not yet divided by l. Make one state of two.

    state_a, state_b: O (N_q, d_v), m (N_q,), l (N_q,)   ->   O, m, l of the same shapes

The result is the state that one program would have had after all the keys.

Where a query saw no key of a half, that half's state has O = 0, l = 0 and m = -inf. Such a half changes nothing. Two
such halves make a state of the same kind.
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
    # your turn: the merged state, also where one half or both saw no key
    raise NotImplementedError("ex03_merge: the merged state, also where one half or both saw no key")
