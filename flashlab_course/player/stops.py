"""Where to stop and look in a run of gpu/warps.py: events that its trace holds, each with a sentence of what to see."""

from itertools import chain, pairwise


def stops_of(machine):
    """[(step, name, sentence)] in order of time: each kind of event where it first happens, one for each step."""
    found, events = {}, [*of_hang(machine), *of_softmax(machine)]
    for step, pair in enumerate(pairwise(machine.moments), 1):
        events += [(step, *event) for event in chain(of_slots(*pair), of_barriers(*pair))]
    for step, name, sentence in sorted(events, key=lambda event: event[0]):
        if name not in found and all(step != other for other, *_ in found.values()):
            found[name] = step, name, sentence
    return list(found.values())


def of_hang(machine):
    """At the end of a run that hangs: who alone could end each wait."""
    if machine.error.startswith("deadlock"):
        stuck = [one for one in machine.warps if not one.done]
        ends = [f"{one.name} waits for {one.what.partition(' to')[0]}, which {who_ends(machine, one)} can end."
                for one in stuck]
        yield len(machine.moments) - 1, "the hang", "\n".join([*ends, "So nobody goes on."])


def who_ends(machine, warps):
    """Those that fetch into a slot, read it, or signal at a named barrier, as far as it is seen; else all others."""
    ring, kind, _ = warps.what.replace("_free", " wgmma ").replace("_full", " fetch ").split(" ", 2)
    able = {who: None for who, (what, of) in machine.requests
            if (what in ("sync", "arrive") and who != warps.name if kind == "threads" else
                what == kind and of[0].name == ring)}
    able = list(able) or [one.name for one in machine.warps if one is not warps and not one.done]
    return f"only {' or '.join(able)}" if able else "nobody"


def of_slots(before, now):
    """What has happened to slots and their mbarriers between two moments."""
    for slot, (holds, coming, _) in now.slots.items():
        full, free = (slot.replace("_s", kind) for kind in ("_full", "_free"))
        phases = {name: now.barriers[name][0] for name in (full, free)}
        ended = {name: f"{name} goes from phase {phase - 1} to phase {phase}." for name, phase in phases.items()
                 if phase > before.barriers.get(name, (0,))[0]}
        if full in ended and holds:
            yield "a tile lands", (f"{holds} has landed: {ended[full]} A wait for parity {(phases[full] - 1) % 2} "
                                   "goes on.")
        if free in ended:
            yield ("a slot is free again", f"All readers of {holds} have released {slot}: {ended[free]} "
                   "The slot may be filled again.")
        if holds and coming:
            yield ("a slot is used again", f"{coming} is on its way to the slot of {holds}. {full} is in phase "
                   f"{phases[full]}, so the readers of {coming} wait for parity {phases[full] % 2}.")
        if holds and coming and slot == "Q_s[0]" and "Q_s[1]" not in now.slots and (working := list(issued(now))):
            yield "the next Q comes", f"{coming} is on its way while {working[0][0]} still works with {holds}."


def of_barriers(before, now):
    """Who has begun to wait between two moments, and for what; who arrives at a named barrier, and goes on."""
    for name, what in now.waits.items():
        if "_free[" in what and not before.waits[name]:
            slot = what.partition(" ")[0].replace("_free", "_s")
            holds, coming, _ = now.slots.get(slot, (None, None, []))
            if still := coming or holds:               # else nothing was ever there
                yield "no slot is free", (f"The {name} waits: no slot is free. {slot} is next, and {still} is needed "
                                          "there.")
        if "named barrier" in what and not before.waits[name]:
            yield "a wait at a named barrier", f"{name} waits for {what}: its own have come, others' have not."
    for name, tile in issued(now):
        if now.what == f"{name}: arrive":
            yield "a signal at a named barrier", (f"{name} arrives and goes on: its product of {tile} is issued, and "
                                                  "has not ended.")


def of_softmax(machine):
    """What tensor cores do in a softmax, at the step at which it or the product beside it ends: both bars are seen."""
    step_at = {moment.time: step for step, moment in reversed(list(enumerate(machine.moments)))}
    products = [span for span in machine.spans if span.unit.startswith("tensor cores")]
    for span in (span for span in machine.spans if span.unit.startswith("softmax") and span.end in step_at):
        name = span.unit.removeprefix("softmax, ")
        during = f"While the softmax of {name} for block {span.name} was computed,"
        beside = {one: min(span.end, one.end) - max(span.start, one.start) for one in products}
        if max(beside.values(), default=0) <= 0:
            yield step_at[span.end], "tensor cores idle", f"{during} no product ran: the tensor cores were idle."
        for one in (one for one, cycles in beside.items() if cycles > 100):     # less is not seen
            whose = one.unit.removeprefix("tensor cores, ")
            words, its = ("its own", "its own") if whose == name else ("another's", f"{whose}'s")
            yield (step_at[min(span.end, one.end)], f"{words} product beside the softmax",
                   f"{during} {its} product of {one.name} ran. See the bars.")


def issued(now):
    """(whose product, the tile that it reads): under way, or queued"""
    return ((one.removesuffix("'s product"), holds) for holds, _, readers in now.slots.values() for one in readers)
