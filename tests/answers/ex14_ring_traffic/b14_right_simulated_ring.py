# kind: right
# what: plays the ring with block numbers in lists and adds up what rank 0 puts on the wire, message by message
# shows: R - 1 messages of K, V in each pass, R of dK, dV in float32 (the last one home); one rank sends nothing

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

FLOAT32 = 4


def next_step(held):
    """held[r] is whose block rank r has; everybody passes it on to the next."""
    return held[-1:] + held[:-1]


def ring_traffic(N, R, H_q, H_kv, d, d_v, itemsize):
    """(forward, backward): the bytes that one rank sends, two whole numbers."""
    if R == 1:
        return 0, 0

    numbers = N // R * H_kv * (d + d_v)             # of a block's K and V; dK and dV are as many
    KV, dKV = numbers * itemsize, numbers * FLOAT32

    # forward: attend, pass on, until everybody has met everybody
    forward = 0
    held = list(range(R))
    met = [{r} for r in range(R)]
    while any(len(blocks) < R for blocks in met):
        forward += KV                               # rank 0 sends what it holds
        held = next_step(held)
        for r in range(R):
            met[r].add(held[r])

    # backward: the same, and each block's sums go on as well until they are at home
    backward = 0
    held, at_home = list(range(R)), list(range(R))
    for step in range(R):
        if step < R - 1:
            backward += KV
        backward += dKV
        held = next_step(held)
    assert held == at_home
    return forward, backward
