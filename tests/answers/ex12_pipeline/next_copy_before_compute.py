# kind: one mistake
# what: tile n + slots is started into n's slot after the wait but before compute(n): the tile is gone (to overlap copy and work of one slot)
# shows: tiles > slots: compute reads a slot whose copy is under way
"""ex12_pipeline · a pipeline by hand

Chapter 12 · difficulty 3 of 5 · 25 minutes

A program computes with tiles 0, 1, …, tiles − 1, in this order. Each has to be copied into one of a few slots of shared memory
first, by an engine that works beside the program, one copy after the other. The machine that is modelled here knows three calls:

    machine.start(tile, slot)     ask for a copy of a tile into a slot, and go on at once. What the slot held is gone
    machine.wait(slot)            stand still until the copy into that slot has ended
    machine.compute(slot)         compute with what the slot holds, which takes a while; a copy still under way is read half done

Keep the engine as busy as the slots allow: start each copy as soon as there is a slot for it, that is, when no tile is in the
slot that still has to be computed with. Every tile is copied once. There are 1 slot or more, 1 tile or more, and it may be that
there are fewer tiles than slots. With 1 slot nothing can overlap. machine.slots is the number of slots. Nothing is returned.

Not allowed: other calls or attributes of the machine, the finished function from flashlab or solutions/.

Hint: tile n goes into slot n % machine.slots. Which tile was in that slot before, and when is it done with?
"""



def pipeline(machine, tiles):
    """Compute with each of the tiles in order, copying ahead as far as the slots allow."""
    S = machine.slots
    for t in range(min(S, tiles)):
        machine.start(t, t)

    for t in range(tiles):
        slot = t % S
        machine.wait(slot)              # tile t is here
        nxt = t + S
        if nxt < tiles:
            machine.start(nxt, slot)    # async: it copies while we compute
        machine.compute(slot)
