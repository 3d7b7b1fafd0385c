"""Cases and mistakes of ex12_pipeline."""

import torch

from flashlab_course.check.form import Breach, Case, Exercise, Mistake, Output
from flashlab_course.gpu.schedule import NOTHING, Pipeline

AGAIN = "if n + machine.slots < tiles:\n            machine.start(n + machine.slots, slot)"
FILL = "for n in range(min(machine.slots, tiles)):\n        machine.start(n, n)"
FOREVER = -1                   # for the time of a program that hangs


class Machine:
    """What an answer may use of a Pipeline."""

    def __init__(self, inner):
        self.slots, self.start, self.wait, self.compute = inner.slots, inner.start, inner.wait, inner.compute


def call(fn, copies, work, slots):
    """The tiles that were computed with, how many copies were asked for, and when the last computation ended."""
    inner = Pipeline(copies, work, slots)
    try:
        fn(Machine(inner), len(copies))
    except ValueError as error:
        if "must be one of" not in str(error):
            raise
        raise Breach("wrong_call", f"the machine refused a call: {error}") from None
    seen = (inner.seen + [NOTHING] * len(copies))[:max(len(copies), len(inner.seen))]
    if len(seen) > len(copies):
        raise Breach("too_many", f"machine.compute was called {len(inner.seen)} times for {len(copies)} tiles")
    asked = sum(span.unit == "copy" for span in inner.spans)
    return torch.tensor(seen), torch.tensor(asked), torch.tensor(FOREVER if inner.hung else inner.now)


def truth(copies, work, slots):
    """When each copy and each computation can end at the earliest."""
    copied, done = [], []
    for n, (copy, takes) in enumerate(zip(copies, work, strict=True)):
        free = done[n - slots] if n >= slots else 0
        copied.append(max(copied[-1] if copied else 0, free) + copy)
        done.append(max(done[-1] if done else 0, copied[-1]) + takes)
    return torch.arange(len(copies)), torch.tensor(len(copies)), torch.tensor(done[-1])


def case(name, copies, work, slots):
    tiles = len(copies)
    holds = {"one slot": slots == 1, "more than two slots": slots > 2, "more tiles than slots": tiles > slots, "fewer tiles than slots": tiles < slots,
             "copies slower than the work": sum(copies) > sum(work)}
    inputs = {"copies": copies, "work": work, "slots": slots}
    return Case(name, lambda: {"copies": list(copies), "work": list(work), "slots": slots}, frozenset(f for f, true in holds.items() if true),
                {"tiles": tiles} | inputs)


EXERCISE = Exercise(
    function="pipeline",
    outputs=(Output("the tiles computed with", ("tile",)), Output("copies"), Output("time")),
    call=call,
    truth=truth,
    ints_only=False,
    cases=[
        case("one tile", [3], [2], 2),
        case("two tiles, two slots", [3, 3], [2, 2], 2),
        case("three tiles, two slots", [3, 3, 3], [2, 2, 2], 2),
        case("work slower than copies", [1, 1, 1, 1, 1], [3, 3, 3, 3, 3], 2),
        case("copies slower than work", [4, 4, 4, 4, 4], [1, 1, 1, 1, 1], 2),
        case("as fast as one another", [2, 2, 2, 2, 2, 2], [2, 2, 2, 2, 2, 2], 2),
        case("one slot", [3, 3, 3], [2, 2, 2], 1),
        case("three slots, an uneven memory", [1, 6, 1, 1, 6, 1, 1], [3, 3, 3, 3, 3, 3, 3], 3),
        case("two slots, an uneven memory", [1, 6, 1, 1, 6, 1, 1], [3, 3, 3, 3, 3, 3, 3], 2),
        case("fewer tiles than slots", [2, 2], [3, 3], 4),
        case("four slots", [1, 2, 9, 1, 1, 8, 2, 1, 1], [4, 4, 4, 4, 4, 4, 4, 4, 4], 4),
        case("slow copies of all sorts", [5, 2, 7, 3], [1, 6, 1, 1], 3),
    ],
    mistakes=[
        Mistake("no_wait", "no copy was waited for: tiles were computed with while they were still on their way",
                "machine.wait(slot) before machine.compute(slot)", ("machine.wait(slot)\n        ", "")),
        Mistake("waited_for_first_copies_only", "only the first copy into each slot was waited for",
                "machine.wait(slot) before every machine.compute(slot): later copies take their time, too",
                ("machine.wait(slot)", "if n < machine.slots:\n            machine.wait(slot)")),
        Mistake("waited_for_later_copies_only", "the first copy into each slot was not waited for",
                "machine.wait(slot) before every machine.compute(slot): the first copies take their time, too",
                ("machine.wait(slot)", "if n >= machine.slots:\n            machine.wait(slot)")),
        Mistake("wait_after_compute", "the wait came after the computation that needs it", "the order: wait, then compute",
                ("machine.wait(slot)\n        machine.compute(slot)", "machine.compute(slot)\n        machine.wait(slot)")),
        Mistake("one_at_a_time", "no copy ran beside a computation: each was waited for before anything else was done",
                "copies under way while the program computes: one for each slot that is free",
                body="""
                for n in range(tiles):
                    machine.start(n, n % machine.slots)
                    machine.wait(n % machine.slots)
                    machine.compute(n % machine.slots)
                """),
        Mistake("started_before_compute", "a slot was given its next copy before the computation with what it held",
                "the order: compute, then start the copy that overwrites the slot",
                ("machine.compute(slot)\n        " + AGAIN, AGAIN + "\n        machine.compute(slot)")),
        Mistake("started_before_wait", "a slot was given its next copy before anybody waited for the tile in it",
                "the order: wait, compute, and only then the copy that overwrites the slot",
                ("machine.wait(slot)\n        machine.compute(slot)\n        " + AGAIN, AGAIN + "\n        machine.wait(slot)\n        machine.compute(slot)")),
        Mistake("everything_started_at_once", "all copies were started before the first computation, each into a slot that others need as well",
                "before the first computation: as many copies as there are slots", (FILL, "for n in range(tiles):\n        machine.start(n, n % machine.slots)"),
                (AGAIN, "pass")),
        Mistake("no_new_copies", "only the first copy into each slot was started: the first tiles were computed with again and again",
                "after machine.compute(slot): start the copy of tile n + machine.slots", (AGAIN, "pass")),
        Mistake("nothing_before_the_loop", "the first wait was for a slot that nothing had been copied into, and never ended",
                "before the first wait: copies into the slots", (FILL, "")),
        Mistake("next_tile_again", "inside the loop the copy of tile n + 1 was started, which is on its way already",
                "which tile comes into this slot next: n + machine.slots", (AGAIN, "if n + 1 < tiles:\n            machine.start(n + 1, slot)")),
        Mistake("two_slots_always", "one tile was copied ahead, as with two slots, whatever their number", "copies ahead: as many tiles as machine.slots allows",
                body="""
                slots = min(2, machine.slots)
                for n in range(min(slots, tiles)):
                    machine.start(n, n)
                for n in range(tiles):
                    machine.wait(n % slots)
                    machine.compute(n % slots)
                    if n + slots < tiles:
                        machine.start(n + slots, n % slots)
                """,
                also=[[("range(min(machine.slots, tiles))", "range(min(2, tiles))"), ("n % machine.slots", "n % 2"),
                       (AGAIN, "if n + 2 < tiles:\n            machine.start(n + 2, slot)")]]),
        Mistake("in_batches", "the slots were filled, all computed with, and only then filled again: no new copy was started meanwhile",
                "start one new copy after each computation",
                body="""
                for first in range(0, tiles, machine.slots):
                    batch = range(first, min(tiles, first + machine.slots))
                    for n in batch:
                        machine.start(n, n - first)
                    for n in batch:
                        machine.wait(n - first)
                        machine.compute(n - first)
                """),
        Mistake("copied_past_the_end", "tiles that do not exist were asked for, and copies of them started", "the conditions: a tile's number is below tiles",
                ("if n + machine.slots < tiles:", "if True:"), also=[[("range(min(machine.slots, tiles))", "range(machine.slots)")]]),
        Mistake("drained_from_slot_0", "the last tiles were computed with in the order of the slots, from 0 on, though the oldest lies elsewhere",
                "tile n: in slot n mod slots, to the end",
                body="""
                for n in range(min(machine.slots, tiles)):
                    machine.start(n, n)
                for n in range(tiles - machine.slots):
                    machine.wait(n % machine.slots)
                    machine.compute(n % machine.slots)
                    machine.start(n + machine.slots, n % machine.slots)
                for slot in range(min(machine.slots, tiles)):
                    machine.wait(slot)
                    machine.compute(slot)
                """),
    ],
    hints=[
        "Before the loop, start the copies of the first min(machine.slots, tiles) tiles, each into its own slot.",
        "In the loop, for tile n in slot n % machine.slots: wait, compute. Now the slot is free.",
        "After compute, start tile n + machine.slots into the same slot, if there is such a tile.",
        "Only the time is too long: is a slot ever free while tiles are left to copy?",
        "Only with fewer tiles than slots: do you start copies of tiles that do not exist?",
    ],
)
