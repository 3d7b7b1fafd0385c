"""Which elements a Triton kernel touches, program by program: what the pictures of loads and stores are drawn from.

    seen = touched(lambda: kernel[(3,)](X, Out, 10, 4))          # any launch
    mine = touched_by("ex09_vector_add", 2.0, X, Y, Out, 4)      # the learner's file; None while it is a stub

Addresses are seen where kernels are interpreted. An access outside every tensor is recorded and not carried out.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from flashlab.triton_mode import interpreted
from flashlab_course.check import form, limits, process, source
from flashlab_course.compiler.watch import bind, watch
from flashlab_course.lesson.reference import own_text

MAX_ACCESSES = 5000
SECONDS = 10                   # for a learner's kernel
COMPILED = "kernels are compiled here, so nobody sees their addresses: start with TRITON_INTERPRET=1 to draw them"


class Layout(NamedTuple):
    """Where the elements of a tensor lie, counted in elements from its first."""

    shape: tuple
    strides: tuple

    def offsets(self):
        """An array of the tensor's shape."""
        where = np.zeros(self.shape, dtype=np.int64)
        for axis, (size, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            where += (np.arange(size) * stride).reshape([-1 if n == axis else 1 for n in range(len(self.shape))])
        return where


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
        """Which places of an access belong to no element of its tensor, and pass the mask all the same."""
        return access.mask & ~np.isin(access.elements, self.tensors[access.tensor].offsets())

    def kind(self, tensor):
        """How the tensor is used: "load", "store", or "load and store"."""
        return " and ".join(sorted({access.kind for access in self.of(tensor)}))

    def programs(self):
        """In the order in which they ran."""
        return list(dict.fromkeys(access.program for access in self.accesses))

    def times(self, tensor):
        """How often each element was touched, in the tensor's shape."""
        layout = self.tensors[tensor]
        where = layout.offsets()
        counts = np.zeros(max(1, where.max() + 1), dtype=np.int64)
        for access in self.of(tensor):
            places = access.elements[access.mask]
            np.add.at(counts, places[(places >= 0) & (places < len(counts))], 1)
        return counts[where]


class _Watcher:
    """Hears of launches and accesses from `watch`."""

    def __init__(self):
        self.seen, self.ranges, self.storages, self.axes = Touched(), {}, set(), 1

    def launched(self, kernel, args, kwargs, grid):
        arguments = bind(kernel, args, kwargs)
        self.axes = len(grid(arguments) if callable(grid) else grid)
        for name, T in arguments.items():
            if not isinstance(T, torch.Tensor) or not T.numel():
                continue
            storage = T.untyped_storage()
            self.storages.add((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
            span = 1 + sum((size - 1) * stride for size, stride in zip(T.shape, T.stride(), strict=True))
            if all(start != T.data_ptr() for start, *_ in self.ranges.values()):
                self.ranges[name] = T.data_ptr(), T.data_ptr() + span * T.element_size(), T.element_size()
                self.seen.tensors[name] = Layout(tuple(T.shape), T.stride())

    def accessed(self, kind, addresses, mask, program):
        if len(self.seen.accesses) == MAX_ACCESSES:
            raise RuntimeError(f"more than {MAX_ACCESSES} loads and stores are too many to draw: take smaller tensors")
        addresses, mask = addresses.astype(np.int64), np.broadcast_to(mask, addresses.shape)
        name = min(self.ranges, key=lambda name: self._far(name, addresses, mask))
        start, _, size = self.ranges[name]
        elements = (addresses - start) // size
        self.seen.accesses.append(Access(kind, name, tuple(program)[:self.axes], elements, mask.copy()))
        return mask & np.logical_or.reduce([(addresses >= start) & (addresses < stop) for start, stop in self.storages])

    def _far(self, name, addresses, mask):
        """How many places lie outside the tensor, and how far away at most: a block belongs where this is least."""
        start, stop, _ = self.ranges[name]
        lanes = addresses[mask] if mask.any() else addresses.ravel()
        outside = np.maximum(np.maximum(start - lanes, lanes - stop + 1), 0)
        return int((outside > 0).sum()), int(outside.max(initial=0))


def touched(function):
    """Touched, of every kernel that function() launches. On a GPU it is not run, and `problem` says so."""
    if not interpreted():
        return Touched(problem=COMPILED)
    with watch(_Watcher()) as watcher:
        function()
    return watcher.seen


def touched_by(name, *args, **kwargs):
    """Touched, of the learner's answer to a Triton exercise, called with these arguments; None while it is a stub."""
    if own_text(name) is None:
        return None
    if not interpreted():
        return Touched(problem=COMPILED)
    try:
        return process.apart(_touch, name, args, kwargs, SECONDS, imports=["triton"])
    except process.Lost as lost:
        return Touched(problem=lost.text)


def _touch(name, args, kwargs, seconds):
    with watch(_Watcher()) as watcher:
        _, error = limits.protected(lambda: _own(name)(*args, **kwargs), seconds)
    watcher.seen.problem = _said(error, seconds) if error is not None else ""
    return watcher.seen


def result_of(name, *args):
    """What the learner's answer to an exercise returns, right or wrong; None if it is a stub or fails."""
    try:
        return None if own_text(name) is None else process.apart(_result, name, args, SECONDS)
    except process.Lost:
        return None


def _result(name, args, seconds):
    return limits.protected(lambda: _own(name)(*args), seconds)[0]


def _own(name):
    return source.load_text(own_text(name), name, source.exercise_path(name))[form.exercise(name).function]


def _said(error, seconds):
    """What ended it, in a sentence."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__                # Triton's interpreter wraps what the kernel raised
    if isinstance(error, limits.TimeUp):
        return f"it was stopped after {seconds} seconds"
    if isinstance(error, NotImplementedError):
        return f"not finished: {str(error).partition(': ')[2] or error}"
    return f"it raised {type(error).__name__}: {error}".split("\n")[0][:200]
