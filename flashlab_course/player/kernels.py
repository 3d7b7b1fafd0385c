"""Recording interpreted Triton kernels line by line: what each program loads and stores, as far as its masks let it."""

from typing import NamedTuple

import numpy as np
import torch

from flashlab.ladder import find
from flashlab.triton_mode import interpreted, why_no_kernels
from flashlab_course.compiler.triton_internals import program
from flashlab_course.compiler.watch import bind, watch
from flashlab_course.player.lines import Tracer, code_of
from flashlab_course.player.record import corner, finish, run
from flashlab_course.player.recording import AXES, MAX_STEPS, VECTORS, Move, Step, Tensor


def record_kernel(fn, *args, title=None, **kwargs):
    """Run fn(*args, **kwargs), which launches Triton kernels, and keep what every line did, for `play`.

    fn is a launcher, or a function of your own with `kernel[grid](...)` in it. The kernels run in Triton's interpreter,
    one program after the other. Loads and stores outside the tensors of the launch are counted, and not carried out.
    An exception ends the recording: the line that raised it is the last step, and the error is kept, not raised.
    Raises: RuntimeError where kernels are compiled; ValueError for more than 24 × 24 tiles or 3000 lines, or without a
            launch
    """
    if not interpreted():
        why = why_no_kernels() or "set TRITON_INTERPRET=1 before flashlab is imported"
        raise RuntimeError(f"record_kernel needs Triton's interpreter: {why}")
    watcher = _Watcher()
    tracer = Tracer(watcher.follows, watcher.ran, MAX_STEPS)
    with watch(watcher):
        error = run(tracer, lambda: fn(*args, **kwargs))
    name = getattr(fn, "__name__", "")
    return finish(watcher, tracer, error, name if find(name) else watcher.phase or name, title, None, watcher.lead)


class _Place(NamedTuple):
    """A tensor of the launch: where its elements lie."""

    start: int                 # the first address, and the one after the last
    stop: int
    itemsize: int
    shape: tuple
    strides: tuple             # in elements
    lead: int                  # so many dimensions come before the rows: batch and head

    def holds(self, addresses):
        return (addresses >= np.uint64(self.start)) & (addresses < np.uint64(self.stop))

    def index(self, addresses):
        """For each dimension the indices of the elements that lie there."""
        rest, found = (addresses.astype(np.int64) - self.start) // self.itemsize, {}
        for n in sorted(range(len(self.shape)), key=lambda n: -self.strides[n]):
            step = self.strides[n] if self.shape[n] > 1 else 0
            found[n] = rest // step if step else 0 * rest
            rest = rest - found[n] * step
        return [found[n] for n in range(len(self.shape))]


class _Watcher:
    """Hears of launches and accesses from `watch`, of lines from the tracer."""

    def __init__(self):
        self.codes, self.places, self.tensors = set(), {}, {}
        self.steps, self.lead = [], ()
        self.phase, self.program, self.spans, self.head = "", None, {}, 0
        self.moves, self.stray = [], []
        self.bytes = {"load": 0, "store": 0}

    def follows(self, code):
        return (code.co_filename, code.co_name) in self.codes

    # ---- from watch

    def launched(self, kernel, args, kwargs, grid):
        code = code_of(kernel)
        self.codes.add((code.co_filename, code.co_name))
        self.phase, self.program, self.places = code.co_name, None, {}
        for name, T in bind(kernel, args, kwargs).items():
            if isinstance(T, torch.Tensor) and T.ndim and T.numel():
                start, size, shape = T.data_ptr(), T.element_size(), tuple(T.shape)
                lead = T.ndim - (1 if name in VECTORS or T.ndim == 1 else 2)
                span = sum((n - 1) * stride for n, stride in zip(shape, T.stride(), strict=True)) + 1
                self.places[name] = _Place(start, start + span * size, size, shape, T.stride(), lead)
                self.tensors[name] = shape[lead:]
                if AXES.get(name, ("",))[0] == "i" and lead > len(self.lead):
                    self.lead = shape[:lead]

    def accessed(self, kind, addresses, mask, place):
        self._in_program(place)
        mask = np.broadcast_to(mask, addresses.shape)
        lanes = mask if mask.any() else np.ones_like(mask)
        name = max(self.places, key=lambda name: (self.places[name].holds(addresses) & lanes).sum(), default=None)
        allowed = mask & self.places[name].holds(addresses) if name else np.zeros_like(mask)
        if stray := int((mask & ~allowed).sum()):
            self.stray.append(f"{stray} of its {kind}s are outside every tensor and were not carried out")
        if allowed.any():
            self._moved("load" if kind == "load" else "store", name, addresses[allowed])
        return allowed

    def _moved(self, kind, name, addresses):
        T = self.places[name]
        self.bytes[kind] += len(addresses) * T.itemsize
        index = T.index(addresses)
        rows, cols, *_ = [*((int(where.min()), int(where.max()) + 1) for where in index[T.lead:]), ()]
        self.moves.append(Move(kind, name, rows, cols))
        axis = AXES.get(name, ("",))[0]
        if axis == "i":
            first = [where[0] for where in index[:T.lead]]
            self.head = int(np.ravel_multi_index(first, T.shape[:T.lead])) if first else 0
        if axis in ("i", "j"):
            self.spans[axis] = rows

    def _in_program(self, place):
        if place != self.program:
            self.program, self.spans = place, {}

    # ---- from the tracer

    def ran(self, frame, file, statement, how):
        if how == "resumes" and not self.moves:
            return False
        chip, values = [], {}
        for name, value in frame.f_locals.items():
            data = getattr(getattr(value, "handle", None), "data", None)
            if isinstance(data, np.ndarray) and data.ndim and data.dtype.kind == "f":
                chip.append(Tensor(name, data.shape, data.nbytes))
                values[name] = corner(data)
        self._in_program(program())
        tile = (self.spans["i"], self.spans["j"]) if {"i", "j"} <= set(self.spans) else ()
        sets = () if how == "calls" else tuple(sorted(statement.sets))
        self.steps.append(Step(
            (file, statement), 0, self.phase, moves=tuple(self.moves), sets=sets, tile=tile, read=self.bytes["load"],
            written=self.bytes["store"], chip=tuple(chip), values=values, program=self.program, head=self.head,
            note="; ".join(self.stray)))
        self.moves, self.stray = [], []
        return True

    def finish(self, keep_tail):
        """A program's head is known from its first access on; its number in as many dimensions as the grid has."""
        heads = {(step.phase, step.program): step.head for step in self.steps if step.moves}
        used = max((n + 1 for step in self.steps for n, place in enumerate(step.program) if place), default=1)
        for step in self.steps:
            step.head = heads.get((step.phase, step.program), step.head)
            step.program = step.program[:used]
