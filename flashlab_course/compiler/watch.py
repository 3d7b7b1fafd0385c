"""Watches a run: every kernel that is launched, and, where kernels are interpreted, every load and store.

    with watch(watcher):
        function()

    with watch(Traffic(Q=Q, K=K, O=O)) as traffic:             # counts what moves between HBM and the programs
        function()
    traffic.read["K"], traffic.written["O"], traffic.programs
"""

import contextlib
import inspect
import math

import numpy as np
import torch

from flashlab.triton_mode import interpreted
from flashlab_course.compiler.triton_internals import heard_interpreter, heard_launches


@contextlib.contextmanager
def watch(watcher):
    """Tell `watcher` of each launch and, where kernels are interpreted, of each access.

    watcher.launched(kernel, args, kwargs, grid)
        kernel[grid](*args, **kwargs) is about to run; kernel.fn is its function, grid a tuple of numbers
    watcher.accessed(kind, addresses, mask, program) -> mask
        a "load", "store" or "atomic" at an array of addresses, uint64, where mask holds; it is carried out where the
        returned mask holds
    """
    def launched(kernel, args, kwargs, grid):
        grid = grid(bind(kernel, args, kwargs)) if callable(grid) else grid
        watcher.launched(kernel, args, kwargs, tuple(grid) if isinstance(grid, (tuple, list)) else (grid,))

    with heard_interpreter(launched, watcher.accessed) if interpreted() else heard_launches(launched):
        yield watcher


class Traffic:
    """A watcher that counts the bytes between HBM and the programs, tensor by tensor, as flashlab.memory does.

    An address that one load asks for several times counts once. An atomic update reads and writes. Compiled kernels
    hide their accesses: for them only launches and programs are counted.

    read, written    {name: bytes}
    atomic           {name: elements that were updated by atomics}
    largest          {name: most elements in a single load}
    launches         [(kernel, args, kwargs)]
    programs         of all launches together
    """

    def __init__(self, **tensors):
        self._places = {name: Place(T) for name, T in tensors.items()}
        self.read, self.written, self.atomic, self.largest = (dict.fromkeys(tensors, 0) for _ in range(4))
        self.launches, self.programs = [], 0

    def launched(self, kernel, args, kwargs, grid):
        self.launches.append((kernel, args, kwargs))
        self.programs += math.prod(grid)

    def accessed(self, kind, addresses, mask, program):
        live = addresses[mask]
        if kind != "atomic":                             # atomic updates of one address all count
            live = np.unique(live)
        for name, place in self._places.items():
            elements = int(place.holds(live).sum())
            if kind != "store":
                self.read[name] += elements * place.itemsize
            if kind != "load":
                self.written[name] += elements * place.itemsize
            if kind == "atomic":
                self.atomic[name] += elements
            if kind == "load":
                self.largest[name] = max(self.largest[name], elements)
        return mask


class Place:
    """Where in memory the elements of a tensor lie: from `start` up to `stop`."""

    def __init__(self, T):
        steps = sum((size - 1) * stride for size, stride in zip(T.shape, T.stride(), strict=True))
        extent = 1 + steps if T.numel() else 0
        self.itemsize, self.start = T.element_size(), T.data_ptr()
        self.stop = self.start + extent * self.itemsize
        self._mine = np.zeros(extent, dtype=bool)        # False in the gaps of a view
        torch.from_numpy(self._mine).as_strided(T.shape, T.stride()).fill_(True)

    def holds(self, addresses):
        """Which of the addresses are those of an element."""
        found = (addresses >= self.start) & (addresses < self.stop)
        offsets = (addresses[found] - np.uint64(self.start)) // np.uint64(self.itemsize)
        found[found] = self._mine[offsets.astype(np.int64)]
        return found


def bind(kernel, args, kwargs):
    """The launch's arguments by parameter name, defaults included; num_warps and num_stages where they were given."""
    signature = inspect.signature(kernel.fn)
    bound = signature.bind(*args, **{key: value for key, value in kwargs.items() if key in signature.parameters})
    bound.apply_defaults()
    return bound.arguments | {key: value for key, value in kwargs.items() if key in ("num_warps", "num_stages")}
