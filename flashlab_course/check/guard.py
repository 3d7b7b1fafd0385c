"""Guarded tensors for Triton exercises: inputs lie in a sea of NaN, outputs in a sea of poison, and every access is
held against the addresses that belong to a tensor.

On a GPU a stray load or store may crash, or pass silently. Here it is seen and located: by the interpreter's own loads
and stores where kernels are interpreted, by the NaN it drags in and the poison it overwrites where they are compiled.
"""

from collections import Counter

import numpy as np
import torch

from flashlab.triton_mode import interpreted
from flashlab_course.compiler.watch import Traffic

BAND = 2048                    # elements before and after each tensor: an access astray by a tile stays inside
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
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
            size = size * T.shape[n] + gap * (n == T.ndim - 1)
        self.nbytes = -(-(size + 2 * BAND) * self.itemsize // 64) * 64       # the next sea is aligned too

    def fill(self, buffer):
        """Take this part of the arena and poison it. Outputs have a NaN of their own: one that was read beside an input
        and stored has changed them."""
        self.buffer = buffer.view(self.dtype)
        self.buffer.fill_(torch.nan if self.dtype.is_floating_point else torch.iinfo(self.dtype).min)
        self.bits = self.buffer.view(BITS[self.itemsize])
        self.bits += 1 + self.output
        self.pattern = self.bits[0].item()
        self.view = self.buffer[BAND:].as_strided(self.shape, self.strides)
        inside = torch.zeros(len(self.buffer), dtype=torch.bool)
        inside[BAND:].as_strided(self.shape, self.strides).fill_(True)
        self.inside = inside.numpy()
        self.by = np.full((len(self.buffer), 3), -1, dtype=np.int32)     # the program that stored each element last

    def elements(self, addresses):
        """Which elements of the buffer have these addresses, of those that lie in it."""
        start = self.buffer.data_ptr()
        addresses = addresses[(addresses >= start) & (addresses < start + self.nbytes)]
        return ((addresses - np.uint64(start)) // np.uint64(self.itemsize)).astype(np.int64)

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
        return f"{self.name}, between two of its columns, which are {self.strides[-1]} elements apart"


class Guard:
    """The inputs of one case, guarded, and what the kernels did to them. For flashlab_course.compiler.watch."""

    def __init__(self, inputs, reads, writes):
        self.interpreted = interpreted()
        device = "cpu" if self.interpreted else "cuda"
        self.reads, self.writes, self.seas, self.inputs = reads, writes, {}, dict(inputs)
        self.stray = {}                                  # (kind, tensor): (where, program) of the first
        self.others = set()                              # (start, stop) of what a learner's launcher allocated itself
        self.scratch = 0                                 # elements moved to and from that
        self.padded = Counter()                          # name: the bytes read if no load had a mask
        self.repeated = {}                               # name: the most elements that one store named more than once
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
        self.launches = self.traffic.launches

    def plain(self):
        return {name: self.seas[name].view.cpu() for name in self.reads}

    def results(self):
        return tuple(self.seas[name].view.clone().cpu() for name in self.writes)

    def launched(self, kernel, args, kwargs, grid):
        self.traffic.launched(kernel, args, kwargs, grid)
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
        held = [(addresses >= start) & (addresses < stop) & mask for start, stop in (self.arena, *self.others)]
        mapped = np.logical_or.reduce(held)
        self.scratch += int((mapped & ~held[0]).sum())
        if kind != "load" and mask.any():
            self.workers.add((len(self.launches), program))
        for name, sea in self.seas.items():
            elements = sea.elements(addresses[mask])
            outside = elements[~sea.inside[elements]]
            if outside.size:
                self.stray.setdefault((kind, name), (sea.where(outside[0]), program))
            if kind == "load":
                self.padded[name] += addresses.size * sea.itemsize * bool(elements.size)
                continue
            sea.by[elements] = program or (0, 0, 0)
            if (again := len(elements) - len(np.unique(elements))) > self.repeated.get(name, 0) and kind == "store":
                self.repeated[name] = again
        if (mapped != mask).any():
            place = {"load": "from ", "store": "to "}.get(kind, "") + "far outside every tensor"
            self.stray.setdefault((kind, None), (place, program))
        return mapped

    def facts(self):
        """What was seen: what moved, stray accesses, what was overwritten, what no kernel stored."""
        facts = {"programs": self.traffic.programs, "stray": self.stray}
        facts |= {"overwritten": {}, "missed": {}}
        for name, sea in self.seas.items():
            changed = (sea.bits.cpu() != sea.pattern).numpy()
            outside = (changed & ~sea.inside).nonzero()[0]
            facts["overwritten"][name] = len(outside)
            if len(outside) and ("atomic", name) not in self.stray:
                self.stray.setdefault(("store", name), (sea.where(outside[0]), None))
            if name in self.writes:
                left = sea.inside & ~(sea.by[:, 0] >= 0 if self.interpreted else changed)
                if left.any():
                    facts["missed"][name] = int(left.sum()), int(sea.inside.sum()), sea.at(left.nonzero()[0][0])
        if self.interpreted:
            facts |= {"moved": {name: (self.traffic.read[name], self.traffic.written[name]) for name in self.seas},
                      "largest": self.traffic.largest, "atomic": self.traffic.atomic,
                      "scratch": self.scratch, "padded": self.padded, "repeated": self.repeated,
                      "workers": len(self.workers),
                      "by": {name: self.seas[name].by[self.seas[name].inside] for name in self.writes}}
        return facts
