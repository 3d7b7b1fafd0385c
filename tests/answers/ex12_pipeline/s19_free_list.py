# kind: right
# what: a list of free slots and a queue of copies under way; whichever slot is free takes the next tile, at once
# shows: any slot may take any tile; 1 slot, fewer tiles than slots; every copy is asked for as soon as a slot is free
"""ex12_pipeline · a pipeline by hand

Chapter 12 · difficulty 3 of 5 · 25 minutes

A program computes with tiles 0, 1, …, tiles − 1, in this order. Each has to be copied into one of a few slots of shared memory
first, by an engine that works beside the program, one copy after the other. The machine that is modelled here knows three calls:

    machine.start(tile, slot)     ask for a copy of a tile into a slot, and go on at once. What the slot held is gone
    machine.wait(slot)            stand still until the copy into that slot has ended
    machine.compute(slot)         compute with what the slot holds, which takes a while; a copy still under way is read half done

Keep the engine as busy as the slots allow: start each copy as soon as there is a slot for it, that is, when no tile is in the
slot that still has to be computed with. Every tile is copied once, into whichever slot you like. There are 1 slot or more, 1
tile or more, and it may be that there are fewer tiles than slots. With 1 slot nothing can overlap. machine.slots is the number
of slots. Nothing is returned.

Not allowed: other calls or attributes of the machine, the finished function from flashlab or solutions/.

Hint: tile n goes into slot n % machine.slots. Which tile was in that slot before, and when is it done with?
"""

from collections import deque


def pipeline(machine, tiles):
    """Compute with each of the tiles in order, copying ahead as far as the slots allow."""
    free = list(range(machine.slots))
    under_way = deque()                     # slots, in the order of their tiles
    coming = iter(range(tiles))

    def fill():
        while free:
            tile = next(coming, None)
            if tile is None:
                return
            slot = free.pop()
            machine.start(tile, slot)
            under_way.append(slot)

    fill()
    while under_way:
        slot = under_way.popleft()
        machine.wait(slot)
        machine.compute(slot)
        free.append(slot)
        fill()
