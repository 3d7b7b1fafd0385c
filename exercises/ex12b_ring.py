"""ex12b_ring · a ring of slots, and which phase to wait for

Chapter 12b · difficulty 3 of 5 · 25 minutes

A producer fetches tiles of K, a consumer multiplies with them, and both run at their own pace. Between them lie `slots`
slots of shared memory, used round and round: tile j lies in slot j % slots. Each slot has two mbarriers: `full`, whose
phase ends when a tile has landed, and `free`, whose phase ends when the tile has been read. Write both programs for the
simulator. The line beside each request is what the kernel in Gluon says:

    yield wait(K.full[slot], parity)     mbarrier.wait(K_full.index(slot), parity)
    yield wait(K.free[slot], parity)     mbarrier.wait(K_free.index(slot), parity)
    yield fetch(K, j, slot)              fetch(K, row, K_full.index(slot), K_s.index(slot)), which goes on at once
    yield wgmma(K, slot, j)              S = wgmma(..., is_async=True): issues the product with tile j, and goes on
    yield wgmma_wait(0)                  wgmma_wait(0, deps=[S]): until the product has ended
    yield release(K.free[slot])          release(K_free.index(slot))

The phases of an mbarrier are numbered 0, 1, 2, ... Only a phase's parity can be asked for: wait(barrier, 0) returns if
the phase that ended last has an even number, wait(barrier, 1) if it has an odd one. A new mbarrier is in phase 0 as if
an odd phase had just ended: there wait(barrier, 1) returns at once.

The producer runs ahead as far as the slots allow, and fetches each tile once, in order. The consumer multiplies with
each tile once, in order, and releases its slot as soon as the product has ended. There are 1 tile and 1 slot or more,
maybe more slots than tiles. Times vary from run to run; your programs have to be right in all runs.

Not allowed: the finished function from solutions/.

Hint: tile j is use number j // slots of its slot. Which phase of `full` ends with that use?
"""
from flashlab_course.gpu.warps import fetch, release, wait, wgmma, wgmma_wait


def producer(K, slots, tiles):
    """Fetches tile 0, 1, ... into the ring K."""
    for j in range(tiles):
        # your turn: wait until the slot of tile j is free, and fetch the tile
        raise NotImplementedError("ex12b_ring: wait until the slot of tile j is free, and fetch the tile")


def consumer(K, slots, tiles):
    """Multiplies with tile 0, 1, ..."""
    for j in range(tiles):
        # your turn: wait until tile j is there, multiply with it, release its slot
        raise NotImplementedError("ex12b_ring: wait until tile j is there, multiply with it, release its slot")


def programs(K, slots, tiles):
    """Both, for the simulator."""
    return producer(K, slots, tiles), consumer(K, slots, tiles)
