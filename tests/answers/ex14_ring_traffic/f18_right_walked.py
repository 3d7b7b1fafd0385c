# kind: right
# what: walks the steps of the ring and adds up what is sent, instead of a formula
# shows: R − 1 passes of K and V, R of dK and dV (one step home), none at all with one rank; H_q does not matter
"""ex14_ring_traffic · what a rank sends

Chapter 14 · difficulty 3 of 5 · 20 minutes

A sequence of N rows is split among R ranks, N/R rows each, with H_q heads of queries and H_kv heads of keys and values. d is the
width of Q and K, d_v that of V. How many bytes does one rank send?

    forward     the blocks of K and V travel round the ring, itemsize bytes an element, until every rank has met every block.
                Nobody sends a block that nobody has still to meet: after the last step nothing is passed on
    backward    K and V travel the same way once more. The sums dK and dV of a block travel behind it, in float32, and in the
                end one step further, to the rank that owns the block

R divides N. With one rank nothing is sent.

Not allowed: the finished function from flashlab or solutions/.

Hint: with two ranks, how often is a block of K passed on? How often are its dK and dV?
"""

def ring_traffic(N, R, H_q, H_kv, d, d_v, itemsize):
    """(forward, backward): the bytes that one rank sends, two whole numbers."""
    forward = 0
    backward = 0
    if R == 1:
        return forward, backward
    elements_K = (N // R) * H_kv * d
    elements_V = (N // R) * H_kv * d_v
    for step in range(R):
        if step < R - 1:                                        # somebody has still to meet the block
            forward += (elements_K + elements_V) * itemsize
            backward += (elements_K + elements_V) * itemsize
        backward += elements_K * 4                              # dK, and after the last step it goes home
        backward += elements_V * 4
    return forward, backward
