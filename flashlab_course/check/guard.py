"""Guarded tensors for Triton exercises: inputs lie in a sea of NaN, outputs in a sea of poison, and every access is
held against the addresses that belong to a tensor.

On a GPU a stray load or store may crash, or pass silently. Here it is seen and located: by the interpreter's own loads
and stores where kernels are interpreted, by the NaN it drags in and the poison it overwrites where they are compiled.
"""

import numpy as np
import torch

from flashlab.triton_mode import interpreted
from flashlab_course.compiler.watch import Traffic

BAND = 2048                    # elements before and after each tensor: an access astray by a tile stays inside
# Two patterns for each dtype, both NaN where there is one: what a kernel reads beside an input is not what fills an
# output.
POISON_BITS = {torch.float32: (torch.int32, 0x7FC0BEEF, 0x7FC0FACE), torch.float16: (torch.int16, 0x7EEF, 0x7EAD),
               torch.bfloat16: (torch.int16, 0x7FEF, 0x7FCD),
               torch.float64: (torch.int64, 0x7FF80000DEADBEEF, 0x7FF80000FEEDFACE),
               torch.int32: (torch.int32, -0x35014542, -0x35014543),
               torch.int64: (torch.int64, -0x35014541_35014542, -0x35014541_35014543)}
SIDES = {"row": "below its last row", "column": "right of its last column", "element": "past its end"}


class _Sea:
    """One tensor inside a larger buffer. `gap` spoils contiguity: that many foreign elements follow each row.

    The columns of a tensor whose last stride is 2 are 2 apart here, too, with foreign elements between them.
    """

    def __init__(self, name, T, gap, output):
        self.name, self.shape, self.output = name, tuple(T.shape), output
        self.dtype, self.itemsize = T.dtype, T.element_size()
        self.strides, size = [], max(1, T.stride(-1)) if T.ndim else 1
        for n in reversed(range(T.ndim)):
            self.strides.insert(0, size)
            size *= T.shape[n]
            if n == T.ndim - 1 and T.ndim > 1:
                size += gap
        self.nbytes = -(-(size + 2 * BAND) * self.itemsize // 64) * 64       # the next sea is aligned too

    def fill(self, buffer):
        """Take this part of the arena and poison it."""
        self.buffer = buffer.view(self.dtype)
        bits, *patterns = POISON_BITS[self.dtype]
        self.pattern = patterns[self.output]
        self.bits = self.buffer.view(bits)
        self.bits.fill_(self.pattern)
        self.view = self.buffer[BAND:].as_strided(self.shape, self.strides)
        inside = torch.zeros(len(self.buffer), dtype=torch.bool)
        inside[BAND:].as_strided(self.shape, self.strides).fill_(True)
        self.inside = inside.numpy()
        # what kernels stored, where they are interpreted
        self.stored = np.zeros(len(self.buffer), dtype=bool)
        self.by = np.full((len(self.buffer), 3), -1, dtype=np.int32)         # and which program did so last
        self.start = self.buffer.data_ptr()
        self.stop = self.start + self.buffer.nbytes

    def elements(self, addresses):
        return ((addresses - np.uint64(self.start)) // np.uint64(self.itemsize)).astype(np.int64)

    def place(self, element):
        """An element of the buffer in the tensor's own counting: [row, column], which may lie outside its shape."""
        rest, place = int(element) - BAND, []
        for stride in self.strides:
            place.append(rest // stride)
            rest %= stride
        # heads lie behind each other: past the last one is below its last row
        for n in range(len(place) - 2):
            if (past := place[n] - self.shape[n] + 1) > 0:
                place[n] -= past
                place[n + 1] += past * self.shape[n + 1]
        return place

    def at(self, element):
        return f"{self.name}[{', '.join(map(str, self.place(element)))}]"

    def where(self, element):
        """An element outside the tensor: how its place would be called, and on which side of the tensor that is."""
        if element < BAND:
            return f"{self.name}, {BAND - int(element)} elements before its first"
        for axis, at, size in zip(("column", "row"), reversed(self.place(element)), reversed(self.shape), strict=False):
            if at >= size:
                axis = "element" if len(self.shape) == 1 else axis
                return f"{self.at(element)}, {SIDES[axis]}: {self.name} has {size} {axis}{'s' * (size != 1)}"
        inner = int(element) - BAND - sum(at * step for at, step in zip(self.place(element), self.strides, strict=True))
        if inner:
            return f"{self.name}, between two of its columns, which are {self.strides[-1]} elements apart"
        return self.at(element)


class Guard:
    """The inputs of one case, guarded, and what the kernels did to them. For flashlab_course.compiler.watch."""

    def __init__(self, inputs, reads, writes):
        self.interpreted = interpreted()
        device = "cpu" if self.interpreted else "cuda"
        self.reads, self.writes, self.seas, self.inputs = reads, writes, {}, dict(inputs)
        # (kind, tensor, where, program), the first of each kind and tensor
        self.stray = []
        self.others = set()                              # (start, stop) of what a learner's launcher allocated itself
        self.scratch = 0                                 # bytes moved to and from that
        self.padded = dict.fromkeys((*reads, *writes), 0)    # bytes read if no load had a mask
        self.repeated = {}                               # name: the most elements that one store named more than once
        self.grids = []                                  # of each launch, without axes of one program
        self.workers = set()                             # (number of the launch, program) of whoever stored something
        for n, name in enumerate([*reads, *writes]):
            T = inputs[name]
            gap = 3 + 2 * n if T.ndim > 1 else 0         # no two alike: a stride of the wrong tensor shows
            self.seas[name] = _Sea(name, T, gap, output=name in writes)
        # one allocation for all: where a stray access ends up is then the same each time
        arena = torch.empty(sum(sea.nbytes for sea in self.seas.values()), dtype=torch.uint8, device=device)
        parts = arena.split([sea.nbytes for sea in self.seas.values()])
        for (name, sea), part in zip(self.seas.items(), parts, strict=True):
            sea.fill(part)
            if name in reads:
                sea.view.copy_(inputs[name])
            self.inputs[name] = sea.view
        self.arena = arena.data_ptr(), arena.data_ptr() + arena.nbytes
        self.traffic = Traffic(**{name: sea.view for name, sea in self.seas.items()})

    @property
    def launches(self):
        """[(kernel, args, kwargs)]."""
        return self.traffic.launches

    def plain(self):
        return {name: self.seas[name].view.cpu() for name in self.reads}

    def results(self):
        return tuple(self.seas[name].view.clone().cpu() for name in self.writes)

    def launched(self, kernel, args, kwargs, grid):
        self.traffic.launched(kernel, args, kwargs, grid)
        self.grids.append(tuple(size for size in grid if size != 1))
        for arg in (*args, *kwargs.values()):
            T = getattr(arg, "base", arg)                # a tensor descriptor has its tensor there
            if isinstance(T, torch.Tensor):
                storage = T.untyped_storage()
                start, stop = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
                if start != self.arena[0]:
                    self.others.add((start, stop))

    def accessed(self, kind, addresses, mask, program):
        """The mask without the addresses in no tensor's memory: to touch those could end the process."""
        self.traffic.accessed(kind, addresses, mask, program)
        live = addresses[mask]
        if not live.size:
            return mask
        if kind != "load":
            self.workers.add((len(self.launches), program))
        low, high, known = live.min(), live.max(), 0
        for sea in self.seas.values():
            if low < sea.stop and high >= sea.start:
                here = self._within(sea, kind, live, program)
                known += here
                self.padded[sea.name] += addresses.size * sea.itemsize * (here > 0 and kind == "load")
        for start, stop in self.others:
            here = int(((live >= start) & (live < stop)).sum())
            known += here
            self.scratch += here
        if known == live.size:
            return mask
        self._note(kind, None, {"load": "from ", "store": "to "}.get(kind, "") + "far outside every tensor", program)
        return mask & self._mapped(addresses)

    def _within(self, sea, kind, live, program):
        """Note what this access does in this sea; how many of its addresses lie there."""
        elements = sea.elements(live[(live >= sea.start) & (live < sea.stop)])
        outside = elements[~sea.inside[elements]]
        if outside.size:
            self._note(kind, sea.name, sea.where(outside[0]), program)
        if kind != "load":
            if (again := len(elements) - len(np.unique(elements))) > self.repeated.get(sea.name, 0) and kind == "store":
                self.repeated[sea.name] = again
            sea.stored[elements] = True
            sea.by[elements] = program or (0, 0, 0)
        return len(elements)

    def _mapped(self, addresses):
        mapped = np.zeros(addresses.shape, dtype=bool)
        for start, stop in (self.arena, *self.others):
            mapped |= (addresses >= start) & (addresses < stop)
        return mapped

    def _note(self, kind, name, where, program):
        if all((kind, name) != known[:2] for known in self.stray):
            self.stray.append((kind, name, where, program))

    def facts(self):
        """What was seen: how much moved, stray accesses, what was overwritten beside the tensors, what no kernel
        stored."""
        facts = {"programs": self.traffic.programs, "grids": self.grids, "stray": self.stray}
        facts |= {"overwritten": {}, "missed": {}, "by_others": {}}
        for name, sea in self.seas.items():
            bits = sea.bits.cpu()
            changed = (bits != sea.pattern).numpy()
            outside = changed & ~sea.inside
            facts["overwritten"][name] = int(outside.sum())
            if outside.any() and all(known[:2] not in (("store", name), ("atomic", name)) for known in self.stray):
                self._note("store", name, sea.where(outside.nonzero()[0][0]), None)
            if name in self.writes:
                written = sea.stored if self.interpreted else changed
                self._missing(facts["missed"], sea, sea.inside & ~written & ~changed)
                self._missing(facts["by_others"], sea, sea.inside & ~written & changed)
        if self.interpreted:
            facts |= {"moved": {name: (self.traffic.read[name], self.traffic.written[name]) for name in self.seas},
                      "largest": dict(self.traffic.largest), "atomic": dict(self.traffic.atomic),
                      "scratch": self.scratch, "padded": self.padded, "repeated": self.repeated,
                      "workers": len(self.workers),
                      "by": {name: self.seas[name].by[self.seas[name].inside] for name in self.writes}}
        return facts

    def _missing(self, found, sea, elements):
        if elements.any():
            found[sea.name] = int(elements.sum()), int(sea.inside.sum()), sea.at(elements.nonzero()[0][0])
