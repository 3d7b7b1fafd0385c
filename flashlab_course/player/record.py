"""Recording a run on modelled memory, line by line."""

import linecache
import traceback
from dataclasses import replace

import torch

from flashlab.ladder import find
from flashlab.memory import A100_SRAM, Memory
from flashlab.torch_internals import without_modes
from flashlab_course.player.lines import TooLong, Tracer, code_of
from flashlab_course.player.recording import AXES, Line, Move, Recording, Step, check_size, corner, in_rows

MATMULS = {"mm", "bmm", "addmm", "baddbmm", "mv", "dot"}


def record(fn, *args, sram_bytes=A100_SRAM, follow=None, rows=None, say=None, **kwargs):
    """Run fn(*args, **kwargs) under the memory model and keep what every line did, for `play`.

    sram_bytes  the SRAM of the model
    follow      the function whose lines are shown, with those of others in its file or cell. None: fn itself
    rows        show each operation outside kernels so many rows at a time
    say         {a piece of a line: a sentence that the player shows while the line runs}

    An exception ends the recording: the line that raised it is the last step, and the error is kept, not raised.
    Raises: ValueError for more than 24 × 24 tiles or 3000 lines, or if no line of `follow` ran
    """
    follow = follow or fn
    file = code_of(follow).co_filename
    with Memory(sram_bytes) as mem:
        watcher = _Watcher(mem)
        tracer = Tracer(lambda code: code.co_filename == file, watcher.ran)
        error = run(tracer, lambda: fn(*args, **kwargs))
        if watcher.steps:
            watcher.finish(failed=error is not None)
    name = getattr(follow, "__name__", type(follow).__name__)
    if follow is fn and not find(name):                # a lesson's short version of a rung: the title of its kernel
        name = next((step.phase for step in watcher.steps if find(step.phase)), name)
    recording = finish(watcher, tracer, error, name, sram_bytes)
    for step in recording.steps:
        step.told = next((said for piece, said in (say or {}).items() if piece in recording.lines[step.line].text), "")
    if rows:
        recording.steps = in_rows(recording.steps, rows)
    return recording


def run(tracer, call):
    """The exception that call() ended with, or None. KeyboardInterrupt is raised."""
    try:
        with tracer.on():
            call()
    except Exception as error:
        while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
            error = error.__cause__                    # Triton's interpreter wraps what the kernel raised
        return error
    return None


def finish(watcher, tracer, error, name, sram_bytes=None, lead=()):
    """The Recording of what a watcher saw."""
    steps = watcher.steps
    if not steps:
        if error is not None and not isinstance(error, TooLong):
            raise error
        raise ValueError(f"no line of {name} ran: `follow` must name a function that is called")
    lines, places = _shown(tracer, steps)
    for step in steps:
        file, statement = step.line
        step.line = places.get((file, statement.start), 0)
        step.last = max(step.line, places.get((file, statement.stop), 0))
    rung = find(name)
    recording = Recording(rung.title if rung else name, name, lines, steps, watcher.tensors, sram_bytes, lead)
    check_size(recording, stopped=isinstance(error, TooLong))
    if error is not None:
        recording.error = f"{type(error).__name__}: {error}"
        frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        for raised in [places[frame] for frame in frames if frame in places][-1:]:
            steps.append(replace(steps[-1], line=raised, last=raised, moves=(), sets=(), uses=()))
    return recording


def _shown(tracer, steps):
    """The followed functions that ran, outer ones first, and the place of each (file, number) among their lines."""
    ran = {(step.line[0], number) for step in steps for number in range(step.line[1].start, step.line[1].stop + 1)}
    lines, places = [], {}
    for file, first in tracer.functions:
        numbers = tracer.source(file).shown(first) or sorted(number for where, number in ran if where == file)
        if ran.isdisjoint((file, number) for number in numbers):
            continue
        lines += [Line(0, "")] if lines else []
        for number in numbers:
            places[file, number] = len(lines)
            lines.append(Line(number, linecache.getline(file, number).rstrip()))
    return lines, places


class _Watcher:
    """Looks at the memory model and at the followed frames after each line."""

    def __init__(self, mem):
        self.mem, self.steps, self.tensors = mem, [], {}
        self.seen = [0]                                # how long the log was after each step

    def ran(self, frame, file, statement, how):
        mem, since = self.mem, self.seen[-1]
        kinds = [event.kind for event in mem.log[since:]]
        if self.steps and "store" in kinds[:kinds.index("load") if "load" in kinds else 0]:
            self._moved_outside(since + kinds.index("load"))           # no line stores and then loads
        log = mem.log[self.seen[-1]:]
        if how == "resumes" and not log:
            return
        self.seen.append(len(mem.log))
        phase, known = mem.running or ("", {})
        self.tensors |= {name: tuple(T.shape) for name, T in known.items()}
        with without_modes():                          # the player looks at tensors, the kernel does not
            chip, hbm, values = self._tensors(frame, file, known)
        self.steps.append(Step(
            (file, statement), 0, phase, _moves(log), () if how == "calls" else statement.sets, statement.reads,
            read=mem.read, written=mem.written, hbm=hbm, chip=chip, live=mem.sram_live,
            peak=max([mem.sram_live, *(event.live for event in log)]), values=values,
            ops=tuple((event.read, event.written) for event in log if event.kind == "eager")))

    def _tensors(self, frame, file, known):
        """The tensors that the frame, or a caller in the same file, names: on chip, in HBM, some numbers of each."""
        names = {T.untyped_storage().data_ptr(): (name, T) for name, T in known.items()}
        while frame is not None and frame.f_code.co_filename != __file__:    # not beyond the call that is recorded
            for name, T in frame.f_locals.items() if frame.f_code.co_filename == file else ():
                if isinstance(T, torch.Tensor) and T.layout == torch.strided and T.device.type != "meta":
                    names.setdefault(T.untyped_storage().data_ptr(), (name, T))
            frame = frame.f_back
        chip, hbm, values = {}, {}, {}
        for name, T in names.values():
            place, nbytes = (chip, T.untyped_storage().nbytes()) if self.mem.on_chip(T) else (hbm, T.nbytes)
            name = f"old {name}" if name in place else name
            place[name] = tuple(T.shape), nbytes
            values.setdefault(name, corner(T.detach()) if T.is_floating_point() else [])
        return chip, hbm, values

    def _moved_outside(self, until):
        """Give the last step what a caller that is not followed has moved since, up to that event of the log."""
        step, moved = self.steps[-1], self.mem.log[self.seen[-1]:until]
        step.read += sum(event.read for event in moved)
        step.written += sum(event.written for event in moved)
        step.moves += _moves(moved)
        self.seen[-1] = until

    def finish(self, failed):
        """Drop the steps before the first byte moved and after the last; say which tile each step works on."""
        log, seen = self.mem.log, self.seen
        self._moved_outside(len(log))
        tiles, tile, phase = _tiles(log), (), ""
        for n, step in enumerate(self.steps):
            if seen[n + 1] > seen[n]:
                tile = tiles[seen[n + 1] - 1]
            elif step.phase != phase:
                tile = ()
            phase, step.tile = step.phase, tile if step.phase else ()
        moving = [n for n in range(len(self.steps)) if seen[n + 1] > seen[n]]
        first = min([*moving, *(n for n, step in enumerate(self.steps) if step.phase)], default=0)
        last = len(self.steps) if failed or not moving else moving[-1] + 1
        self.steps = self.steps[first:last]


def _moves(log):
    return tuple(Move(one.kind, one.name, one.rows, one.cols) for one in log if one.kind in ("load", "store"))


def _tiles(log):
    """For each event the tile (rows, cols) that it belongs to, () if none.

    A load belongs to the next product, all other events to the last one.
    """
    products = {event.name for event in log} & MATMULS
    found, spans, since, kernel = [()] * len(log), {}, None, None
    for n, event in enumerate(log):
        if event.kernel != kernel:
            kernel, spans, since = event.kernel, {}, n
        elif n:
            found[n] = found[n - 1]
        if event.kind == "load":
            since = n if since is None else since
            spans |= zip(AXES.get(event.name, ()), (event.rows, event.cols), strict=False)
        elif event.kind == "compute" and (event.name in products or not products) and {"i", "j"} <= set(spans):
            since = n if since is None else since
            found[since:n + 1] = [(spans["i"], spans["j"])] * (n + 1 - since)
            since = None
    return found
