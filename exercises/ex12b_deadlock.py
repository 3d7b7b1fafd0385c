"""ex12b_deadlock · who waits for whom

Chapter 12b · difficulty 2 of 5 · 15 minutes

This producer fetches K and V into a ring each:

    for j in range(tiles):
        slot, phase = j % slots, j // slots % 2
        yield wait(K.free[slot], phase ^ 1)
        yield wait(V.free[slot], phase ^ 1)
        yield fetch(K, j, slot)
        yield fetch(V, j, slot)

With two slots in each ring it works. With one slot, and two tiles or more, the machine says:

    deadlock: producer waits for V_free[0] to end a phase of parity 0; it is in phase 0;
    consumer waits for K_full[0] to end a phase of parity 1; it is in phase 1

A GPU would say nothing, and never return. The consumer below issues S = Q K^T of the next tile before O += P V of this
one, as hopper_overlap.py does, but without its early wait for K. The consumer is right and stays as it is. Move one
line of the producer, so that both programs end with any number of slots, also with one. Each tile is fetched once, in
order, into slot j % slots, and not before that slot is free. There is at least one tile.

Not allowed: another consumer, the finished function from solutions/.

Hint: which request of the consumer would end the producer's wait? Follow the consumer's program from there upwards.
"""
from flashlab_course.gpu.warps import fetch, release, softmax, wait, wgmma, wgmma_wait


def producer(K, V, slots, tiles):
    """Fetches K 0, V 0, K 1, V 1, ... into the rings K and V."""
    for j in range(tiles):
        # your turn: the four requests of the loop, in an order in which nobody waits for ever
        raise NotImplementedError("ex12b_deadlock: the four requests of the loop, in an order in which nobody waits for ever")


def consumer(K, V, slots, tiles):
    """S of the first tile; then S of tile j and O of the one before, again and again; O of the last tile."""
    yield wait(K.full[0], 0)
    yield wgmma(K, 0, 0)
    yield wgmma_wait(0)
    yield release(K.free[0])
    yield softmax(0)
    for j in range(1, tiles):
        slot, before = j % slots, (j - 1) % slots
        yield wait(K.full[slot], j // slots % 2)
        yield wgmma(K, slot, j)
        yield wait(V.full[before], (j - 1) // slots % 2)
        yield wgmma(V, before, j - 1)
        yield wgmma_wait(1)                            # S is there, O's product still runs
        yield release(K.free[slot])
        yield softmax(j)
        yield wgmma_wait(0)
        yield release(V.free[before])
    last = (tiles - 1) % slots
    yield wait(V.full[last], (tiles - 1) // slots % 2)
    yield wgmma(V, last, tiles - 1)
    yield wgmma_wait(0)


def programs(K, V, slots, tiles):
    """Both, for the simulator."""
    return producer(K, V, slots, tiles), consumer(K, V, slots, tiles)
