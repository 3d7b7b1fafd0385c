"""Modelled units that copy, multiply and take exponentials, and what each was doing at any time.

    spans = iterations(FOUR_STEPS, 6, overlapped=True)         # a loop whose steps have a unit each
    machine = Pipeline(copies=[3, 3, 3], work=[2, 2, 2], slots=2)
    machine.start(tile=0, slot=0); machine.wait(0); machine.compute(0)
    spans, hung = take_turns([program_0, program_1], product=2, softmax=2)

Time is counted in whole steps of no particular length: the model is of the order, not of a GPU's speed.
"""

from collections import Counter
from typing import NamedTuple

from flashlab.validate import check_positive

FOUR_STEPS = (("load A", 1), ("load B", 1), ("multiply", 1), ("store C", 1))
HALF_COPIED, NOTHING = -1, -2          # what `compute` reads from a slot still being copied to, and from an empty one


class Span(NamedTuple):
    """A unit worked on something from `start` up to `end`."""

    unit: str
    name: str
    start: int
    end: int


def finish(spans):
    """When the last span ends; 0 without any."""
    return max((span.end for span in spans), default=0)


def iterations(steps, count, overlapped=True):
    """The Spans of a loop: `steps` are (name, time) and follow one another; each has a unit of its own.

    overlapped: a unit begins the next iteration as soon as it is free; otherwise each iteration waits for the last one.
    """
    check_positive(count=count)
    free, spans = dict.fromkeys((name for name, _ in steps), 0), []
    for n in range(count):
        now = 0 if overlapped else finish(spans)
        for name, time in steps:
            start = max(now, free[name])
            now = free[name] = start + time
            spans.append(Span(name, str(n), start, now))
    return spans


def pipelined(copies, work, slots):
    """The Spans of the best loop over tiles: a copy begins when the last one has ended and its slot is free."""
    check_positive(slots=slots)
    copied, done, spans = 0, [], []
    for n, (copy, takes) in enumerate(zip(copies, work, strict=True)):
        copied = max(copied, done[n - slots] if n >= slots else 0) + copy
        begin = max(copied, done[-1] if done else 0)
        done.append(begin + takes)
        spans += [Span("copy", str(n), copied - copy, copied), Span("compute", str(n), begin, done[-1])]
    return spans


class Pipeline:
    """A program with a copy engine beside it. The engine copies one tile at a time.

    copies, work   how long the copy and the computation of each tile take
    seen           the tile that each computation found in its slot, or HALF_COPIED, or NOTHING
    """

    def __init__(self, copies, work, slots):
        check_positive(slots=slots)
        self.copies, self.work, self.slots = list(copies), list(work), slots
        self.now, self.engine_free = 0, 0
        self.held = dict.fromkeys(range(slots), (NOTHING, 0))          # slot: (tile, when it is there)
        self.seen, self.spans, self.hung = [], [], False

    def start(self, tile, slot):
        """Ask for a copy of a tile into a slot, and go on at once. What the slot held is gone."""
        self._check("slot", slot, self.slots)
        self._check("tile", tile, len(self.copies))
        begin = max(self.now, self.engine_free)
        self.engine_free = begin + self.copies[tile]
        self.held[slot] = (tile, self.engine_free)
        self.spans.append(Span("copy", str(tile), begin, self.engine_free))

    def wait(self, slot):
        """Stand still until the copy into a slot has ended; forever if none was asked for."""
        self._check("slot", slot, self.slots)
        tile, there = self.held[slot]
        self.hung = self.hung or tile == NOTHING
        self.now = max(self.now, there)

    def compute(self, slot):
        """Compute with what a slot holds now."""
        self._check("slot", slot, self.slots)
        tile, there = self.held[slot]
        self.seen.append(tile if there <= self.now else HALF_COPIED)
        time = self.work[min(len(self.seen), len(self.work)) - 1]
        self.spans.append(Span("compute", str(self.seen[-1]), self.now, self.now + time))
        self.now += time

    def _check(self, name, value, count):
        if value not in range(count):
            raise ValueError(f"{name} must be one of 0 to {count - 1}, got {value}")


def take_turns(programs, product, softmax):
    """(spans, hung) of consumers that share the tensor cores: units "tensor cores, c" and "exponentials, c".

    A program is a list of ("product", n), ("softmax", n), ("arrive", barrier) and ("sync", barrier), done in order.
    A softmax takes `softmax` steps, a product alone `product` steps; products at the same time share the tensor cores,
    a step each by turns. `sync` waits for one more `arrive` on that barrier. hung: a consumer waits forever.
    Raises: ValueError for an instruction that is none of these
    """
    check_positive(product=product, softmax=softmax)
    times, todo = {"product": product, "softmax": softmax}, [list(program) for program in programs]
    count = len(todo)
    doing, left, began = [None] * count, [0] * count, [0] * count      # of each consumer
    arrived, spans, now, last = Counter(), [], 0, count - 1
    while True:
        begun = True
        while begun:                                       # an arrival may let another consumer go on
            begun = False
            for me in range(count):
                if left[me] or not todo[me]:
                    continue
                kind, which = todo[me][0]
                if kind not in ("product", "softmax", "arrive", "sync"):
                    raise ValueError(f"an instruction must be product, softmax, arrive or sync, got {kind!r}")
                if kind == "sync" and not arrived[which]:
                    continue
                doing[me], begun = todo[me].pop(0), True
                if kind in times:
                    left[me], began[me] = times[kind], now
                else:
                    arrived[which] += 1 if kind == "arrive" else -1
        working = [me for me in range(count) if left[me]]
        if not working:
            return sorted(spans, key=lambda span: (span.start, span.unit)), any(todo)
        sharing = [me for me in working if doing[me][0] == "product"]
        last = min(sharing, key=lambda me: (me - last - 1) % count, default=last)      # the next in the round
        now += 1
        for me in working:
            kind, which = doing[me]
            left[me] -= kind == "softmax" or me == last
            if not left[me]:
                unit = "tensor cores" if kind == "product" else "exponentials"
                spans.append(Span(f"{unit}, {me}", str(which), began[me], now))
