"""A two-level memory model: HBM, where every byte that moves is counted, and SRAM, whose size is enforced.

    with Memory(sram_bytes=192 * KiB) as mem:
        O, L = naive_forward(Q, K, V)          # eager PyTorch: each op is a kernel of its own, HBM in, HBM out
    mem.read, mem.written                      # bytes

    with kernel("name", Q=Q, O=O):             # one kernel launch: only load and store touch HBM
        Q_i = load(Q, rows)                    # HBM -> SRAM
        ...                                    # results take up SRAM for as long as they live
        store(O, rows, O_i)                    # SRAM -> HBM

Outside a Memory, `kernel` does nothing, `load` copies and `store` assigns, so a rung runs the same with and without it.

What is counted. An eager op reads each of its distinct operands once and writes its results; an in-place op reads and
writes its target; copy_, fill_, zero_ and random fills only write it; zeros, full, arange and their kind write. Free are
views, empty tensors and scalars, unless an op computed them. A dimension of stride 0 (an expanded tensor) counts once.
"""

import linecache
import os
import sys
import weakref
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from flashlab.validate import check_positive, describe

KiB = 1024
A100_SRAM = 192 * KiB      # per SM; NVIDIA A100 whitepaper. The budget when nothing else is said.

_ALLOCATES_ONLY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided",
                   "scalar_tensor", "lift_fresh"}
_READS_NO_OPERAND = {"zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like",
                     "new_zeros", "new_ones", "new_full"}
_OVERWRITES_TARGET = {"copy_", "fill_", "zero_", "uniform_", "normal_", "bernoulli_", "random_", "exponential_"}
_NO_ARITHMETIC = {"clone", "copy_", "_to_copy", "cat", "stack", "fill_", "zero_", "zeros", "ones", "full", "arange"}
_MATMULS = {"mm", "bmm", "addmm", "baddbmm"}

_memories = []             # the active Memory is the last one


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


class _Tile(NamedTuple):
    nbytes: int
    what: str              # "(64, 64) float32"
    where: tuple           # (file, line) that made it


def active():
    """The Memory in force, or None."""
    return _memories[-1] if _memories else None


@contextmanager
def apart():
    """Within: no Memory in force. Afterwards that of before, also if one was entered inside and never left."""
    before = list(_memories)
    _memories.clear()
    try:
        yield
    finally:
        _memories[:] = before


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
    with torch.no_grad():
        if mem is None:
            yield
            return
        mem._launch(name, tensors)
        try:
            yield
        finally:
            mem._finish()


def load(T, rows, cols=slice(None)):
    """HBM -> SRAM: a copy of T[rows, cols] (T[rows] for a vector), counted in T's own dtype.

    Raises: TypeError if rows or cols is not a slice; under a Memory, MemoryModelError outside a kernel or for a tile
            that is on chip already, SRAMOverflow if it does not fit
    """
    index = _index("load", T, rows, cols)
    mem = active()
    return T[index].clone() if mem is None else mem._load(T, index)


def store(T, rows, tile, cols=slice(None)):
    """SRAM -> HBM: T[rows, cols] = tile (T[rows] for a vector), cast to and counted in T's dtype.

    Raises: as load; ValueError if the tile's shape is not exactly that of its place
    """
    index = _index("store", T, rows, cols)
    place = tuple(T[index].shape) if active() is None else active()._shape(T, index)
    if tuple(tile.shape) != place:
        raise ValueError(f"store: tile has shape {tuple(tile.shape)}, but T[rows, cols] has shape {place}")
    mem = active()
    if mem is None:
        T[index] = tile
    else:
        mem._store(T, index, tile)


def _index(verb, T, rows, cols):
    if not isinstance(T, torch.Tensor) or T.ndim not in (1, 2):
        raise TypeError(f"{verb}: T must be a vector or a matrix in HBM, got {describe(T)}")
    for name, part in (("rows", rows), ("cols", cols)):
        if not isinstance(part, slice):
            raise TypeError(f"{verb}: {name} must be a slice such as slice(0, 64), got {describe(part)}")
    return (rows,) if T.ndim == 1 else (rows, cols)


class Memory(TorchDispatchMode):
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

    Raises: TypeError, ValueError if sram_bytes is not an integer >= 1
    """

    def __init__(self, sram_bytes=A100_SRAM):
        check_positive(sram_bytes=sram_bytes)
        super().__init__()
        self.sram_bytes = sram_bytes
        self.read = self.written = self.sram_peak = self.hbm_peak = 0
        self.matmul_flops = self.other_flops = 0
        self.log = []
        self._sram, self._hbm, self._left_over = {}, {}, {}     # storage -> _Tile, bytes, name of the finished kernel
        self._sram_live = self._hbm_live = 0
        self._kernel, self._names = None, {}
        self.running = None
        self._pass_through = False                              # load and store do their own counting

    def __enter__(self):
        _memories.append(self)
        self._watch_triton("add")
        return super().__enter__()

    def __exit__(self, *exc):
        self._watch_triton("remove")
        _memories.remove(self)
        return super().__exit__(*exc)

    def __repr__(self):
        return (f"Memory(read {format_bytes(self.read)}, written {format_bytes(self.written)}, "
                f"SRAM peak {format_bytes(self.sram_peak)} of {format_bytes(self.sram_bytes)}, "
                f"HBM peak {format_bytes(self.hbm_peak)})")

    @property
    def sram_live(self):
        return self._sram_live

    def on_chip(self, T):
        return _key(T) in self._sram

    def table(self):
        """Read and written per kernel in order of first launch, one line each, and their sum."""
        rows = {}
        for event in self.log:
            read, written = rows.get(event.kernel, (0, 0))
            rows[event.kernel] = (read + event.read, written + event.written)
        rows["total"] = (self.read, self.written)
        lines = [f"{'kernel':<22}{'read':>12}{'written':>12}"]
        lines += [f"{name:<22}{format_bytes(r):>12}{format_bytes(w):>12}" for name, (r, w) in rows.items()]
        return "\n".join(lines)

    # ---- every PyTorch operation passes here

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._pass_through:
            return func(*args, **kwargs)
        frame = _user_frame()
        if func.namespace != "aten" or _is_triton(frame):
            raise MemoryModelError(
                f"{func} is a custom or Triton kernel: the model cannot see what it moves. "
                "Measure the PyTorch rung instead, or the GPU's own counters."
            )
        op = func._schema.name.removeprefix("aten::")
        operands = _tensors(args) + _tensors(kwargs.values()) if op != "lift_fresh" else []     # torch.tensor of Python numbers
        for n, T in enumerate(operands):
            self._check_place(func, n, T)
        out = func(*args, **kwargs)
        known = {_key(T) for T in operands}
        results = _tensors((out,))
        fresh = [T for T in results if _key(T) not in known]
        mutable = func._schema.is_mutable
        if mutable or fresh or not results:                      # else a view: free
            count = self._compute if self._kernel else self._eager
            count(op, func, args, kwargs, operands, fresh, frame)
        return out

    def _check_place(self, func, n, T):
        """An operand must be where the operation runs: on chip inside a kernel, in HBM outside."""
        key = _key(T)
        op = func._schema.name.removeprefix("aten::")
        if key in self._left_over:
            raise MemoryModelError(
                f"{op}: operand {n}, {_what(T)}, was on chip in kernel {self._left_over[key]!r} and ended with it. "
                "store() it to HBM before the kernel ends."
            )
        if self._kernel and T.ndim > 0 and key not in self._sram:
            name = self._names.get(key)
            raise MemoryModelError(
                f"{op} in kernel {self._kernel!r}: operand {n}, {name or 'a tensor'} {_what(T)}, is in HBM. "
                f"Operations see only what is on chip: load({name or 'it'}, rows) first."
            )

    def _eager(self, op, func, args, kwargs, operands, fresh, frame):
        targets = _targets(func, args, kwargs)
        overwritten = {id(T) for T in targets} if op in _OVERWRITES_TARGET or "out" in func._overloadname else set()
        read = written = 0
        if op not in _ALLOCATES_ONLY:
            written = sum(_nbytes(T) for T in fresh) + sum(_nbytes(T) for T in targets)
            if op not in _READS_NO_OPERAND:
                sources = [T for T in operands if id(T) not in overwritten and (T.ndim > 0 or _key(T) in self._hbm)]
                distinct = {(_key(T), T.storage_offset(), T.shape, T.stride()): T for T in sources}
                read = sum(_nbytes(T) for T in distinct.values())
            self._count_flops(op, operands, fresh or targets)
        for T in fresh:
            if op not in ("scalar_tensor", "lift_fresh"):        # a Python number on its way into a kernel's arguments
                self._track(self._hbm, T, T.untyped_storage().nbytes())
        self.hbm_peak = max(self.hbm_peak, self._hbm_live)
        if read or written:
            self.read += read
            self.written += written
            self.log.append(Event(op, "eager", op, (), (), read, written, 0))

    def _compute(self, op, func, args, kwargs, operands, fresh, frame):
        for T in fresh:
            self._place(T, op, frame)
        if op not in _ALLOCATES_ONLY:
            self._count_flops(op, operands, fresh or _targets(func, args, kwargs))
        self.log.append(Event(self._kernel, "compute", op, (), (), 0, 0, self._sram_live))

    def _count_flops(self, op, operands, results):
        if op in _MATMULS and len(operands) >= 2:
            A, B = operands[-2:]                                 # addmm's bias comes first
            self.matmul_flops += 2 * A.numel() * B.shape[-1]
        elif op not in _NO_ARITHMETIC:
            self.other_flops += max((T.numel() for T in [*results, *operands]), default=0)   # a reduction counts its input

    # ---- kernels

    def _launch(self, name, tensors):
        if self._kernel:
            raise MemoryModelError(f"kernel {name!r} starts inside kernel {self._kernel!r}: one launch at a time")
        for key, T in tensors.items():
            if _key(T) in self._left_over:
                raise MemoryModelError(f"kernel {name!r}: {key} was on chip in a kernel that has ended: store() it there")
        self._kernel, self._names = name, {_key(T): key for key, T in tensors.items()}
        self.running = name, tensors

    def _finish(self):
        for key in self._sram:                                   # whatever still lives is lost with the kernel
            self._left_over[key] = self._kernel
        self._sram.clear()
        self._sram_live, self._kernel, self._names, self.running = 0, None, {}, None

    def _load(self, T, index):
        self._need_kernel("load", T)
        with self._uncounted():
            part = T[index]
            tile = part.clone(memory_format=torch.contiguous_format)
        read = _nbytes(part)
        self._place(tile, "load", _user_frame())
        self.read += read
        self._log_move("load", T, index, read, 0)
        return tile

    def _store(self, T, index, tile):
        self._need_kernel("store", T)
        if tile.ndim > 0 and _key(tile) not in self._sram:
            raise MemoryModelError(f"store in kernel {self._kernel!r}: the tile {_what(tile)} is not on chip")
        with self._uncounted():
            part = T[index]
            part.copy_(tile)
        written = _nbytes(part)
        self.written += written
        self._log_move("store", T, index, 0, written)

    def _shape(self, T, index):
        with self._uncounted():
            return tuple(T[index].shape)

    def _need_kernel(self, verb, T):
        if not self._kernel:
            raise MemoryModelError(f"{verb} outside a kernel: write `with kernel(\"name\", ...):` around the loops")
        if _key(T) in self._sram:
            raise MemoryModelError(f"{verb} in kernel {self._kernel!r}: T {_what(T)} is on chip, not in HBM")

    def _log_move(self, verb, T, index, read, written):
        spans = [part.indices(size)[:2] for part, size in zip(index, T.shape, strict=False)]
        name = self._names.get(_key(T), f"tensor{tuple(T.shape)}")
        cols = spans[1] if len(spans) == 2 else ()
        self.log.append(Event(self._kernel, verb, name, spans[0], cols, read, written, self._sram_live))

    @contextmanager
    def _uncounted(self):
        self._pass_through = True
        try:
            yield
        finally:
            self._pass_through = False

    # ---- what is alive

    def _place(self, T, op, frame):
        """Give a new tile its place on chip, or say why there is none."""
        nbytes = T.untyped_storage().nbytes()
        if self._sram_live + nbytes > self.sram_bytes:
            raise SRAMOverflow(self._overflow_message(T, op, nbytes, frame))
        self._track(self._sram, T, _Tile(nbytes, _what(T), (frame.f_code.co_filename, frame.f_lineno)))
        self.sram_peak = max(self.sram_peak, self._sram_live)

    def _track(self, level, T, entry):
        """Register T's storage in `level` until it is freed. Views share their tensor's storage, so they add nothing."""
        storage, key = T.untyped_storage(), _key(T)
        level[key] = entry
        if level is self._sram:
            self._sram_live += entry.nbytes
        else:
            self._hbm_live += entry
        weakref.finalize(storage, self._free, key).atexit = False

    def _free(self, key):
        self._left_over.pop(key, None)
        if (tile := self._sram.pop(key, None)) is not None:
            self._sram_live -= tile.nbytes
        self._hbm_live -= self._hbm.pop(key, 0)

    def _overflow_message(self, T, op, nbytes, frame):
        file, line = frame.f_code.co_filename, frame.f_lineno
        place = "this cell, line " if "ipykernel" in file else f"{os.path.basename(file)}:"
        names = _local_names(frame)
        live = [f"{names.get(key, f'made in line {tile.where[1]}')} {tile.what} {format_bytes(tile.nbytes)}"
                for key, tile in self._sram.items()]
        return (
            f"{op} makes a tile {_what(T)} of {format_bytes(nbytes)}, but {format_bytes(self._sram_live)} of the SRAM's "
            f"{format_bytes(self.sram_bytes)} are in use.\n"
            f"  at {place}{line}: {linecache.getline(file, line).strip()}\n"
            f"  live: {', '.join(live) or 'nothing'}\n"
            "  Use smaller tiles, or give Memory a larger sram_bytes."
        )

    # ---- Triton

    def _watch_triton(self, verb):
        """Compiled kernels bypass PyTorch's dispatcher; Triton's launch hook sees them."""
        if "triton" in sys.modules:
            hook = getattr(sys.modules["triton"].knobs.runtime, "launch_enter_hook", None)
            getattr(hook, verb, lambda _: None)(self._refuse_triton)

    def _refuse_triton(self, *_):
        raise MemoryModelError("a Triton kernel was launched inside Memory: the model cannot see what it moves. "
                               "Measure the PyTorch rung instead, or the GPU's own counters.")


def format_bytes(n):
    """1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.0f} B" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024


def _key(T):
    return T.untyped_storage()._cdata


def _nbytes(T):
    """Bytes of T's distinct elements: a dimension of stride 0 repeats the same ones."""
    n = T.element_size()
    for size, stride in zip(T.shape, T.stride(), strict=True):
        n *= size if stride != 0 or size == 0 else 1
    return n


def _what(T):
    return f"{tuple(T.shape)} {str(T.dtype).removeprefix('torch.')}"


def _tensors(values):
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _tensors(value)
    return found


def _targets(func, args, kwargs):
    """The operands that the op writes to."""
    if not func._schema.is_mutable:
        return []
    found = []
    for n, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[n] if n < len(args) else kwargs.get(argument.name)
            found += _tensors((value,))
    return found


def _is_triton(frame):
    return "triton" in frame.f_code.co_filename and frame.f_globals.get("__name__", "").startswith("triton.")


_TORCH = os.path.dirname(torch.__file__)


def _user_frame():
    """The innermost frame that is neither PyTorch's nor this file's, nor that of another mode: the line to show in an error."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (frame.f_code.co_filename == __file__ or frame.f_code.co_filename.startswith(_TORCH)
                                        or frame.f_code.co_name == "__torch_function__"):
        frame = frame.f_back
    return frame


def _local_names(frame):
    """storage -> name of a local variable that holds it, from `frame` outwards."""
    names = {}
    while frame is not None:
        for name, value in frame.f_locals.items():
            if isinstance(value, torch.Tensor):
                names.setdefault(_key(value), name)
        frame = frame.f_back
    return names
