"""Guarded tensors for Triton exercises: inputs lie in a sea of NaN, outputs in a sea of poison, and every access is held
against the addresses that belong to a tensor.

On a GPU a stray load or store may crash, or pass silently. Here it is seen and located: by the interpreter's own loads and
stores where kernels are interpreted, by the NaN it drags in and the poison it overwrites where they are compiled.
"""

import math

import numpy as np
import torch

from flashlab.compiler import interpreted

BAND = 2048                    # elements before and after each tensor: an access astray by a tile stays inside
POISON_BITS = {torch.float32: (torch.int32, 0x7FC0BEEF), torch.float16: (torch.int16, 0x7EEF),
               torch.bfloat16: (torch.int16, 0x7FEF), torch.float64: (torch.int64, 0x7FF80000DEADBEEF),
               torch.int32: (torch.int32, -0x35014542), torch.int64: (torch.int64, -0x35014541_35014542)}


class _Sea:
    """One tensor inside a larger buffer. `gap` spoils contiguity: that many foreign elements follow each row."""

    def __init__(self, name, T, gap):
        self.name, self.shape, self.dtype, self.itemsize = name, tuple(T.shape), T.dtype, T.element_size()
        self.strides, size = [], 1
        for n in reversed(range(T.ndim)):
            self.strides.insert(0, size)
            size *= T.shape[n]
            if n == T.ndim - 1 and T.ndim > 1:
                size += gap
        self.nbytes = -(-(size + 2 * BAND) * self.itemsize // 64) * 64       # the next sea is aligned too

    def fill(self, buffer):
        """Take this part of the arena and poison it."""
        self.buffer = buffer.view(self.dtype)
        bits, self.pattern = POISON_BITS[self.dtype]
        self.bits = self.buffer.view(bits)
        self.bits.fill_(self.pattern)
        self.view = self.buffer[BAND:].as_strided(self.shape, self.strides)
        inside = torch.zeros(len(self.buffer), dtype=torch.bool)
        inside[BAND:].as_strided(self.shape, self.strides).fill_(True)
        self.inside = inside.numpy()
        self.start = self.buffer.data_ptr()

    def holds(self, addresses):
        return (addresses >= self.start) & (addresses < self.start + self.buffer.nbytes)

    def elements(self, addresses):
        return ((addresses - np.uint64(self.start)) // np.uint64(self.itemsize)).astype(np.int64)

    def where(self, element):
        """An element of the buffer in the words of the tensor: which row, or how far outside."""
        offset = int(element) - BAND
        if offset < 0:
            return f"{-offset} elements before its start"
        place, rest = [], offset
        for stride in self.strides:
            place.append(rest // stride)
            rest %= stride
        row = ", ".join(str(p) for p in place)
        sizes = ", ".join(str(n) for n in self.shape)
        return f"at [{row}], where its shape is ({sizes})"


class Guard:
    """The inputs of one case, guarded, and what the kernels did to them. For flashlab.compiler.watch."""

    def __init__(self, inputs, reads, writes):
        self.interpreted = interpreted()
        device = "cpu" if self.interpreted else "cuda"
        self.reads, self.writes, self.seas, self.inputs = reads, writes, {}, dict(inputs)
        self.programs = 0
        self.launches = []                               # (kernel, args, kwargs)
        self.stray = []                                  # ("load" or "store", tensor, where, program), the first of each kind
        self.others = set()                              # (start, stop) of what a learner's launcher allocated itself
        for n, name in enumerate([*reads, *writes]):
            T = inputs[name]
            gap = 3 + 2 * n if T.ndim > 1 else 0         # no two alike: a stride of the wrong tensor shows
            self.seas[name] = _Sea(name, T, gap)
        # one allocation for all: where a stray access ends up is then the same each time
        arena = torch.empty(sum(sea.nbytes for sea in self.seas.values()), dtype=torch.uint8, device=device)
        parts = arena.split([sea.nbytes for sea in self.seas.values()])
        for (name, sea), part in zip(self.seas.items(), parts, strict=True):
            sea.fill(part)
            if name in reads:
                sea.view.copy_(inputs[name])
            self.inputs[name] = sea.view

    def plain(self):
        return {name: self.seas[name].view.cpu() for name in self.reads}

    def results(self):
        return tuple(self.seas[name].view.clone().cpu() for name in self.writes)

    def launched(self, kernel, args, kwargs, grid):
        self.launches.append((kernel, args, kwargs))
        self.programs += math.prod(grid) if isinstance(grid, tuple) else 0
        for arg in (*args, *kwargs.values()):
            T = getattr(arg, "base", arg)                # a tensor descriptor has its tensor there
            if isinstance(T, torch.Tensor):
                storage = T.untyped_storage()
                self.others.add((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))

    def accessed(self, kind, addresses, mask, program):
        """The mask without the addresses in no tensor's memory: to touch those could end the process."""
        mapped = np.zeros(addresses.shape, dtype=bool)
        for start, stop in self.others:
            mapped |= (addresses >= start) & (addresses < stop)
        for sea in self.seas.values():
            here = sea.holds(addresses)
            mapped |= here
            elements = sea.elements(addresses[here & mask])
            outside = ~sea.inside[elements]
            if outside.any():
                self._note(kind, sea.name, sea.where(elements[outside][0]), program)
        if (mask & ~mapped).any():
            self._note(kind, None, "far outside every tensor", program)
        return mask & mapped

    def _note(self, kind, name, where, program):
        if all((kind, name) != known[:2] for known in self.stray):
            self.stray.append((kind, name, where, program))

    def facts(self):
        """What was seen: stray accesses, elements overwritten beside the tensors, elements of the outputs never stored."""
        facts = {"programs": self.programs, "overwritten": {}, "missed": {}, "stray": self.stray}
        seen = {(kind, name) for kind, name, *_ in self.stray}
        for name, sea in self.seas.items():
            bits = sea.bits.cpu()
            outside = (bits != sea.pattern).numpy() & ~sea.inside
            facts["overwritten"][name] = int(outside.sum())
            if outside.any() and ("store", name) not in seen:
                self._note("store", name, sea.where(outside.nonzero()[0][0]), None)
            if name in self.writes:
                untouched = (bits == sea.pattern).numpy() & sea.inside
                if untouched.any():
                    first = sea.where(untouched.nonzero()[0][0])
                    facts["missed"][name] = (int(untouched.sum()), int(sea.inside.sum()), first)
        return facts
