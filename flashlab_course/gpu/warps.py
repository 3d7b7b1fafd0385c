"""One SM in Python: warps run programs in the words of the Hopper kernels, and the machine says who waits for what.

    K, V = Ring("K", slots=2, readers=1), Ring("V", slots=2, readers=1)
    machine = simulate({"producer": producer(K, V, 8), "consumer": consumer(K, V, 8)})
    machine.error, machine.spans                       # "" if all went well; who worked when

A program is a generator: it yields one request after the other, as `yield wait(K.full[slot], phase)`. Modelled are the
slots of shared memory, mbarriers with their arrivals, bytes and phases, named barriers, copies that land late and in
any order, and products in flight, of which the tensor cores compute one after the other. Every copy into a slot and
every reading of it is checked. A seed chooses who goes first and how long everything takes, within a factor of 16:
what is right is right with every seed.

The times are rough, and predict no speed: exponentials do not compete for units here, and instructions cost nothing.
Not seen are a forgotten barrier within a warpgroup or a fence, layouts, registers, and what compilers move.
"""

import heapq
import inspect
import itertools
import random
from dataclasses import dataclass, field
from typing import NamedTuple

from flashlab.validate import check_positive
from flashlab_course.gpu.schedule import Span

PRODUCT, SOFTMAX, COPY = 500, 700, (300, 1100)         # cycles, of 64 queries and 128 keys
WARPGROUP, SPREAD = 128, 4


class Request(NamedTuple):
    """What a warp asks of the hardware: the name of a method of Machine, and its arguments."""

    kind: str
    arguments: tuple = ()


def mbarrier(one):
    """Itself. Raises: TypeError for anything but an mbarrier, such as those of all slots"""
    if not isinstance(one, MBarrier):
        raise TypeError(f"expected the mbarrier of one slot, such as K.full[slot], got {type(one).__name__}")
    return one


def wait(barrier, parity):
    """mbarrier.wait: until a phase of this parity, 0 or 1, is over."""
    return Request("wait", (mbarrier(barrier), parity))


def fetch(ring, tile, slot):
    """Expect a tile's bytes at the slot's mbarrier `full`, and have TMA copy the tile into the slot."""
    return Request("fetch", (ring, tile, slot))


def release(barrier):
    """mbarrier.arrive, once all threads of the warps have come."""
    return Request("release", (mbarrier(barrier),))


def wgmma(ring, slot, tile):
    """Issue the product that reads this tile, S = Q K^T or O += P V, and go on."""
    return Request("wgmma", (ring, slot, tile))


def wgmma_wait(at_most):
    """Until at most so many of one's own products are under way; they end in the order of their issue."""
    return Request("wgmma_wait", (at_most,))


def softmax(tile):
    """The exponentials of this tile's S."""
    return Request("softmax", (tile,))


def sync(barrier, threads):
    """Wait at a named barrier until so many threads have come, this warpgroup's included."""
    return Request("sync", (barrier, threads))


def arrive(barrier, threads):
    """Count towards a named barrier and go on."""
    return Request("arrive", (barrier, threads))


class Mistake(Exception):
    """What the hardware would not tell."""


class MBarrier:
    """Counts arrivals and bytes: with the last of both its phase ends. Phases are numbered 0, 1, 2, ..."""

    def __init__(self, name, count):
        check_positive(count=count)
        self.name, self.count, self.left, self.bytes, self.phase = name, count, count, 0, 0

    def change(self, arrivals, tiles):
        """tiles: so many more are to come."""
        self.left, self.bytes = self.left - arrivals, self.bytes + tiles
        if self.left < 0:
            raise Mistake(f"{self.name} counts more than the {self.count} arrivals it was made for")
        if self.left == self.bytes == 0:
            self.left, self.phase = self.count, self.phase + 1


class Slot:
    """A place for one tile, what it holds, what is on its way there, and the products that read it now."""

    def __init__(self, name):
        self.name, self.holds, self.coming, self.readers = name, None, None, []


class Ring:
    """Slots that are filled and read round and round, each with an mbarrier `full` and one `free`.

    readers: how many warpgroups read every tile, and release its slot
    """

    def __init__(self, name, slots, readers=1):
        check_positive(slots=slots, readers=readers)
        self.name = name
        self.slots = [Slot(f"{name}_s[{n}]") for n in range(slots)]
        self.full = [MBarrier(f"{name}_full[{n}]", 1) for n in range(slots)]
        self.free = [MBarrier(f"{name}_free[{n}]", readers) for n in range(slots)]


@dataclass
class Warps:
    """Warps that run one program together."""

    name: str
    program: object
    threads: int
    ready: object = lambda: True
    what: str = ""             # it waits for; "" while it runs
    line: tuple = (None, 0)    # the code that makes its request, and the line
    since: int = 0
    products: list = field(default_factory=list)       # under way
    done: bool = False


class Moment(NamedTuple):
    """How things stand after something has happened."""

    time: int
    what: str
    lines: dict                # warps: the code that they run, of their program or of one within it, and the line
    waits: dict                # warps: what they wait for, "" while they run
    slots: dict                # slot: (what it holds, what is coming, who reads)
    barriers: dict             # mbarrier: (phase, arrivals to come, tiles to come)
    named: dict                # named barrier: (threads that have come, times opened)


class Machine:
    """A run: `spans` say who worked when, `moments` how things stood, `requests` who asked for what, in order; `error`
    what went wrong, "" if nothing did."""

    def __init__(self, seed=0, unsteady=True):
        self.random, self.spread, self.number = random.Random(seed), SPREAD if unsteady else 1, itertools.count()
        self.now, self.events, self.named, self.tensor_cores_free = 0, [], {}, 0
        self.rings, self.warps, self.spans, self.moments, self.requests, self.error = {}, [], [], [], [], ""

    def run(self, warps):
        self.warps = warps
        try:
            while not all(one.done for one in warps):
                while able := [one for one in warps if not one.done and one.ready()]:
                    self.go_on(self.random.choice(able))
                if not self.events and not all(one.done for one in warps):
                    stuck = "; ".join(f"{one.name} waits for {one.what}" for one in warps if not one.done)
                    raise Mistake(f"deadlock: {stuck}")
                while self.events and not any(one.ready() for one in warps if not one.done):
                    self.now, _, said, happens = heapq.heappop(self.events)
                    happens()
                    self.note(said)
        except Mistake as mistake:
            self.error = str(mistake)
            self.note(self.error)
        return self

    def go_on(self, warps):
        """The next request of these warps."""
        warps.what, warps.ready = "", lambda: True
        if not inspect.isgenerator(warps.program):
            raise Mistake(f"{warps.name} makes no request: each is said with `yield`")
        request = next(warps.program, None)
        warps.done, warps.since = request is None, self.now
        if warps.done:
            return
        within = warps.program
        while within.gi_yieldfrom:
            within = within.gi_yieldfrom
        warps.line = within.gi_code, within.gi_frame.f_lineno
        if not isinstance(request, Request):
            raise Mistake(f"{warps.name} yields {request!r}, which is no request such as wait(...) or fetch(...)")
        self.requests.append((warps.name, request))
        warps.ready, warps.what = getattr(self, request.kind)(warps, *request.arguments) or (lambda: True, "")
        self.note(f"{warps.name}: {request.kind}")

    def note(self, what):
        slots = {one.name: (one.holds, one.coming, list(one.readers))
                 for ring in self.rings.values() for one in ring.slots}
        barriers = {one.name: (one.phase, one.left, one.bytes)
                    for ring in self.rings.values() for one in (*ring.full, *ring.free)}
        self.moments.append(Moment(self.now, what, {one.name: one.line for one in self.warps},
                                   {one.name: "" if one.ready() else one.what for one in self.warps},
                                   slots, barriers, dict(self.named)))

    def later(self, time, said, happens=lambda: None):
        heapq.heappush(self.events, (time, next(self.number), said, happens))

    def takes(self, cycles, warps):
        return int(cycles * max(1, warps.threads // WARPGROUP) * self.spread ** self.random.uniform(-1, 1))

    # ---- the requests. Each returns when the warps may go on, and what they wait for; None: at once

    def wait(self, warps, barrier, parity):
        parity = int(parity)
        return (lambda: barrier.phase % 2 != parity,
                f"{barrier.name} to end a phase of parity {parity}; it is in phase {barrier.phase}")

    def fetch(self, warps, ring, tile, slot):
        self.rings[ring.name] = ring
        name, slot, full = f"{ring.name} {tile}", ring.slots[slot], ring.full[slot]
        if slot.readers:
            raise Mistake(f"{name} is copied into {slot.name} while {slot.readers[0]} still reads {slot.holds}")
        if slot.coming:
            raise Mistake(f"{name} is copied into {slot.name} while {slot.coming} is on its way there")
        full.change(1, 1)
        slot.coming, start = name, self.now
        lands = start + (self.random.randrange(*COPY) if self.spread > 1 else sum(COPY) // 2)

        def land():
            slot.holds, slot.coming = name, None
            full.change(0, -1)

        self.spans.append(Span(f"TMA to {slot.name}", str(tile), start, lands))
        self.later(lands, f"{name} has landed in {slot.name}", land)

    def release(self, warps, barrier):
        barrier.change(1, 0)

    def wgmma(self, warps, ring, slot, tile):
        self.rings[ring.name] = ring
        name, slot, reader = f"{ring.name} {tile}", ring.slots[slot], f"{warps.name}'s product"
        if slot.coming or slot.holds != name:
            there = f"{slot.coming} is on its way there" if slot.coming else f"{slot.holds or 'nothing'} is there"
            raise Mistake(f"{warps.name} issues the product of {name} from {slot.name}, but {there}")
        start = max(self.now, self.tensor_cores_free)
        end = self.tensor_cores_free = start + self.takes(PRODUCT, warps)
        slot.readers.append(reader)
        warps.products.append(name)

        def finish():
            slot.readers.remove(reader)
            warps.products.remove(name)

        self.spans.append(Span(f"tensor cores, {warps.name}", name, start, end))
        self.later(end, f"{warps.name}'s product of {name} has ended", finish)

    def wgmma_wait(self, warps, at_most):
        return lambda: len(warps.products) <= at_most, "its products"

    def softmax(self, warps, tile):
        if under_way := [name for name in warps.products if name == f"K {tile}"]:
            raise Mistake(f"{warps.name} computes the softmax of S {tile} while the product of {under_way[0]} runs")
        end = self.now + self.takes(SOFTMAX, warps)
        self.spans.append(Span(f"softmax, {warps.name}", str(tile), self.now, end))
        self.later(end, f"{warps.name} has the softmax of S {tile}")
        return lambda: self.now >= end, "its exponentials"

    def sync(self, warps, barrier, threads):
        turn = self.arrive(warps, barrier, threads, went=False)
        return lambda: self.named[barrier][1] > turn, f"{threads} threads at named barrier {barrier}"

    def arrive(self, warps, barrier, threads, went=True):
        count, turn = self.named.get(barrier, (0, 0))
        count += warps.threads
        if count > threads:
            raise Mistake(f"{warps.name} is one too many at named barrier {barrier}: {count} threads of {threads}")
        self.named[barrier] = (0, turn + 1) if count == threads else (count, turn)
        return None if went else turn


def simulate(programs, seed=0, *, threads=None, unsteady=True):
    """Run {name: program} together; returns the Machine.

    threads:  {name: how many run that program}, a warpgroup's 128 by default, and 32 of a "producer"
    unsteady: whether durations vary, by up to 4 times either way
    """
    sizes = {name: 32 if name == "producer" else WARPGROUP for name in programs} | (threads or {})
    return Machine(seed, unsteady).run([Warps(name, program, sizes[name]) for name, program in programs.items()])


def first_error(make, seeds=50):
    """The Machine of the first seed whose run goes wrong, else of the last. make() -> the programs, new each time"""
    check_positive(seeds=seeds)
    for seed in range(seeds):
        machine = simulate(make(), seed)
        if machine.error:
            break
    return machine
