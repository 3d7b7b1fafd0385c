"""Hopper kernels on the CPU: a stand-in for Gluon runs their own lines, a Python thread for each warpgroup.

    outcome(hopper_overlap, [("SLOTS = gl.constexpr(2)", "SLOTS = gl.constexpr(3)")])      # "ok ..." or what is wrong

Tiles are tensors, and barriers count as the hardware's do. What the hardware may delay is delayed as far as the
barriers allow: a product reads its operands when it is waited for, so a slot that is released too early is overwritten
in time to be seen. A deadlock, or a barrier that counts too many, is a Mistake and not a hang.
"""

import inspect
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import ModuleType, SimpleNamespace
from unittest import mock

import torch

from flashlab import oracle
from flashlab.kernels import hopper_words
from flashlab_course.bench.parts import variant
from flashlab_course.gpu.warps import MBarrier, Mistake


class Tile(torch.Tensor):
    """A tile in registers, or a view of shared memory that all threads see."""

    type = SimpleNamespace(layout=None)

    def index(self, n):
        return self[int(n)]

    def load(self, layout):
        return self.clone()

    def store(self, values):
        self.copy_(values)


class Pointer:
    """Places in a tensor in HBM."""

    def __init__(self, T, at=0):
        self.T, self.at = T, at

    def __add__(self, more):
        return Pointer(self.T, self.at + more)


class Product:
    """A matrix product under way. It has a value once it has been waited for."""

    def __init__(self, A, B, C):
        self.A, self.B, self.C = A, B, C

    def __getattr__(self, name):
        raise Mistake("a product is used that nobody has waited for")


def value_of(x):
    return x.value if isinstance(x, Product) else x


def tile_in_memory(descriptor, at):
    """The part of TMA's tile that lies within the tensor."""
    where = tuple(slice(int(a), int(a) + n) for a, n in zip(at, descriptor.block_shape, strict=True))
    return descriptor.base.view(descriptor.shape)[where].as_subclass(Tile)


class Machine:
    """One program: its barriers, and what its threads have under way."""

    def __init__(self, program, programs):
        self.program, self.programs, self.changed = program, programs, threading.Condition()
        self.named, self.mbarriers, self.local = {}, {}, threading.local()
        self.running, self.waiting, self.error = 1, {}, None

    def run(self, name, threads, work):
        vars(self.local).update(name=name, threads=threads, products=[])
        try:
            work()
        except Mistake as error:
            self.error = self.error or error
        except Exception as error:                     # noqa: BLE001    whatever a changed line does
            lines = [at.line for at in traceback.extract_tb(error.__traceback__) if at.filename.endswith("variant.py")]
            self.error = self.error or Mistake("\n    ".join([f"{type(error).__name__}: {error}, in", *lines]))
        with self.changed:
            self.running -= 1
            self.changed.notify_all()

    def wait_until(self, ready, what):
        with self.changed:
            self.waiting[self.local.name] = ready, what
            while not ready():
                if len(self.waiting) == self.running and not any(able() for able, _ in self.waiting.values()):
                    stuck = ";\n".join(f"{name} waits for {what}" for name, (_, what) in sorted(self.waiting.items()))
                    self.error = self.error or Mistake(f"deadlock: {stuck}")
                    self.changed.notify_all()
                if self.error:
                    raise self.error
                self.changed.wait()
            del self.waiting[self.local.name]

    def change(self, barrier, arrivals, bytes):
        """Count at a barrier of either kind. Returns the phase that it was in."""
        with self.changed:
            phase = barrier.phase
            barrier.change(arrivals, bytes)
            self.changed.notify_all()
        return phase

    # named barriers: in each phase a number of threads arrive

    def come(self, number, threads):
        barrier = self.named.setdefault(int(number), MBarrier(f"named barrier {int(number)}", threads))
        return barrier, self.change(barrier, self.local.threads, 0)

    def sync(self, number, threads):
        barrier, phase = self.come(number, threads)
        self.wait_until(lambda: barrier.phase > phase, f"{threads} threads at {barrier.name}")

    # mbarriers

    def init(self, slot, count):
        self.mbarriers[slot.data_ptr()] = MBarrier("an mbarrier", count)

    def arrive(self, slot, count=1, bytes=0):
        self.change(self.mbarriers[slot.data_ptr()], count, bytes)

    def expect(self, slot, bytes):
        self.arrive(slot, 1, bytes)

    def wait(self, slot, parity, pred=True):
        barrier, parity = self.mbarriers[slot.data_ptr()], int(parity)
        if pred and barrier.phase % 2 == parity:
            self.wait_until(lambda: barrier.phase % 2 != parity,
                            f"{name_of(slot)} to end a phase of parity {parity}; it is in phase {barrier.phase}")

    # TMA, and products that are computed when they are waited for

    def load(self, descriptor, at, slot, buffer):
        whole, part = torch.zeros(descriptor.block_shape, dtype=descriptor.dtype), tile_in_memory(descriptor, at)
        whole[tuple(slice(0, n) for n in part.shape)] = part
        buffer.copy_(whole)
        self.arrive(slot, 0, -whole.nbytes)

    def save(self, descriptor, at, buffer):
        tile_in_memory(descriptor, at).copy_(buffer)

    def store_wait(self, pendings):
        pass

    def product(self, A, B, C, use_acc=True, is_async=False):
        self.local.products.append(Product(A, B, C if use_acc else 0))
        return self.local.products[-1]

    def finish(self, pendings, deps):
        time.sleep(0)
        while len(self.local.products) > pendings:
            one = self.local.products.pop(0)
            one.value = value_of(one.C) + one.A.float() @ one.B.float()
        values = [value_of(one) for one in deps]
        return values[0] if len(values) == 1 else values


def name_of(slot):
    """K_free[0]: the kernel's name for the mbarriers among which this one is, and its number."""
    all_of = lambda T: T.untyped_storage().data_ptr()
    names = [name for one in inspect.stack(0) for name, value in one.frame.f_locals.items()
             if isinstance(value, Tile) and all_of(value) == all_of(slot)]
    return f"{names[-1]}[{slot.storage_offset()}]"


# ---- what stands for the names of gluon_adapter


def warp_specialize(work, warps, registers):
    """A thread for each partition of a program; the first has the launch's warps."""
    kinds, MACHINE.running = [function.__name__ for function, _ in work], len(work)
    with ThreadPoolExecutor(len(work)) as pool:
        for n, ((function, arguments), count) in enumerate(zip(work, [4, *warps], strict=True)):
            name = f"{kinds[n]} {kinds[:n].count(kinds[n])}" if kinds.count(kinds[n]) > 1 else kinds[n]
            pool.submit(MACHINE.run, name, 32 * count, partial(function, *arguments))


def allocate(dtype, shape, layout):
    return torch.full(shape, torch.nan if dtype.is_floating_point else 0, dtype=dtype).as_subclass(Tile)


def store(pointer, values):
    pointer.T.view(-1)[pointer.at] = values


def count(pointer, n, sem=None):
    pointer.T[pointer.at] += n
    return int(pointer.T[pointer.at]) - n


def descriptor(base, shape, strides, block_shape, layout):
    block_type = SimpleNamespace(nbytes=torch.Size(block_shape).numel() * base.itemsize)
    return SimpleNamespace(base=base, shape=shape, strides=strides, block_shape=block_shape, dtype=base.dtype,
                           layout=layout, block_type=block_type)


class Layout:
    """Nothing: no thread holds a particular element here."""

    __init__ = lambda self, *_, **__: None
    get_default_for = classmethod(lambda cls, *_: cls())


def on_machine(name):
    """A word that acts on the program that runs."""
    return lambda *args, **kwargs: getattr(MACHINE, name)(*args, **kwargs)


LAYOUTS = ("NVMMADistributed", "NVMMAShared", "Slice", "Blocked", "DotOperand", "SwizzledShared")
GL = SimpleNamespace(                  # stands for gluon.language
    float16=torch.float16, bfloat16=torch.bfloat16, float32=torch.float32, int32=torch.int32, int64=torch.int64,
    float8e4nv=torch.float8_e4m3fn, **{f"{kind}Layout": Layout for kind in LAYOUTS}, constexpr=lambda x: x,
    program_id=lambda axis: MACHINE.program, num_programs=lambda axis: MACHINE.programs, static_range=range,
    atomic_add=count, allocate_shared_memory=allocate, store=store, warp_specialize=warp_specialize,
    max=lambda x, axis: int(x.max()) if x.ndim == 1 else x.amax(axis), sum=lambda x, axis: x.sum(axis),
    maximum=torch.maximum, where=torch.where, exp2=torch.exp2, log2=torch.log2, cdiv=lambda a, b: -(-a // b),
    convert_layout=lambda x, layout, **_: x,
    zeros=lambda shape, dtype, layout: torch.zeros(shape, dtype=dtype).as_subclass(Tile),
    full=lambda shape, value, dtype, layout: torch.full(shape, value, dtype=dtype).as_subclass(Tile),
    arange=lambda start, end, layout: torch.arange(start, end).as_subclass(Tile))
IN_ASSEMBLY = {"sync": on_machine("sync"), "arrive": lambda *args: MACHINE.come(*args) and None}
MACHINE = None                         # the program that runs


def adapter():
    """What stands for the module gluon_adapter."""
    module = ModuleType("flashlab.kernels.gluon_adapter")
    mbarrier = {name: on_machine(name) for name in ("init", "arrive", "wait", "expect")}
    tma = {"load": on_machine("load"), "store": on_machine("save"), "store_wait": on_machine("store_wait")}
    vars(module).update(
        gl=GL, tma=SimpleNamespace(**tma), mbarrier=SimpleNamespace(**mbarrier, MBarrierLayout=Layout),
        jit=lambda function=None, **options: function or (lambda given: given), TensorDescriptor=descriptor,
        fence=lambda: None, thread_barrier=lambda: None, wgmma=on_machine("product"), wgmma_wait=on_machine("finish"))
    return module


# ---- runs


@contextmanager
def changed(module, changes=()):
    """A Hopper rung's module upon the stand-in, with some of its lines changed. changes: (old, new), ..."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(sys.modules):
        sys.modules["flashlab.kernels.gluon_adapter"] = adapter()
        sys.modules["flashlab.kernels.hopper_words"] = words = variant(hopper_words, (), folder)
        vars(words).update(IN_ASSEMBLY)
        yield variant(module, changes, folder)


def run_kernel(kernel, programs, arguments):
    """A launch of a Gluon kernel, program after program."""
    global MACHINE
    for program in range(programs):
        MACHINE = Machine(program, programs)
        MACHINE.run("the program", 128, partial(kernel, **arguments))
        if MACHINE.error:
            raise MACHINE.error


def run_rung(module, Q, K, V, causal):
    """O and L by a Hopper rung of the ladder."""
    Q, K, V = (T.contiguous() for T in (Q, K, V))
    O, L = torch.full_like(Q, torch.nan), torch.full(Q.shape[:3], torch.nan)
    grid, arguments = module.launch(Q, K, V, O, L, causal=causal, scale=Q.shape[-1] ** -0.5)
    pointers = {name: Pointer(arguments[name]) for name in ("L", "counter") if name in arguments}
    run_kernel(module.KERNEL, grid[0], arguments | pointers)
    return O, L


def inputs(N_q, N_k, d, B=1, H_q=1, H_kv=1, logits=1, dtype=torch.float16):
    """Q, K, V, dO, in memory (B, N, H, d)."""
    g = torch.Generator().manual_seed(N_q)
    sizes = (N_q, H_q), (N_k, H_kv), (N_k, H_kv), (N_q, H_q)
    Q, K, V, dO = (torch.randn(B, N, H, d, generator=g).to(dtype).transpose(1, 2) for N, H in sizes)
    return Q * logits, K, V, dO


def outcome(module, changes=(), causal=True, N=640):
    """What a rung with some of its lines changed computes from N queries and keys of two heads, in words."""
    Q, K, V, _ = inputs(N, N, 64, 1, 2, 1)
    try:
        with changed(module, changes) as rung:
            O, L = run_rung(rung, Q, K, V, causal)
    except Mistake as stopped:
        return str(stopped)
    nans = f"NaN in {int(O.isnan().any(-1).sum())} of {O[..., 0].numel()} rows; " if O.isnan().any() else ""
    return nans + str(oracle.judge(O, L, Q, K, V, causal=causal))
