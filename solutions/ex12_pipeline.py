"""ex12_pipeline · a pipeline by hand

Chapter 12 · difficulty 3 of 5 · 25 minutes

A program computes with tiles 0, 1, …, tiles − 1, in this order. Each has to be copied into one of a few slots of shared
memory first, by an engine that works beside the program, one copy after the other. The machine that is modelled here
knows three calls:

    machine.start(tile, slot)     ask for a copy of a tile into a slot, and go on at once. What the slot held is gone
    machine.wait(slot)            stand still until the copy into that slot has ended
    machine.compute(slot)         compute with what the slot holds, which takes a while; a copy still under way is read
                                  half done

Keep the engine as busy as the slots allow: start each copy as soon as there is a slot for it, that is, when no tile is
in the slot that still has to be computed with. Every tile is copied once, into whichever slot you like. There are 1
slot or more, 1 tile or more, and it may be that there are fewer tiles than slots. With 1 slot nothing can overlap.
machine.slots is the number of slots. Nothing is returned.

Not allowed: other calls or attributes of the machine, the finished function from flashlab or solutions/.

Hint: tile n goes into slot n % machine.slots. Which tile was in that slot before, and when is it done with?
"""


def pipeline(machine, tiles):
    """Compute with each of the tiles in order, copying ahead as far as the slots allow."""
    # >>> your turn: fill the slots, then wait, compute and start again for each tile
    for n in range(min(machine.slots, tiles)):
        machine.start(n, n)
    for n in range(tiles):
        slot = n % machine.slots
        machine.wait(slot)
        machine.compute(slot)
        if n + machine.slots < tiles:
            machine.start(n + machine.slots, slot)
    # <<<
