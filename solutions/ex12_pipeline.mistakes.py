import torch

from flashlab_course.check.cases import Mistake, case_of
from flashlab_course.check.form import Breach
from flashlab_course.gpu.schedule import NOTHING, Pipeline, finish, pipelined

WAIT, COMPUTE = "machine.wait(slot)\n        ", "machine.compute(slot)\n        "
FIRST = "for n in range(min(machine.slots, tiles)):\n        machine.start(n, n)"
NEXT = "if n + machine.slots < tiles:\n            machine.start(n + machine.slots, slot)"
AHEAD = "n += machine.slots - 1\n        if n < tiles:\n            machine.start(n, n % machine.slots)\n        "
FOREVER = -1                   # for the time of a program that hangs

outputs = [("the tiles computed with", "tile"), ("copies",), ("time",)]
features = {"copies slower than the work": lambda copies, work: sum(copies) > sum(work)}
case = case_of(lambda copies, work, slots: {"copies": [*copies], "work": [*work], "slots": slots})


class Machine:
    """What an answer may use of a Pipeline."""

    def __init__(self, inner):
        self.slots, self.start, self.wait, self.compute = inner.slots, inner.start, inner.wait, inner.compute


def call(fn, copies, work, slots):
    """The tiles that were computed with, how many copies were asked for, and when the last computation ended."""
    inner, tiles = Pipeline(copies, work, slots), len(copies)
    try:
        fn(Machine(inner), tiles)
    except ValueError as error:
        if "must be one of" not in str(error):
            raise
        raise Breach("wrong_call", f"the machine refused a call: {error}") from None
    if len(inner.seen) > tiles:
        raise Breach("too_many", f"machine.compute was called {len(inner.seen)} times for {tiles} tiles")
    asked, time = sum(span.unit == "copy" for span in inner.spans), FOREVER if inner.hung else inner.now
    seen = inner.seen + [NOTHING] * (tiles - len(inner.seen))
    return torch.tensor(seen), torch.tensor(asked), torch.tensor(time)


def truth(copies, work, slots):
    return torch.arange(len(copies)), torch.tensor(len(copies)), torch.tensor(finish(pipelined(copies, work, slots)))


cases = [case("one tile", [3], [2], 2),
         case("three tiles, two slots", [3, 3, 3], [2, 2, 2], 2),
         case("copies slower than work", [4, 4, 4, 4, 4], [1, 1, 1, 1, 1], 2),
         case("one slot", [3, 3, 3], [2, 2, 2], 1),
         case("three slots, an uneven memory", [1, 6, 1, 1, 6, 1, 1], [3, 3, 3, 3, 3, 3, 3], 3),
         case("fewer tiles than slots", [2, 2], [3, 3], 4)]
mistakes = [
    Mistake("no_wait", "no copy was waited for", "what has to have ended before compute", (WAIT, "")),
    Mistake("waited_for_first_copies_only", "only the first copy into each slot was waited for", "the later copies",
            (WAIT, "if n < machine.slots:\n            machine.wait(slot)\n        ")),
    Mistake("one_at_a_time", "no copy ran beside a computation", "what the engine does while the program computes",
            (FIRST, ""), (WAIT, "machine.start(n, slot)\n        machine.wait(slot)\n        "), (NEXT, "")),
    Mistake("started_before_compute", "a copy was started into a slot before its tile was computed with",
            "when a slot is free again", (COMPUTE + NEXT, NEXT + "\n        machine.compute(slot)")),
    Mistake("one_slot_idle", "one slot was never filled ahead", "how many copies can be under way before the loop",
            ("min(machine.slots,", "min(machine.slots - 1,"), (COMPUTE + NEXT, AHEAD + COMPUTE)),
    Mistake("two_slots_always", "two slots were used, whatever their number", "machine.slots",
            ("min(machine.slots, tiles)", "min(2, tiles)"), ("n % machine.slots", "n % 2"), (NEXT,
             NEXT.replace("machine.slots", "2"))),
    Mistake("in_batches", "the slots were filled again only when all were done", "when each slot is free again", (NEXT,
             "if slot == machine.slots - 1:\n            for n in range(n + 1, min(n + 1 + slot + 1, tiles)):"
             "\n                machine.start(n, n % machine.slots)")),
    Mistake("drained_from_slot_0", "the last tiles were taken in the order of the slots", "where the oldest tile lies",
            ("slot = n % machine.slots",
             "last = max(0, tiles - machine.slots)\n        slot = n - last if n >= last else n % machine.slots")),
    Mistake("copied_past_the_end", "copies of tiles that do not exist were started", "tile numbers near the end",
            ("if n + machine.slots < tiles:", "if True:"), also=[[("min(machine.slots, tiles)", "machine.slots")]]),
]
hints = ["Do one slot by hand first: which three calls does each tile need, and in which order?",
         "With more slots, several copies can be asked for before the first wait. How many?",
         "Which call ends the use of a slot? Right after it the slot is free, and one more tile can be asked for."]
