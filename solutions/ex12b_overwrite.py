"""ex12b_overwrite · when a slot may be overwritten

Chapter 12b · difficulty 4 of 5 · 25 minutes

Two consumers share every tile of K and V, and each runs at its own pace. A slot's mbarrier `free` counts two arrivals,
one from each consumer, and then the producer below copies the next tile over the old one. Write the consumer, one
program for both. For each tile j = 0, 1, ... it computes

    S = Q K^T      yield wgmma(K, slot, j), which goes on at once; the product ends by itself, and until then reads K_s
    the softmax    yield softmax(j), which needs S and no slot: S is in registers
    O += P V       yield wgmma(V, slot, j), which needs the softmax

Beside these it may yield

    wait(K.full[slot], parity), wait(V.full[slot], parity)     the tile has landed
    wgmma_wait(0)                                              all of its own products have ended
    release(K.free[slot]), release(V.free[slot])               this consumer's arrival: it has read the slot

A consumer whose rows see fewer keys sits out the first `skip` tiles, 0 ≤ skip ≤ tiles: there it computes nothing, but
`free` still expects its arrivals. The other consumer may have another skip. Do not wait for more than is needed, nor
let the producer wait: V is waited for after the softmax, and a slot is released as soon as it has been read. Tile j
lies in slot j % slots; a ring has 1 slot or more. Finish one tile before you begin the next.

Not allowed: knowing the other consumer's skip, the finished function from solutions/.

Hint: what still reads K's slot when S is there? What still reads V's slot while O's product is under way?
"""
from flashlab_course.gpu.warps import fetch, release, softmax, wait, wgmma, wgmma_wait


def producer(K, V, slots, tiles):
    """Fetches K 0, V 0, K 1, V 1, ..., each as soon as its slot is free."""
    for j in range(tiles):
        slot, phase = j % slots, j // slots % 2
        yield wait(K.free[slot], phase ^ 1)
        yield fetch(K, j, slot)
        yield wait(V.free[slot], phase ^ 1)
        yield fetch(V, j, slot)


def consumer(K, V, slots, tiles, skip):
    """Computes with tile skip, skip + 1, ..., and lets the producer have every slot again."""
    for j in range(tiles):
        # >>> your turn: wait, compute and release; if j < skip, let the producer have the slots all the same
        slot, phase, sees = j % slots, j // slots % 2, j >= skip
        yield wait(K.full[slot], phase)
        if sees:
            yield wgmma(K, slot, j)
            yield wgmma_wait(0)
        yield release(K.free[slot])
        if sees:
            yield softmax(j)
        yield wait(V.full[slot], phase)
        if sees:
            yield wgmma(V, slot, j)
            yield wgmma_wait(0)
        yield release(V.free[slot])
        # <<<


def programs(K, V, slots, tiles, skips):
    """All three, for the simulator."""
    return producer(K, V, slots, tiles), *(consumer(K, V, slots, tiles, skip) for skip in skips)
