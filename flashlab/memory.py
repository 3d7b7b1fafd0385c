"""A two-level memory model: HBM, where every byte that moves is counted, and SRAM, whose size is enforced.

    with Memory(sram_bytes=192 * KiB) as mem:
        O, L = naive_forward(Q, K, V)          # eager PyTorch: each op is a kernel of its own, HBM in, HBM out
    mem.read, mem.written                      # bytes

    with kernel("name", Q=Q, O=O):             # one kernel launch: only load and store touch HBM
        Q_i = load(Q, rows)                    # HBM -> SRAM
        ...                                    # results take up SRAM for as long as they live
        store(O, rows, O_i)                    # SRAM -> HBM

Outside a Memory, `kernel` does nothing, `load` copies and `store` assigns, so a rung runs the same with and without it.

What is counted, operation by operation, is said in ops.py. Free are numbers, unless an operation inside computed them, and
print, which is for the reader. A Memory sees the thread that entered it, and no other. Where Memories nest, the inner one
counts, and the outer one adds its counts to its own.
"""

import sys
import threading
import weakref
from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from flashlab import frames, ops
from flashlab.validate import check_positive, describe

KiB = 1024
A100_SRAM = 192 * KiB      # per SM; NVIDIA A100 whitepaper. The budget when nothing else is said.
OVERFLOW_ADVICE = "Use smaller tiles, or give Memory a larger sram_bytes."


class _OfThread(threading.local):
    def __init__(self):
        self.memories = []     # the active Memory is the last one


_here = _OfThread()


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
    shape: tuple
    dtype: torch.dtype
    where: tuple           # (file, line) that made it


def active():
    """The Memory in force, or None."""
    return _here.memories[-1] if _here.memories else None


@contextmanager
def apart():
    """Within: no Memory in force. Afterwards that of before, also if one was entered inside and never left."""
    before, _here.memories = _here.memories, []
    try:
        yield
    finally:
        _here.memories = before


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
            with ops.Peeking(mem._check_place):
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

    Raises: as load; TypeError if tile is not a tensor, ValueError if its shape is not exactly that of its place
    """
    index = _index("store", T, rows, cols)
    if not isinstance(tile, torch.Tensor):
        raise TypeError(f"store: tile must be a torch.Tensor of the shape of its place, got {describe(tile)}; "
                        "torch.zeros(...) inside the kernel makes one of zeros")
    place = tuple(T[index].shape)
    if tuple(tile.shape) != place:
        raise ValueError(f"store: tile has shape {tuple(tile.shape)}, but T[rows, cols] has shape {place}")
    mem = active()
    if mem is None:
        T[index] = tile
    else:
        mem._store(T, index, tile)


def _index(verb, T, rows, cols):
    if not isinstance(T, torch.Tensor) or T.ndim not in (1, 2):
        raise TypeError(f"{verb}: T must be a vector or a matrix in HBM, such as one head Q[b, h], got {describe(T)}")
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
        self._refs = {}                                         # storage -> what calls _free when it is gone
        self.sram_live = self._hbm_live = 0
        self._kernel, self._names = None, {}
        self.running = None
        self._pass_through = False                              # load and store do their own counting
        self._outer, self._covered = None, False                # the Memory around this one; whether one inside it counts

    def __enter__(self):
        self._outer = outer = active()
        if outer is not None:
            if outer is self or outer.running:
                raise MemoryModelError("a Memory starts inside itself or inside a kernel: put it around the kernel")
            outer._covered = True
        _here.memories.append(self)
        self._watch_triton("add")
        return super().__enter__()

    def __exit__(self, *exc):
        self._watch_triton("remove")
        _here.memories.remove(self)
        if self._outer is not None:
            self._outer._covered = False
            self._outer._add(self)
        return super().__exit__(*exc)

    def _add(self, inner):
        """What a Memory inside this one has counted, which this one did not see."""
        self.hbm_peak = max(self.hbm_peak, self._hbm_live + inner.hbm_peak)
        self.sram_peak = max(self.sram_peak, inner.sram_peak)
        for name in ("read", "written", "matmul_flops", "other_flops"):
            setattr(self, name, getattr(self, name) + getattr(inner, name))
        self.log += inner.log

    def __repr__(self):
        return (f"Memory(read {format_bytes(self.read)}, written {format_bytes(self.written)}, "
                f"SRAM peak {format_bytes(self.sram_peak)} of {format_bytes(self.sram_bytes)}, "
                f"HBM peak {format_bytes(self.hbm_peak)})")

    def on_chip(self, T):
        return ops.key(T) in self._sram

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
        rules = ops.rules(func)
        if self._pass_through or self._covered or rules.silent:
            return func(*args, **kwargs)
        if torch.is_inference_mode_enabled() and (out := self._by_parts(func, args, kwargs)) is not NotImplemented:
            return out
        if rules.view:
            return func(*args, **kwargs)
        with torch._C.DisableTorchFunction():                    # what follows looks at tensors a lot: no mode has to hear of it
            return self._run(func, rules, args, kwargs)

    def _by_parts(self, func, args, kwargs):
        """Inference mode hands on matmul or reshape whole, whose parts come one by one elsewhere."""
        TorchDispatchMode.__enter__(self)
        try:
            return func.decompose(*args, **kwargs)
        finally:
            TorchDispatchMode.__exit__(self, None, None, None)

    def _run(self, func, rules, args, kwargs):
        frame = frames.user_frame(__file__)
        if not rules.known or frames.is_triton(frame):
            raise MemoryModelError(
                f"{func} is a custom or Triton kernel: the model cannot see what it moves. "
                "Measure the PyTorch rung instead, or the GPU's own counters."
            )
        operands = [] if rules.makes_a_number else ops.tensors((*args, *kwargs.values()))
        if rules.reads_operands:                                 # zeros_like and its kind ask for a shape only
            for n, T in enumerate(operands):
                self._check_place(rules.name, n, T)
        out = func(*args, **kwargs)
        results, targets = ops.tensors((out,)), ops.targets(rules, args, kwargs)
        known = {ops.key(T) for T in operands}
        fresh = [T for T in results if ops.key(T) not in known]
        if results and not fresh and not targets or rules.name == "copy_" and ops.same_elements(*args[:2]):
            return out                                           # nothing moved
        if not rules.allocates_only:
            of_matmuls, of_others = ops.flops(rules, args, operands, fresh or targets)
            self.matmul_flops += of_matmuls
            self.other_flops += of_others
        if self._kernel:
            self._compute(rules, fresh, targets, frame)
        else:
            self._eager(rules, operands, fresh, targets)
        return out

    def _check_place(self, op, n, T):
        """An operand must be where the operation runs: on chip inside a kernel, in HBM outside."""
        key = ops.key(T)
        if key in self._left_over:
            raise MemoryModelError(
                f"{op}: operand {n}, {ops.what(T)}, was on chip in kernel {self._left_over[key]!r} and ended with it. "
                "store() it to HBM before the kernel ends."
            )
        if self._kernel and key not in self._sram and (key in self._hbm or not ops.is_number(T)):
            name = self._names.get(key)
            how = f"load({name or 'it'}, rows)" if T.ndim else f"load({name or 'it'}, ...) of the slice that holds it"
            raise MemoryModelError(
                f"{op} in kernel {self._kernel!r}: operand {n}, {name or 'a tensor'} {ops.what(T)}, is in HBM. "
                f"Operations see only what is on chip: {how} first."
            )

    def _eager(self, rules, operands, fresh, targets):
        read = written = 0
        if not rules.allocates_only:
            written = sum(map(ops.nbytes, fresh)) + sum(map(ops.nbytes, targets))
            read = sum(ops.nbytes(T) for T in ops.sources(rules, operands, targets)
                       if T.ndim > 0 or ops.key(T) in self._hbm or not ops.is_number(T))
        if not rules.makes_a_number:                             # a Python number is on its way into a kernel's arguments
            for T in fresh:
                self._track(self._hbm, T, T.untyped_storage().nbytes())
        for T in targets:                                        # resize_ and out= may have made it larger
            if (key := ops.key(T)) in self._hbm:
                self._hbm_live += T.untyped_storage().nbytes() - self._hbm[key]
                self._hbm[key] = T.untyped_storage().nbytes()
        self.hbm_peak = max(self.hbm_peak, self._hbm_live)
        if read or written:
            self.read += read
            self.written += written
            self.log.append(Event(rules.name, "eager", rules.name, (), (), read, written, 0))

    def _compute(self, rules, fresh, targets, frame):
        for T in (*fresh, *targets):
            self._place(T, rules.name, frame)
        self.log.append(Event(self._kernel, "compute", rules.name, (), (), 0, 0, self.sram_live))

    # ---- kernels

    def _launch(self, name, tensors):
        if self._kernel:
            raise MemoryModelError(f"kernel {name!r} starts inside kernel {self._kernel!r}: one launch at a time")
        for key, T in tensors.items():
            if ops.key(T) in self._left_over:
                raise MemoryModelError(f"kernel {name!r}: {key} was on chip in a kernel that has ended: store() it there")
        self._kernel, self._names = name, {ops.key(T): key for key, T in tensors.items()}
        self.running = name, tensors

    def _finish(self):
        for key in self._sram:                                   # whatever still lives is lost with the kernel
            self._left_over[key] = self._kernel
        self._sram.clear()
        self.sram_live, self._kernel, self._names, self.running = 0, None, {}, None

    def _load(self, T, index):
        self._need_kernel("load", T)
        with self._uncounted():
            part = T[index]
            tile = part.clone(memory_format=torch.contiguous_format)
            read = ops.nbytes(part)
            self._place(tile, "load", frames.user_frame(__file__))
            self.read += read
            self._log_move("load", T, index, read, 0)
        return tile

    def _store(self, T, index, tile):
        self._need_kernel("store", T)
        with self._uncounted():
            if tile.ndim > 0 and ops.key(tile) not in self._sram:
                raise MemoryModelError(f"store in kernel {self._kernel!r}: the tile {ops.what(tile)} is not on chip")
            part = T[index]
            part.copy_(tile)
            written = ops.nbytes(part)
            self.written += written
            self._log_move("store", T, index, 0, written)

    def _need_kernel(self, verb, T):
        if not self._kernel:
            raise MemoryModelError(f"{verb} outside a kernel: write `with kernel(\"name\", ...):` around the loops")
        if ops.key(T) in self._sram:
            raise MemoryModelError(f"{verb} in kernel {self._kernel!r}: T {ops.what(T)} is on chip, not in HBM")

    def _log_move(self, verb, T, index, read, written):
        spans = [part.indices(size)[:2] for part, size in zip(index, T.shape, strict=False)]
        name = self._names.get(ops.key(T), "tensor")
        if name == "tensor" or not ops.same_elements(T, self.running[1][name]):
            name = f"{name}{tuple(T.shape)}"                     # rows and columns of a view are not those of the tensor
        cols = spans[1] if len(spans) == 2 else ()
        self.log.append(Event(self._kernel, verb, name, spans[0], cols, read, written, self.sram_live))

    @contextmanager
    def _uncounted(self):
        self._pass_through = True
        try:
            with torch._C.DisableTorchFunction():
                yield
        finally:
            self._pass_through = False

    # ---- what is alive

    def _place(self, T, op, frame):
        """Give a tile its place on chip, or more of it to one that grew; or say why there is none."""
        key, nbytes = ops.key(T), T.untyped_storage().nbytes()
        had = self._sram.get(key)
        if had is not None and had.nbytes == nbytes:
            return
        more = nbytes - (had.nbytes if had else 0)
        if self.sram_live + more > self.sram_bytes:
            raise SRAMOverflow(self._overflow_message(T, op, nbytes, frame))
        tile = _Tile(nbytes, T.shape, T.dtype, (frame.f_code.co_filename, frame.f_lineno))
        if had:
            self._sram[key] = tile
        else:
            self._track(self._sram, T, tile)
        self.sram_live += more
        self.sram_peak = max(self.sram_peak, self.sram_live)

    def _track(self, level, T, entry):
        """Register T's storage in `level` until it is freed. Views share their tensor's storage, so they add nothing."""
        storage, key = T.untyped_storage(), ops.key(T)
        level[key] = entry
        if level is self._hbm:
            self._hbm_live += entry
        self._refs[key] = weakref.ref(storage, partial(self._free, key))

    def _free(self, key, _):
        del self._refs[key]
        self._left_over.pop(key, None)
        if (tile := self._sram.pop(key, None)) is not None:
            self.sram_live -= tile.nbytes
        self._hbm_live -= self._hbm.pop(key, 0)

    def _overflow_message(self, T, op, nbytes, frame):
        names = {ops.key(T): name for name, T in frames.local_tensors(frame)}
        tiles = Counter(f"{names.get(key, f'made in line {tile.where[1]}')} {ops.what(tile)} {format_bytes(tile.nbytes)}"
                        for key, tile in self._sram.items())
        live = [tile if n == 1 else f"{n} tiles {tile} each" for tile, n in tiles.items()]
        return (f"{op} makes a tile {ops.what(T)} of {format_bytes(nbytes)}, but {format_bytes(self.sram_live)} of the SRAM's "
                f"{format_bytes(self.sram_bytes)} are in use.\n"
                f"  at {frames.in_words(frame)}\n  live: {', '.join(live) or 'nothing'}\n  {OVERFLOW_ADVICE}")

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
