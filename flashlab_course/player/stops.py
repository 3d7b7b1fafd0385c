"""Where to stop and look in a run of gpu/warps.py: events that its trace holds, each with a sentence of what to see."""

from itertools import pairwise


def stops_of(moments):
    """[(step, name, sentence)] in order of time: each kind of event where it happens for the first time, if it does."""
    found = []
    for name, sees in EVENTS.items():
        pairs = enumerate(pairwise(moments), 1)
        found += next(([(step, name, words)] for step, pair in pairs if (words := next(sees(*pair), ""))), [])
    return sorted(found)


# Each event is a generator: what to see, if it happened between two moments.

def tile_lands(before, now):
    for full, slot, phase in ended(before, now, "_full"):
        yield (f"{now.slots[slot][0]} has landed: {full} goes from phase {phase - 1} to phase {phase}. "
               f"A wait for parity {(phase - 1) % 2} goes on.")


def slot_is_free(before, now):
    for free, slot, phase in ended(before, now, "_free"):
        yield (f"All readers of {now.slots[slot][0]} have released {slot}: {free} goes from phase {phase - 1} to phase "
               f"{phase}. The slot may be filled again.")


def ended(before, now, kind):
    """(mbarrier, its slot, its phase) of the mbarriers whose phase has just ended."""
    for name, (phase, *_) in now.barriers.items():
        if kind in name and phase > before.barriers.get(name, (0,))[0]:
            yield name, name.replace(kind, "_s"), phase


def no_slot_is_free(before, now):
    for name, what in begins_to_wait(before, now, "_free["):
        slot = what.partition(" ")[0].replace("_free", "_s")
        holds, coming, _ = now.slots[slot]
        yield f"The {name} waits: no slot is free. {slot} is next, and {coming or holds} is still needed there."


def waits_for_others(before, now):
    for name, what in begins_to_wait(before, now, "named barrier"):
        yield f"{name} waits for {what}: its own have come, another warpgroup's have not."


def begins_to_wait(before, now, words):
    return ((name, what) for name, what in now.waits.items() if words in what and not before.waits[name])


def slot_is_used_again(before, now):
    for slot, (holds, coming, _) in now.slots.items():
        if holds and coming:
            full = slot.replace("_s", "_full")
            yield (f"{coming} is on its way to the slot of {holds}. {full} is in phase {now.barriers[full][0]}, "
                   f"so the readers of {coming} wait for parity {now.barriers[full][0] % 2}.")


def next_queries_come(before, now):
    holds, coming, _ = now.slots.get("Q_s[0]", ("", "", []))
    working = [name for name, _ in under_way(now)]
    if holds and coming and working:
        yield f"{coming} is on its way while {working[0]} still works on the tile of {holds}."


def tensor_cores_idle(before, now):
    for name in at_softmax(now):
        if not list(under_way(now)):
            yield f"The softmax of {name} is computed, and no product is under way: the tensor cores are idle."


def own_product_under_softmax(before, now):
    yield from (f"The softmax of {name} is computed while its own product of {tile} is under way."
                for name in at_softmax(now) for whose, tile in under_way(now) if whose == name)


def product_under_another_softmax(before, now):
    yield from (f"The softmax of {name} is computed while {whose}'s product of {tile} is under way."
                for name in at_softmax(now) for whose, tile in under_way(now) if whose != name)


def turn_is_passed_on(before, now):
    yield from (f"{name} arrives for the other consumer: its product of {tile} is issued, and has not ended."
                for name, tile in under_way(now) if now.what == f"{name}: arrive")


def at_softmax(now):
    return [name for name, what in now.waits.items() if what == "its exponentials"]


def under_way(now):
    """(whose product, the tile that it reads)"""
    return [(one.removesuffix("'s product"), holds) for holds, _, readers in now.slots.values() for one in readers]


EVENTS = {
    "a tile lands": tile_lands,
    "a slot is free again": slot_is_free,
    "no slot is free": no_slot_is_free,
    "a slot is used again": slot_is_used_again,
    "tensor cores idle": tensor_cores_idle,
    "its own product beside the softmax": own_product_under_softmax,
    "another's product beside the softmax": product_under_another_softmax,
    "the turn is passed on": turn_is_passed_on,
    "waiting for a turn": waits_for_others,
    "the next Q comes": next_queries_come,
}
