"""Who works when: modelled units that copy, multiply and take exponentials, and what each was doing at any time.

    spans = iterations(FOUR_STEPS, 6, overlapped=True)         # a loop whose steps have a unit each
    machine = Pipeline(copies=[3, 3, 3], work=[2, 2, 2], slots=2)
    machine.start(tile=0, slot=0); machine.wait(0); machine.compute(0)
    spans, hung = take_turns([program_0, program_1], product=2, softmax=2)

Time is counted in whole steps of no particular length: what is modelled is the order, not a GPU's speed.
"""

from typing import NamedTuple

from flashlab.validate import check_positive

FOUR_STEPS = (("load A", 1), ("load B", 1), ("multiply", 1), ("store C", 1))
HALF_COPIED, NOTHING = -1, -2          # what `compute` reads from a slot still being copied to, and from an empty one


class Span(NamedTuple):
    """A unit was busy with something from `start` up to `end`."""

    unit: str
    name: str
    start: int
    end: int


def finish(spans):
    """When the last of them ends; 0 without any."""
    return max((span.end for span in spans), default=0)


def busy(spans, unit):
    """The share of the whole time in which a unit worked."""
    return sum(span.end - span.start for span in spans if span.unit == unit) / max(1, finish(spans))


def iterations(steps, count, overlapped=True):
    """The Spans of a loop: `steps` are (name, time) and follow one another; each has a unit of its own.

    overlapped: a unit begins the next iteration as soon as it is free; otherwise each iteration waits for the last one.
    """
    check_positive(count=count)
    free, spans, now = dict.fromkeys((name for name, _ in steps), 0), [], 0
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


def alternating(rounds, product, softmax):
    """The Spans of two consumers that take turns at the tensor cores, named as `take_turns` names them."""
    check_positive(rounds=rounds, product=product, softmax=softmax)
    tensor, free, spans = 0, [0, 0], []
    for n in range(rounds):
        for me in (0, 1):
            begin = max(tensor, free[me])
            tensor, free[me] = begin + product, begin + product + softmax
            spans += [Span(f"tensor cores, {me}", str(n), begin, tensor),
                      Span(f"exponentials, {me}", str(n), tensor, free[me])]
    return spans


class Pipeline:
    """A program with a copy engine beside it. The engine copies one tile at a time; the program waits where it says so.

    copies, work   how long the copy and the computation of each tile take
    seen           the tile that each computation found in its slot, or HALF_COPIED, or NOTHING
    """

    def __init__(self, copies, work, slots):
        check_positive(slots=slots)
        self.copies, self.work, self.slots = list(copies), list(work), slots
        self.now, self.engine_free = 0, 0
        self.held = [None] * slots                     # (tile, when it is there) of each slot
        self.seen, self.spans, self.hung = [], [], False

    def start(self, tile, slot):
        """Ask for a copy of a tile into a slot, and go on at once. What the slot held is gone."""
        self._check(slot)
        if not 0 <= tile < len(self.copies):
            raise ValueError(f"tile must be one of 0 to {len(self.copies) - 1}, got {tile}")
        begin = max(self.now, self.engine_free)
        self.engine_free = begin + self.copies[tile]
        self.held[slot] = (tile, self.engine_free)
        self.spans.append(Span("copy", str(tile), begin, self.engine_free))

    def wait(self, slot):
        """Stand still until the copy into a slot has ended; forever if none was asked for."""
        self._check(slot)
        if self.held[slot] is None:
            self.hung = True
        else:
            self.now = max(self.now, self.held[slot][1])

    def compute(self, slot):
        """Compute with what a slot holds now."""
        self._check(slot)
        tile, there = self.held[slot] or (NOTHING, 0)
        self.seen.append(tile if there <= self.now else HALF_COPIED)
        time = self.work[min(len(self.seen), len(self.work)) - 1]
        self.spans.append(Span("compute", str(self.seen[-1]), self.now, self.now + time))
        self.now += time

    def _check(self, slot):
        if slot not in range(self.slots):
            raise ValueError(f"slot must be one of 0 to {self.slots - 1}, got {slot}")


def take_turns(programs, product, softmax):
    """(spans, hung) of consumers that share the tensor cores: units "tensor cores, c" and "exponentials, c".

    A program is a list of ("product", n), ("softmax", n), ("arrive", barrier) and ("sync", barrier), done in order.
    A softmax takes `softmax` steps, a product alone `product` steps; products at the same time share the tensor cores,
    a step each by turns. `sync` waits for one `arrive` more on that barrier. hung: somebody waits for ever.
    Raises: ValueError for an instruction that is none of these
    """
    check_positive(product=product, softmax=softmax)
    runs = [_Consumer(c, program, {"product": product, "softmax": softmax}) for c, program in enumerate(programs)]
    arrived, now, last = {}, 0, len(runs) - 1
    while True:
        while any([run.advance(arrived, now) for run in runs]):        # a list: all of them, not only up to the first
            pass
        working = [run for run in runs if run.left]
        if not working:
            spans = sorted((span for run in runs for span in run.spans), key=lambda span: (span.start, span.unit))
            return spans, any(run.todo for run in runs)
        sharing = [run.me for run in working if run.doing == "product"]
        last = min(sharing, key=lambda me: (me - last - 1) % len(runs), default=last)      # the next in the round
        now += 1
        for run in working:
            if run.doing == "softmax" or run.me == last:
                run.work(now)


class _Consumer:
    def __init__(self, me, program, times):
        self.me, self.todo, self.times = me, list(program), times
        self.doing, self.left, self.name, self.began, self.spans = None, 0, "", 0, []

    def advance(self, arrived, now):
        """Begin the next instruction if nothing holds it up. Returns whether anything happened."""
        if self.left or not self.todo:
            return False
        kind, which = self.todo[0]
        if kind not in ("product", "softmax", "arrive", "sync"):
            raise ValueError(f"an instruction must be product, softmax, arrive or sync, got {kind!r}")
        if kind == "sync" and not arrived.get(which):
            return False
        self.todo.pop(0)
        if kind in self.times:
            self.doing, self.left, self.name, self.began = kind, self.times[kind], str(which), now
        else:
            arrived[which] = arrived.get(which, 0) + (1 if kind == "arrive" else -1)
        return True

    def work(self, now):
        self.left -= 1
        if not self.left:
            unit = f"{'tensor cores' if self.doing == 'product' else 'exponentials'}, {self.me}"
            self.spans.append(Span(unit, self.name, self.began, now))
