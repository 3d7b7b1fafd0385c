"""Where to stop and look in a run of gpu/warps.py: events that its trace holds, each with a sentence of what to see."""

from itertools import chain, pairwise


def stops_of(moments):
    """[(step, name, sentence)] in order of time: each kind of event where it happens for the first time, if it does."""
    found = {}
    for step, pair in enumerate(pairwise(moments), 1):
        for name, sentence in chain(of_slots(*pair), of_waits(*pair), of_products(*pair)):
            found.setdefault(name, (step, name, sentence))
    return list(found.values())


def of_slots(before, now):
    """What has happened to slots and their mbarriers between two moments."""
    for slot, (holds, coming, _) in now.slots.items():
        full, free = (slot.replace("_s", kind) for kind in ("_full", "_free"))
        phases = {name: now.barriers[name][0] for name in (full, free)}
        ended = {name: f"{name} goes from phase {phase - 1} to phase {phase}." for name, phase in phases.items()
                 if phase > before.barriers.get(name, (0,))[0]}
        if full in ended and holds:
            parity = (phases[full] - 1) % 2
            yield "a tile lands", f"{holds} has landed: {ended[full]} A wait for parity {parity} goes on."
        if free in ended:
            yield ("a slot is free again", f"All readers of {holds} have released {slot}: {ended[free]} "
                   "The slot may be filled again.")
        if holds and coming:
            yield ("a slot is used again", f"{coming} is on its way to the slot of {holds}. {full} is in phase "
                   f"{phases[full]}, so the readers of {coming} wait for parity {phases[full] % 2}.")
        if holds and coming and slot == "Q_s[0]" and "Q_s[1]" not in now.slots and (working := list(under_way(now))):
            yield "the next Q comes", f"{coming} is on its way while {working[0][0]} still works with {holds}."


def of_waits(before, now):
    """Who has begun to wait between two moments, and for what."""
    for name, what in now.waits.items():
        if "_free[" in what and not before.waits[name]:
            slot = what.partition(" ")[0].replace("_free", "_s")
            still = now.slots[slot][1] or now.slots[slot][0]
            yield "no slot is free", f"The {name} waits: no slot is free. {slot} is next, and {still} is needed there."
        if "named barrier" in what and not before.waits[name]:
            yield "a wait at a named barrier", f"{name} waits for {what}: its own have come, others' have not."


def of_products(before, now):
    """Which products are under way, and beside what."""
    for name in (name for name, what in now.waits.items() if what == "its exponentials"):
        softmax, running = f"The softmax of {name} is computed", list(under_way(now))
        if not running:
            yield "tensor cores idle", f"{softmax}, and no product is under way: the tensor cores are idle."
        for whose, tile in running:
            words, its = ("its own", "its own") if whose == name else ("another's", f"{whose}'s")
            yield f"{words} product beside the softmax", f"{softmax} while {its} product of {tile} is under way."
    for name, tile in under_way(now):
        if now.what == f"{name}: arrive":
            yield "a signal at a named barrier", (f"{name} arrives and goes on: its product of {tile} is issued, and "
                                                  "has not ended.")


def under_way(now):
    """(whose product, the tile that it reads)"""
    return ((one.removesuffix("'s product"), holds) for holds, _, readers in now.slots.values() for one in readers)
