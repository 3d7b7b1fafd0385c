"""Which elements a Triton kernel touches, program by program, for the pictures of loads and stores.

    seen = touched(lambda: kernel[(3,)](X, Out, 10, 4))          # any launch
    mine = touched_by("ex09_vector_add", 2.0, X, Y, Out, 4)      # the learner's file; None while it is a stub

Addresses are seen where kernels are interpreted. An access outside every tensor is recorded and not carried out.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from flashlab.triton_mode import interpreted
from flashlab_course.check import form, limits, process, runner, source
from flashlab_course.compiler.watch import bind, watch
from flashlab_course.lesson.reference import own_text

MAX_ACCESSES = 5000
SECONDS = 10                   # for a learner's kernel
COMPILED = "kernels are compiled here, so their addresses stay unseen: start with TRITON_INTERPRET=1 to draw them"


class Layout(NamedTuple):
    """Where the elements of a tensor lie, counted in elements from its first."""

    shape: tuple
    strides: tuple

    def offsets(self):
        """An array of the tensor's shape."""
        steps = zip(np.indices(self.shape, sparse=True), self.strides, strict=True)
        return np.zeros(self.shape, dtype=np.int64) + sum(index * stride for index, stride in steps)


class Access(NamedTuple):
    """One load or store of one program: a block of places, and which of them the mask lets through."""

    kind: str                  # "load" or "store"
    tensor: str
    program: tuple             # its place in the grid, as many numbers as the grid has
    elements: np.ndarray       # counted from the tensor's first, of the block's shape
    mask: np.ndarray


@dataclass
class Touched:
    """The tensors of a run's launches, by the kernel's names, and every access in order."""

    tensors: dict = field(default_factory=dict)
    accesses: list = field(default_factory=list)
    problem: str = ""          # why the run ended early

    def of(self, tensor):
        return [access for access in self.accesses if access.tensor == tensor]

    def strays(self, access):
        """The places of an access that the mask lets through although they belong to no element of its tensor."""
        return access.mask & ~np.isin(access.elements, self.tensors[access.tensor].offsets())

    def kind(self, tensor):
        """How the tensor is used: "load", "store", or "load and store"."""
        return " and ".join(sorted({access.kind for access in self.of(tensor)}))

    def programs(self):
        """In the order in which they ran."""
        return list(dict.fromkeys(access.program for access in self.accesses))

    def times(self, tensor):
        """How often each element was touched, in the tensor's shape."""
        offsets = self.tensors[tensor].offsets()
        places = [access.elements[access.mask] for access in self.of(tensor)]
        inside = np.concatenate([offsets.ravel(), *(place[np.isin(place, offsets)] for place in places)])
        return np.bincount(inside)[offsets] - 1


class _Watcher:
    """Is told of launches and accesses by `watch`."""

    def __init__(self):
        self.seen, self.storages = Touched(), set()

    def launched(self, kernel, args, kwargs, grid):
        self.axes, self.ranges = len(grid), {}
        for name, T in bind(kernel, args, kwargs).items():
            if not isinstance(T, torch.Tensor) or not T.numel():
                continue
            storage, start = T.untyped_storage(), T.data_ptr()
            self.storages.add((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
            if all(start != known for known, *_ in self.ranges.values()):
                layout = self.seen.tensors[name] = Layout(tuple(T.shape), T.stride())
                size = T.element_size()
                self.ranges[name] = start, start + (1 + int(layout.offsets().max())) * size, size

    def accessed(self, kind, addresses, mask, program):
        if len(self.seen.accesses) == MAX_ACCESSES:
            raise RuntimeError(f"more than {MAX_ACCESSES} loads and stores are too many to draw: take smaller tensors")
        addresses, mask = addresses.astype(np.int64), np.broadcast_to(mask, addresses.shape)
        name = min(self.ranges, key=lambda name: self._far(name, addresses[mask] if mask.any() else addresses))
        start, _, size = self.ranges[name]
        elements = (addresses - start) // size
        self.seen.accesses.append(Access(kind, name, tuple(program)[:self.axes], elements, mask.copy()))
        return mask & np.logical_or.reduce([(addresses >= start) & (addresses < stop) for start, stop in self.storages])

    def _far(self, name, addresses):
        """How many addresses lie outside a tensor, and how far at most: a block belongs where this is least."""
        start, stop, _ = self.ranges[name]
        outside = np.maximum(np.maximum(start - addresses, addresses - stop + 1), 0)
        return int((outside > 0).sum()), int(outside.max(initial=0))


def touched(function):
    """Touched, of every kernel that function() launches. On a GPU it is not run, and `problem` says so."""
    if not interpreted():
        return Touched(problem=COMPILED)
    with watch(_Watcher()) as watcher:
        function()
    return watcher.seen


def touched_by(name, *args):
    """Touched, of the learner's answer to a Triton exercise, called with these arguments; None while it is a stub."""
    if own_text(name) is None:
        return None
    if not interpreted():
        return Touched(problem=COMPILED)
    try:
        return process.apart(_touch, name, args, imports=["triton", __name__])
    except process.Lost as lost:
        return Touched(problem=lost.text)


def result_of(name, *args):
    """What the learner's answer to an exercise returns, right or wrong; None if it is a stub or fails."""
    try:
        return None if own_text(name) is None else process.apart(_result, name, args, imports=[__name__])
    except process.Lost:
        return None


def _touch(name, args):
    found = []
    seen = touched(lambda: found.append(_protected(name, args)))
    seen.problem = _said(found[0][1]) if found else ""
    return seen


def _result(name, args):
    return _protected(name, args)[0]


def _protected(name, args):
    """(what the learner's function returns, what it raised)"""
    def call():
        return source.load_text(own_text(name), name, source.exercise_path(name))[form.exercise(name).function](*args)

    return limits.protected(call, SECONDS)


def _said(error):
    """In a sentence, what ended the run; "" if nothing did."""
    error = runner.unwrapped(error)
    if error is None:
        return ""
    if isinstance(error, limits.TimeUp):
        return f"it was stopped after {SECONDS} seconds"
    if isinstance(error, NotImplementedError):
        return f"not finished: {str(error).partition(': ')[2] or error}"
    return f"it raised {type(error).__name__}: {error}".split("\n")[0][:200]
