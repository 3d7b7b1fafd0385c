"""ex14_ring_traffic · what a rank sends

Chapter 14 · difficulty 3 of 5 · 20 minutes

A sequence of N rows is split among R ranks, N/R rows each, with H_q heads of queries and H_kv heads of keys and values.
d is the width of Q and K, d_v that of V. How many bytes does one rank send?

    forward     the blocks of K and V travel round the ring, itemsize bytes an element, until every rank has met every
                block. Nobody sends a block that nobody has still to meet: after the last step nothing is passed on
    backward    K and V travel the same way once more. The sums dK and dV of a block travel behind it, in float32, and
                in the end one step further, to the rank that owns the block

R divides N. With one rank nothing is sent.

Not allowed: the finished function from flashlab or solutions/.

Hint: with two ranks, how often is a block of K passed on? How often are its dK and dV?
"""


def ring_traffic(N, R, H_q, H_kv, d, d_v, itemsize):
    """(forward, backward): the bytes that one rank sends, two whole numbers."""
    # your turn: bytes sent in the forward pass, and in the backward pass
    raise NotImplementedError("ex14_ring_traffic: bytes sent in the forward pass, and in the backward pass")
