"""A two-level memory model: HBM, where every byte that moves is counted, and SRAM, whose size is enforced.

    with Memory(sram_bytes=192 * KiB) as mem:
        O, _ = naive_forward(Q, K, V)          # eager PyTorch: each op is a kernel of its own, HBM in, HBM out
    mem.read, mem.written                      # bytes

    with kernel("name", Q=Q, O=O):             # one kernel launch: only load and store touch HBM
        Q_i = load(Q, rows)                    # HBM -> SRAM
        ...                                    # results take up SRAM for as long as they live
        store(O, rows, O_i)                    # SRAM -> HBM

Outside a Memory, `kernel` only turns autograd off, `load` copies and `store` assigns, so a rung runs the same with and
without it. ops.py says how each operation is counted. `print` is free, and so is a number that no operation inside
computed. A Memory sees only the thread that entered it.
"""

import linecache
import os
import sys
import weakref
from collections import Counter
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from flashlab import ops, torch_internals
from flashlab.validate import check_positive, describe

KiB = 1024
A100_SRAM = 192 * KiB      # per SM; NVIDIA A100 whitepaper. The budget when nothing else is said.
OVERFLOW_ADVICE = "Use smaller tiles, or give Memory a larger sram_bytes."
UNSEEN = "the model cannot see what it moves. Measure the PyTorch rung instead, or the GPU's own counters."


class MemoryModelError(RuntimeError):
    """An operation that the hardware could not do as written: a tile used before it was loaded, for instance."""


class SRAMOverflow(MemoryModelError):
    """A kernel's live tiles do not fit the SRAM."""


class Event(NamedTuple):
    """One line of the log. Bytes; `live` is what SRAM holds once the event is over."""

    kernel: str            # the kernel, or the op where an eager op is a kernel of its own
    kind: str              # "eager", "load", "store" or "compute"
    name: str              # the tensor loaded or stored (as named in `kernel(...)`), or the op
    rows: tuple            # (start, stop) of a load or store, else ()
    cols: tuple
    read: int
    written: int
    live: int


def active():
    """The Memory in force, or None."""
    return next((mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, Memory)), None)


def tiles(N, B):
    """The slices that cut 0 … N into blocks of at most B; the last one is short when B does not divide N."""
    check_positive(B=B)
    return [slice(start, min(start + B, N)) for start in range(0, N, B)]


@contextmanager
def kernel(name, **tensors):
    """One kernel launch. The keywords give the tensors in HBM the names that the log uses; autograd is off inside.

    Raises: MemoryModelError for a kernel inside a kernel, TypeError for a keyword that is not a tensor
    """
    for key, T in tensors.items():
        if not isinstance(T, torch.Tensor):
            raise TypeError(f"kernel({name!r}): {key} must be a torch.Tensor in HBM, got {describe(T)}")
    mem = active()
    with torch.no_grad(), mem.launch(name, tensors) if mem else nullcontext():
        yield


def load(T, rows, cols=slice(None)):
    """HBM -> SRAM: a copy of T[rows, cols] (T[rows] for a vector), counted in T's own dtype.

    Raises: TypeError if rows or cols is not a slice; under a Memory, MemoryModelError outside a kernel or for a tile
            that is on chip already, SRAMOverflow if it does not fit
    """
    index, mem = _index("load", T, rows, cols), active()
    if mem is None:
        return T[index].clone()
    with mem.moving("load", T, index):
        return mem.place(T[index].clone(memory_format=torch.contiguous_format), "load", _user_frame())


def store(T, rows, tile, cols=slice(None)):
    """SRAM -> HBM: T[rows, cols] = tile (T[rows] for a vector), cast to and counted in T's dtype.

    Raises: as load; TypeError if tile is not a tensor, ValueError if its shape is not exactly that of its place
    """
    index, mem = _index("store", T, rows, cols), active()
    if not isinstance(tile, torch.Tensor):
        raise TypeError(f"store: tile must be a torch.Tensor of the shape of its place, got {describe(tile)}; "
                        "torch.zeros(...) inside the kernel makes one of zeros")
    place = tuple(T[index].shape)
    if tuple(tile.shape) != place:
        raise ValueError(f"store: tile has shape {tuple(tile.shape)}, but T[rows, cols] has shape {place}")
    with mem.moving("store", T, index, tile) if mem else nullcontext():
        T[index] = tile


def _index(verb, T, rows, cols):
    if not isinstance(T, torch.Tensor) or T.ndim not in (1, 2):
        raise TypeError(f"{verb}: T must be a vector or a matrix in HBM, such as one head Q[b, h], got {describe(T)}")
    for name, part in (("rows", rows), ("cols", cols)):
        if not isinstance(part, slice):
            raise TypeError(f"{verb}: {name} must be a slice such as slice(0, 64), got {describe(part)}")
    return (rows,) if T.ndim == 1 else (rows, cols)


class Memory(torch_internals.DispatchMode):
    """Counts HBM traffic and enforces the SRAM size for everything run inside `with Memory() as mem:`.

    sram_bytes   the SRAM of one program (one streaming multiprocessor), in bytes

    mem.read, mem.written      bytes moved HBM -> chip and chip -> HBM
    mem.sram_peak              most bytes of live tiles at any moment
    mem.hbm_peak               most bytes of tensors allocated inside the block and outside kernels
    mem.matmul_flops           2·m·n·k of every matrix product; mem.other_flops: one per element of every other result
    mem.log                    a list of Event, in order
    mem.table()                read and written per kernel, as text

    While a kernel is on:
    mem.running                its (name, {name: tensor in HBM}); None outside
    mem.sram_live              bytes on chip at this moment
    mem.on_chip(T)             True if T is one of the tiles that take them up
    """

    def __init__(self, sram_bytes=A100_SRAM):
        check_positive(sram_bytes=sram_bytes)
        super().__init__()
        self.sram_bytes = sram_bytes
        self.read = self.written = self.sram_peak = self.hbm_peak = 0
        self.matmul_flops = self.other_flops = 0
        self.sram_live, self.log, self.running = 0, [], None
        self._tiles = {}       # storage -> (bytes, what, line that made it) of each tile on chip
        self._hbm = {}         # storage -> bytes of what was allocated outside kernels
        self._lost = {}        # storage -> the kernel that ended with it on chip

    def __enter__(self):
        if active() is not None:
            raise MemoryModelError("a Memory starts inside a Memory: they do not nest")
        if triton := sys.modules.get("triton"):              # its compiled kernels bypass PyTorch's dispatcher
            triton.knobs.runtime.launch_enter_hook.add(_refuse_triton)
        return super().__enter__()

    def __exit__(self, *exc):
        if triton := sys.modules.get("triton"):
            triton.knobs.runtime.launch_enter_hook.remove(_refuse_triton)
        return super().__exit__(*exc)

    def table(self):
        """Read and written per kernel in order of first launch, one line each, and their sum."""
        read, written = Counter(), Counter()
        for event in self.log:
            read[event.kernel] += event.read
            written[event.kernel] += event.written
        read["total"], written["total"] = self.read, self.written
        lines = [f"{name:<22}{format_bytes(read[name]):>12}{format_bytes(written[name]):>12}" for name in read]
        return "\n".join([f"{'kernel':<22}{'read':>12}{'written':>12}", *lines])

    # ---- every operation of PyTorch passes here

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        op = ops.operation(func)
        if torch.is_inference_mode_enabled():
            raise MemoryModelError("Memory cannot count under torch.inference_mode(), where matmul and reshape are not "
                                   "taken apart: use torch.no_grad()")
        if op.free:
            return func(*args, **kwargs or {})
        with torch_internals.without_torch_function():       # no mode needs to see the questions about shapes below
            return self._run(func, op, args, kwargs or {})

    def _run(self, func, op, args, kwargs):
        frame = _user_frame()
        if not op.known or frame.f_globals.get("__name__", "").startswith("triton."):
            raise MemoryModelError(f"{func} is a custom or Triton kernel: {UNSEEN}")
        operands, targets = op.operands(args, kwargs), op.targets(args, kwargs)
        for n, T in enumerate(operands):
            self._check_place(op.name, n, T)
        out = func(*args, **kwargs)
        results, before = ops.tensors((out,)), {ops.key(T) for T in operands}
        fresh = [T for T in results if ops.key(T) not in before]
        if results and not fresh and not targets or op.name == "copy_" and ops.same_elements(*args[:2]):
            return out                                       # nothing moved
        matmul_flops, other_flops = op.flops(args, operands, fresh or targets)
        self.matmul_flops += matmul_flops
        self.other_flops += other_flops
        if self.running:                                     # inside a kernel nothing moves, and results take up SRAM
            for T in (*fresh, *targets):
                self.place(T, op.name, frame)
            self._count(self.running[0], "compute", op.name)
            return out
        reads, writes = op.moved(args, operands, fresh, targets)     # outside, from HBM and to HBM
        read = sum(ops.nbytes(T) for T in reads if not self._goes_by_value(T))
        written = sum(ops.nbytes(T) for T in writes)
        for T in () if op.makes_a_number else fresh:
            self._hbm[ops.key(T)] = T.untyped_storage().nbytes()
            weakref.finalize(T.untyped_storage(), self._free, ops.key(T))
        self.hbm_peak = max(self.hbm_peak, sum(self._hbm.values()))
        if read or written:
            self._count(op.name, "eager", op.name, read=read, written=written)
        return out

    def _count(self, kernel, kind, name, rows=(), cols=(), read=0, written=0):
        self.read += read
        self.written += written
        self.log.append(Event(kernel, kind, name, rows, cols, read, written, self.sram_live))

    def _check_place(self, op, n, T):
        """Raise unless operand n is in reach: on chip inside a kernel, in HBM outside."""
        if kernel := self._lost.get(ops.key(T)):
            raise MemoryModelError(f"{op}: operand {n}, {ops.what(T)}, was on chip in kernel {kernel!r} and ended with "
                                   "it. store() it to HBM before the kernel ends.")
        if self.running and not self.on_chip(T) and not self._goes_by_value(T):
            name = self._name(T)
            raise MemoryModelError(
                f"{op} in kernel {self.running[0]!r}: operand {n}, {name or 'a tensor'} {ops.what(T)}, is in HBM. "
                f"Operations see only what is on chip: load({name or 'it'}, rows) first.")

    def _goes_by_value(self, T):
        """True for a number that no operation computed: an argument of a kernel, not read from HBM."""
        return T.ndim == 0 and T.untyped_storage().nbytes() <= T.element_size() and ops.key(T) not in self._hbm

    # ---- what kernel(), load() and store() do under a Memory

    @contextmanager
    def launch(self, name, tensors):
        if self.running:
            raise MemoryModelError(f"kernel {name!r} starts inside kernel {self.running[0]!r}: one launch at a time")
        if lost := [key for key, T in tensors.items() if ops.key(T) in self._lost]:
            raise MemoryModelError(f"kernel {name!r}: {lost[0]} was on chip in a kernel that has ended: "
                                   "store() it there")
        self.running = name, tensors
        try:
            with _ReadsPastOperations(self._check_place):
                yield
        finally:                                             # tiles that still live are lost with the kernel
            self._lost |= dict.fromkeys(self._tiles, name)
            self._tiles.clear()
            self.sram_live, self.running = 0, None

    @contextmanager
    def moving(self, verb, T, index, tile=None):
        """Check and count a load of T[index], or a store of tile. PyTorch's operations inside are not counted."""
        if not self.running:
            raise MemoryModelError(f"{verb} outside a kernel: write `with kernel(\"name\", ...):` around the loops")
        kernel, names = self.running
        if self.on_chip(T):
            raise MemoryModelError(f"{verb} in kernel {kernel!r}: T {ops.what(T)} is on chip, not in HBM")
        if tile is not None and tile.ndim > 0 and not self.on_chip(tile):
            raise MemoryModelError(f"store in kernel {kernel!r}: the tile {ops.what(tile)} is not on chip")
        with torch_internals.without_dispatch(), torch_internals.without_torch_function():
            yield
            name, nbytes = self._name(T), ops.nbytes(T[index])
        if name is None or not ops.same_elements(T, names[name]):
            name = f"{name or 'tensor'}{tuple(T.shape)}"     # rows and columns of a view are not those of the tensor
        spans = [part.indices(size)[:2] for part, size in zip(index, T.shape, strict=True)]
        self._count(kernel, verb, name, *spans, **{"read" if verb == "load" else "written": nbytes})

    def _name(self, T):
        """The running kernel's name for T, or for the tensor that T is a view of; None if it has no name."""
        return {ops.key(known): name for name, known in self.running[1].items()}.get(ops.key(T))

    # ---- the tiles on chip

    def on_chip(self, T):
        return ops.key(T) in self._tiles

    def place(self, T, op, frame):
        """T, with a place on chip, or raise if there is none. A tile written in place has one already."""
        if self.on_chip(T):
            return T
        storage = T.untyped_storage()
        if not storage.resizable():
            raise MemoryModelError(f"a NumPy array {ops.what(T)} is in HBM: make it a tensor before the kernel, and "
                                   "load that")
        nbytes = storage.nbytes()
        if self.sram_live + nbytes > self.sram_bytes:
            file, line = frame.f_code.co_filename, frame.f_lineno
            place = "this cell, line " if "ipykernel" in file else f"{os.path.basename(file)}:"
            used, budget = format_bytes(self.sram_live), format_bytes(self.sram_bytes)
            raise SRAMOverflow(f"{op} makes a tile {ops.what(T)} of {format_bytes(nbytes)}, but {used} of the SRAM's "
                               f"{budget} are in use.\n  at {place}{line}: {linecache.getline(file, line).strip()}\n"
                               f"  live: {self._live(frame)}\n  {OVERFLOW_ADVICE}")
        self._tiles[ops.key(T)] = nbytes, ops.what(T), frame.f_lineno
        weakref.finalize(storage, self._free, ops.key(T))
        self.sram_live += nbytes
        self.sram_peak = max(self.sram_peak, self.sram_live)
        return T

    def _free(self, key):
        """Called when a storage dies, which it does with the last tensor in it."""
        self._lost.pop(key, None)
        self._hbm.pop(key, None)
        self.sram_live -= self._tiles.pop(key, (0,))[0]

    def _live(self, frame):
        """The tiles on chip, in words, by their names in this frame and its callers."""
        names = {}
        while frame is not None:
            for name, T in frame.f_locals.items():
                if isinstance(T, torch.Tensor):
                    names.setdefault(ops.key(T), name)
            frame = frame.f_back
        tiles = Counter(f"{names.get(key, f'made in line {line}')} {what} {format_bytes(nbytes)}"
                        for key, (nbytes, what, line) in self._tiles.items())
        return ", ".join(tile if n == 1 else f"{n} tiles {tile} each" for tile, n in tiles.items()) or "nothing"


def _refuse_triton(*_):
    raise MemoryModelError(f"a Triton kernel was launched inside Memory: {UNSEEN}")


class _ReadsPastOperations(TorchFunctionMode):
    """Inside a kernel: checks tolist(), numpy() and others that read memory without an operation Memory could see."""

    READ_MEMORY = {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__,
                   torch.tensor, torch.as_tensor}            # the last two read lists of tensors with one element

    def __init__(self, check_place):
        super().__init__()
        self.check_place = check_place

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in self.READ_MEMORY:
            for n, T in enumerate(ops.tensors(args)):
                self.check_place(func.__name__.strip("_"), n, T)
        return func(*args, **(kwargs or {}))


def _user_frame():
    """The innermost frame that is neither PyTorch's nor this file's nor a mode's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (frame.f_code.co_filename.startswith((__file__, os.path.dirname(torch.__file__)))
                                        or frame.f_code.co_name == "__torch_function__"):
        frame = frame.f_back
    return frame


def format_bytes(n):
    """1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.0f} B" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
