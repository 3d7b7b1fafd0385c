"""Recording interpreted Triton kernels line by line: what each program loads and stores, as far as its masks let it."""

from typing import NamedTuple

import numpy as np
import torch

from flashlab.ladder import find
from flashlab.triton_mode import interpreted, why_no_kernels
from flashlab_course.compiler.triton_internals import program
from flashlab_course.compiler.watch import bind, watch
from flashlab_course.player.lines import Tracer, code_of
from flashlab_course.player.record import finish, run
from flashlab_course.player.recording import AXES, VECTORS, Move, Step, corner


def record_kernel(fn, *args, **kwargs):
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
    tracer = Tracer(lambda code: (code.co_filename, code.co_name) in watcher.codes, watcher.ran)
    with watch(watcher):
        error = run(tracer, lambda: fn(*args, **kwargs))
    watcher.finish()
    name = getattr(fn, "__name__", "")
    return finish(watcher, tracer, error, name if find(name) else watcher.phase or name, lead=watcher.lead)


class _Place(NamedTuple):
    """Where the elements of a tensor of the launch lie."""

    start: int                 # the first address, and the one after the last
    stop: int
    itemsize: int
    shape: tuple
    strides: tuple             # in elements
    lead: int                  # so many dimensions come before the rows: batch and head

    def holds(self, addresses):
        return (addresses >= np.uint64(self.start)) & (addresses < np.uint64(self.stop))

    def index(self, addresses):
        """For each dimension the indices of the elements at these addresses."""
        rest = (addresses.astype(np.int64) - self.start) // self.itemsize
        found = [0 * rest for _ in self.shape]
        for n in sorted(range(len(self.shape)), key=lambda n: -self.strides[n]):
            if self.shape[n] > 1 and self.strides[n]:
                found[n], rest = np.divmod(rest, self.strides[n])
        return found


class _Watcher:
    """Is told of launches and accesses by `watch`, and of lines by the tracer."""

    def __init__(self):
        self.codes, self.places, self.tensors = set(), {}, {}
        self.steps, self.lead, self.phase = [], (), ""
        self.program, self.spans, self.heads = None, {}, {}    # spans: {axis: the rows last moved along it}
        self.moves, self.notes = [], []                        # of the line that runs
        self.bytes = {"load": 0, "store": 0}

    # ---- from watch

    def launched(self, kernel, args, kwargs, grid):
        code = code_of(kernel)
        self.codes.add((code.co_filename, code.co_name))
        self.phase, self.program, self.places = code.co_name, None, {}
        for name, T in bind(kernel, args, kwargs).items():
            if isinstance(T, torch.Tensor) and T.ndim and T.numel():
                start, shape = T.data_ptr(), tuple(T.shape)
                lead = T.ndim - (1 if name in VECTORS or T.ndim == 1 else 2)
                span = sum((n - 1) * stride for n, stride in zip(shape, T.stride(), strict=True)) + 1
                stop = start + span * T.element_size()
                self.places[name] = _Place(start, stop, T.element_size(), shape, T.stride(), lead)
                self.tensors[name] = shape[lead:]
                if AXES.get(name, ("",))[0] == "i" and lead > len(self.lead):
                    self.lead = shape[:lead]

    def accessed(self, kind, addresses, mask, place):
        self._in_program(place)
        mask = np.broadcast_to(mask, addresses.shape)
        lanes = mask if mask.any() else np.ones_like(mask)
        name = max(self.places, key=lambda name: (self.places[name].holds(addresses) & lanes).sum())
        allowed = mask & self.places[name].holds(addresses)
        if stray := int((mask & ~allowed).sum()):
            self.notes.append(f"{stray} of its {kind}s are outside every tensor and were not carried out")
        if allowed.any():
            self._moved("load" if kind == "load" else "store", name, addresses[allowed])
        return allowed

    def _moved(self, kind, name, addresses):
        T, axis = self.places[name], AXES.get(name, ("",))[0]
        self.bytes[kind] += len(addresses) * T.itemsize
        spans = [(int(where.min()), int(where.max()) + 1) for where in T.index(addresses)]
        rows, cols, *_ = [*spans[T.lead:], ()]
        several = np.prod(T.shape[:T.lead]) > 1
        self.moves.append(Move(kind, name, rows, cols, tuple(spans[:T.lead * several])))
        if axis in ("i", "j"):
            self.spans[axis] = rows
        if axis == "i" and T.lead:
            head = np.ravel_multi_index([start for start, _ in spans[:T.lead]], T.shape[:T.lead])
            self.heads[self.phase, self.program] = int(head)

    def _in_program(self, place):
        if place != self.program:
            self.program, self.spans = place, {}

    # ---- from the tracer

    def ran(self, frame, file, statement, how):
        if how == "resumes" and not self.moves:
            return
        chip, values = {}, {}
        for name, value in frame.f_locals.items():
            data = getattr(getattr(value, "handle", None), "data", None)
            if isinstance(data, np.ndarray) and data.ndim and data.dtype.kind == "f":
                chip[name] = data.shape, data.nbytes
                values[name] = corner(data)
        self._in_program(program())
        tile = (self.spans["i"], self.spans["j"]) if len(self.spans) == 2 else ()
        self.steps.append(Step(
            (file, statement), 0, self.phase, tuple(self.moves), () if how == "calls" else statement.sets, tile=tile,
            read=self.bytes["load"], written=self.bytes["store"], chip=chip, values=values, program=self.program,
            note="; ".join(self.notes)))
        self.moves, self.notes = [], []

    def finish(self):
        """A program's head is known from its first access on; its number has as many dimensions as the grid."""
        used = max((n + 1 for step in self.steps for n, place in enumerate(step.program) if place), default=1)
        for step in self.steps:
            step.head = self.heads.get((step.phase, step.program), 0)
            step.program = step.program[:used]
