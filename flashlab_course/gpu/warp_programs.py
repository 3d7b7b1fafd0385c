"""The Hopper rungs as programs for gpu/warps.py: the same waits, copies and products in order, without numbers.

    K, V = Ring("K", slots=2), Ring("V", slots=2)
    machine = simulate({"producer": producer(K, V, 8), "consumer": consumer(K, V, 8)})

K, V: the rings of a program; end: how many blocks of keys it walks. A block's number is also its use of the ring: block
j lies in slot j % slots, and is that slot's use number j // slots.
"""

import itertools

from flashlab_course.gpu.warps import Ring, arrive, fetch, release, softmax, sync, wait, wgmma, wgmma_wait

TURN, BOTH = 12, 256                   # the first of the named barriers, and the threads of two consumers


def in_step(K, V, end):
    """hopper_ring: all warps of the program load and compute together."""
    slots = len(K.slots)
    for j in range(min(slots, end)):
        yield fetch(K, j, j)
        yield fetch(V, j, j)
    for j in range(end):
        slot, phase = j % slots, j // slots % 2
        yield wait(K.full[slot], phase)
        yield wgmma(K, slot, j)                        # S = Q K^T
        yield wgmma_wait(0)
        yield softmax(j)
        yield wait(V.full[slot], phase)
        yield wgmma(V, slot, j)                        # O += P V
        yield wgmma_wait(0)
        if j + slots < end:
            yield fetch(K, j + slots, slot)
            yield fetch(V, j + slots, slot)


def producer(K, V, end):
    """hopper_producer, hopper_consumers and later: a warp that only loads."""
    for j in range(end):
        for ring in (K, V):
            slot, phase = j % len(ring.slots), j // len(ring.slots) % 2
            yield wait(ring.free[slot], phase ^ 1)
            yield fetch(ring, j, slot)


def consumer(K, V, end):
    """hopper_producer and hopper_consumers: a warpgroup that only computes."""
    slots = len(K.slots)
    for j in range(end):
        slot, phase = j % slots, j // slots % 2
        yield wait(K.full[slot], phase)
        yield wgmma(K, slot, j)
        yield wgmma_wait(0)
        yield release(K.free[slot])
        yield softmax(j)
        yield wait(V.full[slot], phase)
        yield wgmma(V, slot, j)
        yield wgmma_wait(0)
        yield release(V.free[slot])


def overlapping_consumer(K, V, end):
    """hopper_overlap: the softmax of block j is computed while O's product of block j − 1 runs."""
    slots = len(K.slots)
    yield wait(K.full[0], 0)
    yield wgmma(K, 0, 0)
    yield wgmma_wait(0)
    yield release(K.free[0])
    yield softmax(0)
    if end > 1:
        yield wait(K.full[1 % slots], 1 // slots % 2)
    for j in range(1, end):
        slot, before = j % slots, (j - 1) % slots
        yield wgmma(K, slot, j)
        yield wait(V.full[before], (j - 1) // slots % 2)
        yield wgmma(V, before, j - 1)
        yield wgmma_wait(1)                            # S is there, O's product still runs
        yield release(K.free[slot])
        yield softmax(j)
        if j + 1 < end:                                # early: the assembler moves nothing across it
            yield wait(K.full[(j + 1) % slots], (j + 1) // slots % 2)
        yield wgmma_wait(0)
        yield release(V.free[before])
    yield from last_product(V, end - 1)


def last_product(V, n):
    """O += P V of the last block, n."""
    slot = n % len(V.slots)
    yield wait(V.full[slot], n // len(V.slots) % 2)
    yield wgmma(V, slot, n)
    yield wgmma_wait(0)
    yield release(V.free[slot])


def issue_scores(me, K, j):
    """Issue S of block j when it is this consumer's turn, and pass the turn on."""
    yield sync(TURN + me, BOTH)
    yield wgmma(K, j % len(K.slots), j)
    yield arrive(TURN + (me + 1) % K.free[0].count, BOTH)


def attend_in_turn(me, K, V, n, end):
    """As overlapping_consumer, and S is issued only in turn. Of blocks n to end of the rings; the kernels' `attend`."""
    slots = len(K.slots)
    yield wait(K.full[n % slots], n // slots % 2)
    yield from issue_scores(me, K, n)
    yield wgmma_wait(0)
    yield release(K.free[n % slots])
    yield softmax(n)
    if n + 1 < end:
        yield wait(K.full[(n + 1) % slots], (n + 1) // slots % 2)
    for j in range(n + 1, end):
        slot, before = j % slots, (j - 1) % slots
        yield from issue_scores(me, K, j)
        yield wait(V.full[before], (j - 1) // slots % 2)
        yield wgmma(V, before, j - 1)
        yield wgmma_wait(1)
        yield release(K.free[slot])
        yield softmax(j)
        if j + 1 < end:                                # early: the assembler moves nothing across it
            yield wait(K.full[(j + 1) % slots], (j + 1) // slots % 2)
        yield wgmma_wait(0)
        yield release(V.free[before])


def consumer_in_turn(me, K, V, end):
    """hopper_turns. me: 0 to consumers - 1"""
    if me == K.free[0].count - 1:
        yield arrive(TURN, BOTH)                       # consumer 0 begins
    yield from attend_in_turn(me, K, V, 0, end)
    yield from last_product(V, end - 1)


def persistent_producer(Q, K, V, ends, tickets, board):
    """hopper_persistent: loads tile after tile. Q: a ring of one slot; board: where a tile's number lies beside Q.

    ends: how many blocks of keys each tile sees; tickets: an iterator that hands out tiles, as the counter in HBM does
    """
    n, turn, tile = 0, 0, next(tickets)
    while tile < len(ends):
        coming = next(tickets)                         # requested here, needed below
        yield wait(Q.free[0], turn % 2 ^ 1)
        board[:] = [tile]
        yield fetch(Q, tile, 0)
        for j in range(n, n + ends[tile]):
            for ring in (K, V):
                slot, phase = j % len(ring.slots), j // len(ring.slots) % 2
                yield wait(ring.free[slot], phase ^ 1)
                yield fetch(ring, j, slot)
        n, turn, tile = n + ends[tile], turn + 1, coming
    yield wait(Q.free[0], turn % 2 ^ 1)
    board[:] = [-1]                                    # no more
    yield release(Q.full[0])


def persistent_consumer(me, Q, K, V, ends, board):
    """hopper_persistent: takes tile after tile from the board. n: how many blocks the rings have had before"""
    if me == K.free[0].count - 1:
        yield arrive(TURN, BOTH)                       # consumer 0 begins
    n, turn = 0, 0
    yield wait(Q.full[0], 0)
    while (tile := board[0]) >= 0:
        end = n + ends[tile]
        yield from attend_in_turn(me, K, V, n, end)
        yield release(Q.free[0])                       # the tile's last S has read Q
        yield from last_product(V, end - 1)
        n, turn = end, turn + 1
        yield wait(Q.full[0], turn % 2)


def last_rung(slots=2, ends=(3, 1, 2), consumers=2):
    """{name: program} of one program of hopper_persistent, as `simulate` runs them. It computes all tiles."""
    Q, K, V = (Ring(name, n, consumers) for name, n in (("Q", 1), ("K", slots), ("V", slots)))
    board = []
    return {"producer": persistent_producer(Q, K, V, ends, itertools.count(), board)} | {
        f"consumer {me}": persistent_consumer(me, Q, K, V, ends, board) for me in range(consumers)}
