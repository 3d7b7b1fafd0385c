"""Recording Triton kernels line by line, where they are interpreted: each program's loads and stores, with their masks."""

from typing import NamedTuple

import numpy as np
import torch

from flashlab.ladder import find
from flashlab.triton_mode import interpreted, why_no_kernels
from flashlab_course.compiler.watch import bind, program, watch
from flashlab_course.player.lines import Tracer, code_of
from flashlab_course.player.record import corner, finish, run
from flashlab_course.player.recording import AXES, MAX_STEPS, VECTORS, Move, Step, Tensor


def record_kernel(fn, *args, title=None, **kwargs):
    """Run fn(*args, **kwargs), which launches Triton kernels, and keep what every line of every program did, for `play`.

    fn is a launcher, or a function of your own with `kernel[grid](...)` in it. The kernels run in Triton's interpreter, one
    program after the other. Loads and stores outside the tensors of the launch are shown, and not carried out.
    An exception ends the recording: the line that raised it is the last step, and the error is kept, not raised.
    Raises: RuntimeError where kernels are compiled; ValueError for more than 24 × 24 tiles or 3000 lines, or without a launch
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
    lead: tuple                # (size, stride) of batch and head, where it has them; strides in elements
    strides: tuple             # of rows and columns; of a vector, of its elements


class _Watcher:
    """Hears of launches and accesses from `watch`, of lines from the tracer."""

    def __init__(self):
        self.codes, self.places, self.tensors = set(), {}, {}
        self.steps, self.lead = [], ()
        self.phase, self.program, self.spans, self.head = "", None, {}, 0
        self.moves, self.stray = [], []
        self.read = self.written = 0

    def follows(self, code):
        return (code.co_filename, code.co_name) in self.codes

    # ---- from watch

    def launched(self, kernel, args, kwargs, grid):
        code = code_of(kernel)
        self.codes.add((code.co_filename, code.co_name))
        self.phase, self.program, self.places = code.co_name, None, {}
        for name, T in bind(kernel, args, kwargs).items():
            if isinstance(T, torch.Tensor) and T.ndim and T.numel():
                cut = T.ndim - (1 if name in VECTORS or T.ndim == 1 else 2)
                span = sum((size - 1) * stride for size, stride in zip(T.shape, T.stride(), strict=True)) + 1
                lead = tuple(zip(T.shape[:cut], T.stride(), strict=False))
                self.places[name] = _Place(T.data_ptr(), T.data_ptr() + span * T.element_size(), T.element_size(), lead, T.stride()[cut:])
                self.tensors[name] = tuple(T.shape[cut:])
                if AXES.get(name, ("",))[0] == "i" and cut > len(self.lead):
                    self.lead = tuple(T.shape[:cut])

    def accessed(self, kind, addresses, mask, place):
        self._in_program(place)
        mask = np.broadcast_to(mask, addresses.shape)
        name, inside = self._tensor(addresses, mask)
        allowed = mask & inside
        if stray := int((mask & ~inside).sum()):
            self.stray.append(f"{stray} of its {kind}s are outside every tensor and were not carried out")
        if name is None:
            return allowed
        T, nbytes = self.places[name], int(allowed.sum()) * self.places[name].itemsize
        self.read += nbytes if kind == "load" else 0
        self.written += nbytes if kind != "load" else 0
        head, asked, kept = _spans(T, addresses, allowed)
        self.moves.append(Move(kind, name, *asked, kept if kept != asked else ()))
        axis = AXES.get(name, ("",))[0]
        if axis == "i":
            self.head = head
        if axis in ("i", "j") and kept[0][0] < kept[0][1]:
            self.spans[axis] = kept[0]
        return allowed

    def _in_program(self, place):
        if place != self.program:
            self.program, self.spans = place, {}

    def _tensor(self, addresses, mask):
        """Whose elements most of these are, of those that the mask lets through, and which of them; (None, none of them)."""
        lanes = mask if mask.any() else np.ones_like(mask)
        inside = {name: (addresses >= np.uint64(place.start)) & (addresses < np.uint64(place.stop)) for name, place in self.places.items()}
        name = max(inside, key=lambda name: (inside[name] & lanes).sum(), default=None)
        return (name, inside[name]) if name and (inside[name] & lanes).any() else (None, np.zeros_like(mask))

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
        self.steps.append(Step(
            (file, statement), 0, self.phase, moves=tuple(self.moves), sets=() if how == "calls" else tuple(sorted(statement.sets)),
            tile=tile, read=self.read, written=self.written, chip=tuple(chip), values=values, program=self.program,
            head=self.head, note="; ".join(self.stray)))
        self.moves, self.stray = [], []
        return True

    def finish(self, keep_tail):
        """A program's head is known from its first access on; its number in as many dimensions as the grid has."""
        heads = {(step.phase, step.program): step.head for step in self.steps if step.moves}
        used = max((n + 1 for step in self.steps for n, place in enumerate(step.program) if place), default=1)
        for step in self.steps:
            step.head = heads.get((step.phase, step.program), step.head)
            step.program = step.program[:used]


def _spans(place, addresses, allowed):
    """(head, (rows, cols) asked for, (rows, cols) that the mask lets through) of one access."""
    offsets = (addresses.astype(np.int64) - place.start) // place.itemsize
    anchor = tuple(np.argwhere(allowed)[0]) if allowed.any() else (0,) * offsets.ndim
    head, rest = 0, max(int(offsets[anchor]), 0)
    for size, stride in place.lead:
        n = min(rest // stride, size - 1) if stride else 0
        head, rest = head * size + n, rest - n * stride
    asked, kept = [], []
    for stride in place.strides:                       # rows first: their stride is the larger one, or K was stored transposed
        at = (rest if stride == max(place.strides) else rest % max(place.strides)) // stride
        axis = _axis(offsets, stride)
        if axis is None:
            start, count, through = at, 1, [0] if allowed.any() else []
        else:
            start, count = at - int(anchor[axis]), offsets.shape[axis]
            through = np.flatnonzero(np.moveaxis(allowed, axis, 0).reshape(count, -1).any(1)).tolist()
        asked.append((start, start + count))
        kept.append((start + through[0], start + through[-1] + 1) if through else (start, start))
    return head, (*asked, ())[:2], (*kept, ())[:2]


def _axis(offsets, stride):
    """The axis of a block of offsets that walks in steps of `stride`, or None."""
    for axis, size in enumerate(offsets.shape):
        if size > 1 and (np.diff(offsets.take([0, 1], axis=axis), axis=axis) == stride).all():
            return axis
    return None
