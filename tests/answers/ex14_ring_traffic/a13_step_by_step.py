# kind: right
# what: walks the steps and adds up what is sent after each, instead of a closed form
# shows: R = 1 returns early; K and V are sent after all steps but the last, dK and dV after each of them

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
    if R == 1:
        return 0, 0
    numbers = N // R * H_kv * (d + d_v)            # in one block of K and V, or of dK and dV
    forward = backward = 0
    for step in range(R):
        if step != R - 1:                          # somebody has still to meet the block
            forward += numbers * itemsize
            backward += numbers * itemsize
        backward += numbers * 4                    # the sums go on, in the last step home
    return forward, backward
