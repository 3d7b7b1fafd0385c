"""Recording a run on modelled memory, line by line."""

import contextlib
import traceback
from dataclasses import replace

import torch
from torch.utils._python_dispatch import _disable_current_modes

from flashlab.ladder import find
from flashlab.memory import A100_SRAM, Memory, active
from flashlab_course.player.lines import TooLong, Tracer, code_of
from flashlab_course.player.recording import (
    AXES,
    MAX_STEPS,
    Line,
    Move,
    Recording,
    Step,
    Tensor,
    number,
    refuse_if_too_large,
    too_long,
)

SHOWN_ROWS, SHOWN_COLUMNS = 4, 2
MATMULS = {"mm", "bmm", "addmm", "baddbmm", "mv", "dot"}


def record(fn, *args, sram_bytes=None, follow=None, title=None, **kwargs):
    """Run fn(*args, **kwargs) under the memory model and keep what every line did, for `play`.

    sram_bytes  the SRAM of the model, 192 KiB if None; the Memory in force, if there is one, is used as it is
    follow      the function whose lines are shown, with those of others in its file or cell. None: fn itself
    title       the name over the picture, by default the rung's or the followed function's

    An exception ends the recording: the line that raised it is the last step, and the error is kept, not raised.
    Raises: ValueError for more than 24 × 24 tiles or 3000 lines, or if no line of `follow` ran
    """
    follow = follow or fn
    file = code_of(follow).co_filename
    with contextlib.nullcontext(active()) if active() is not None else Memory(sram_bytes or A100_SRAM) as mem:
        torch.empty(0)                                 # the first operation imports PyTorch's compiler, untraced
        watcher = _Watcher(mem)
        tracer = Tracer(lambda code: code.co_filename == file, watcher.ran, MAX_STEPS)
        error = run(tracer, lambda: fn(*args, **kwargs))
    return finish(watcher, tracer, error, getattr(follow, "__name__", type(follow).__name__), title, mem.sram_bytes)


def run(tracer, call):
    """The exception that call() ended with, or None. KeyboardInterrupt is raised."""
    try:
        with tracer.on():
            call()
    except (Exception, TooLong) as error:
        return error
    return None


def finish(watcher, tracer, error, name, title, sram_bytes, lead=()):
    """The Recording of what a watcher saw."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__                        # Triton's interpreter wraps what the kernel raised
    if not watcher.steps:
        if error is not None and not isinstance(error, TooLong):
            raise error
        raise ValueError(f"no line of {name} ran: `follow` must name a function that is called")
    watcher.finish(keep_tail=error is not None)
    lines, places = _shown(tracer, watcher.steps)
    for step in watcher.steps:
        file, statement = step.line
        step.line = places.get((file, statement.start), 0)
        step.last = max(step.line, places.get((file, statement.stop), 0))
    rung = find(name)
    title = title or (rung.title if rung else name)
    recording = Recording(title, name, lines, watcher.steps, watcher.tensors, sram_bytes, lead)
    if isinstance(error, TooLong):
        raise too_long(recording)
    refuse_if_too_large(recording)
    if error is not None:
        recording.error = f"{type(error).__name__}: {error}"
        _end_where_it_was_raised(recording.steps, places, error)
    return recording


def _end_where_it_was_raised(steps, places, error):
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    raised, last = [places[frame] for frame in frames if frame in places], steps[-1]
    if raised and last.line <= raised[-1] <= last.last:
        last.sets = ()                                 # the line did not come so far
    elif raised:
        steps.append(replace(last, line=raised[-1], last=raised[-1], moves=(), sets=(), uses=()))


def _shown(tracer, steps):
    """The lines on show, outer functions first, and the place of each (file, number) among them.

    Of a function: its head, and its body from the first line on that ran. One line, number 0, stands for those between.
    """
    ran = {(step.line[0], number) for step in steps for number in range(step.line[1].start, step.line[1].stop + 1)}
    lines, places = [], {}
    for file, first in tracer.functions:
        source = tracer.source(file)
        numbers = source.shown(first) or sorted(number for where, number in ran if where == file)
        begin = next((n for n in numbers if (file, n) in ran), None)
        if begin is None:
            continue
        head = [n for n in numbers if n < begin and source.at(n).start == source.at(numbers[0]).start]
        body = [n for n in numbers if n >= begin]
        left_out = [0] if len(head) + len(body) < len(numbers) else []
        lines += [Line(0, "")] if lines else []
        for n in head + left_out + body:
            places[file, n] = len(lines)
            lines.append(Line(n, source.line(n) if n else "⋯"))
    return lines, places


class _Watcher:
    """Looks at the memory model and at the followed frames after each line."""

    def __init__(self, mem):
        self.mem, self.base = mem, (len(mem.log), mem.read, mem.written)
        self.steps, self.tensors = [], {}
        self.events = []                               # of each step, its part of the log: (start, stop)

    def ran(self, frame, file, statement, how):
        start = self.events[-1][1] if self.events else self.base[0]
        log = self.mem.log[start:]
        if how == "resumes" and not log:
            return False
        self.events.append((start, len(self.mem.log)))
        name, known = self.mem.running or ("", {})
        self.tensors |= {key: tuple(T.shape) for key, T in known.items()}
        with _disable_current_modes(), torch._C.DisableTorchFunction():      # we look at tensors, the kernel does not
            chip, hbm, values = self._tensors(frame, known)
        sets = () if how == "calls" else tuple(sorted(statement.sets))
        live = self.mem.sram_live
        self.steps.append(Step(
            (file, statement), 0, name, moves=_moves(log), sets=sets, uses=tuple(sorted(statement.reads)), hbm=hbm,
            chip=chip, values=values, read=self.mem.read - self.base[1], written=self.mem.written - self.base[2],
            live=live, peak=max([live, *(event.live for event in log)])))
        return True

    def _tensors(self, frame, known):
        """The named tensors of the frame and of those that called it: on chip, in HBM, and some numbers of each."""
        names = {T.untyped_storage()._cdata: (key, T) for key, T in known.items()}
        while frame is not None and frame.f_code.co_filename != __file__:    # not beyond the call that is recorded
            for key, T in frame.f_locals.items():
                if isinstance(T, torch.Tensor) and T.layout == torch.strided and T.device.type != "meta":
                    names.setdefault(T.untyped_storage()._cdata, (key, T))
            frame = frame.f_back
        chip, hbm, values = {}, {}, {}
        for key, T in names.values():
            there = chip if self.mem.on_chip(T) else hbm
            key = f"old {key}" if key in values else key
            there[key] = Tensor(key, tuple(T.shape), T.untyped_storage().nbytes() if there is chip else T.nbytes)
            values[key] = corner(T.detach()) if T.is_floating_point() else []
        return tuple(chip.values()), tuple(hbm.values()), values

    def finish(self, keep_tail):
        """Drop what ran before the first byte moved and after the last; say which tile each step works on."""
        log, (seen, stop) = self.mem.log, self.events[-1]
        if len(log) > stop:                            # moved by a caller that is not followed, after the last line
            last = self.steps[-1]
            last.read, last.written = self.mem.read - self.base[1], self.mem.written - self.base[2]
            last.moves += _moves(log[stop:])
            self.events[-1] = seen, len(log)
        moving = [n for n, (start, stop) in enumerate(self.events) if stop > start]
        first = min([*moving, *(n for n, step in enumerate(self.steps) if step.phase)], default=0)
        end = len(self.steps) if keep_tail or not moving else moving[-1] + 1
        self.steps, self.events = self.steps[first:end], self.events[first:end]
        tiles, tile, loops = _tiles(log, self.base[0]), (), []
        for step, (start, stop) in zip(self.steps, self.events, strict=True):
            if stop > start:
                tile = tiles[stop - 1]
                for head in loops:                     # the head of a loop and what follows it go with the next load
                    head.tile = tile
                loops = []
            elif loops or step.line[1].loop:
                loops.append(step)
            step.tile = tile if step.phase else ()


def _moves(log):
    return tuple(Move(one.kind, one.name, one.rows, one.cols) for one in log if one.kind in ("load", "store"))


def corner(x):
    """The first numbers of a tile as text: some rows, two columns; of a vector one number a row."""
    if x.ndim > 2 or 0 in x.shape:
        return []
    x = x.reshape(-1, 1) if x.ndim < 2 else x
    return [[number(one) for one in row] for row in x[:SHOWN_ROWS, :SHOWN_COLUMNS].tolist()]


def _tiles(log, base):
    """For each event the tile (rows, cols) that it belongs to, () if none.

    That is the tile of the next product if something was loaded for it, else that of the last.
    """
    products = {event.name for event in log[base:]} & MATMULS
    found, spans, since, kernel, tile = {}, {}, base, None, ()
    for n, event in enumerate(log[base:], start=base):
        if event.kernel != kernel:
            kernel, spans, since, tile = event.kernel, {}, n, ()
        found[n] = tile
        if event.kind == "load":
            since = n if since is None else since
            spans |= zip(AXES.get(event.name, ()), (event.rows, event.cols), strict=False)
        elif event.kind == "compute" and (event.name in products or not products) and {"i", "j"} <= set(spans):
            tile = spans["i"], spans["j"]
            found |= dict.fromkeys(range(n if since is None else since, n + 1), tile)
            since = None
    return found
