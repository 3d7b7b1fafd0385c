"""A stand-in for Gluon that runs the Hopper kernels on the CPU, a Python thread for each warpgroup.

It takes the place of flashlab.kernels.gluon_adapter: the kernels' modules are loaded once more, into `kernels`, and
import from here. Tiles are tensors, and barriers count as the hardware's do. What the hardware may delay is delayed as
far as the barriers allow: a matrix product reads its operands when it is waited for, and so does a sum by TMA, so a
slot that is released too early is overwritten in time to be seen. A barrier that counts too many, or that nobody
reaches, is an error and not a hang.
"""

import importlib
import inspect
import itertools
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from unittest import mock

import torch

from flashlab import ladder, oracle
from flashlab.kernels import plans
from flashlab.kernels.launch import empty
from flashlab_course.bench.parts import variant

PATIENCE = 20                          # seconds until a wait counts as a deadlock


class Tile(torch.Tensor):
    """A tile in registers."""

    type = SimpleNamespace(layout=None)
    dtype = property(lambda self: self.as_subclass(torch.Tensor).dtype)


def tile(T):
    return T.as_subclass(Tile)


class Pointer:
    """Places in a tensor in HBM."""

    def __init__(self, T, at=0):
        self.T, self.at = T, at

    def __add__(self, more):
        return Pointer(self.T, self.at + more)


class Buffer:
    """Shared memory: a view into a tensor that all threads see."""

    def __init__(self, data):
        self.data = data

    shape = property(lambda self: list(self.data.shape))
    dtype = property(lambda self: self.data.dtype)

    def index(self, n):
        return Buffer(self.data[int(n)])

    def reshape(self, shape):
        return Buffer(self.data.view(shape))

    def permute(self, order):
        return Buffer(self.data.permute(order))

    def load(self, layout):
        return self.data.clone()

    def store(self, values):
        self.data.copy_(values)


def tile_in_memory(descriptor, at):
    """The part of a tile within the descriptor's sizes, as TMA finds it: by sums of 64 bits, which wrap around."""
    T, at = descriptor.base, [int(a) for a in at]
    sizes = [max(0, min(n, size - a)) for a, n, size in zip(at, descriptor.block_shape, descriptor.shape, strict=True)]
    if 0 in sizes:
        return T.new_empty(0).view(*[0] * len(sizes))
    first = sum(a * step * T.itemsize for a, step in zip(at, descriptor.strides, strict=True)) % 2**64 // T.itemsize
    strides = [step if n > 1 else 1 for n, step in zip(sizes, descriptor.strides, strict=True)]
    last = first + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    assert min(at) >= 0 and last < T.untyped_storage().nbytes() // T.itemsize - T.storage_offset(), "TMA, outside"
    return T.as_strided(sizes, strides, T.storage_offset() + first)


class Machine:
    """One program: its barriers, and what its threads have under way."""

    def __init__(self, program, programs):
        self.program, self.programs, self.changed = program, programs, threading.Condition()
        self.named, self.mbarriers = {}, {}
        self.local = threading.local()

    def wait_until(self, ready, what):
        deadline = time.monotonic() + PATIENCE
        with self.changed:
            while not ready():
                if not self.changed.wait(deadline - time.monotonic()):
                    raise AssertionError(f"deadlock: {self.local.name} waits for {what}")

    # named barriers: a number of threads arrive, then it begins again

    def come(self, barrier, threads):
        with self.changed:
            state = self.named.setdefault(int(barrier), SimpleNamespace(count=0, round=0))
            round = state.round
            state.count += self.local.threads
            assert state.count <= threads, f"named barrier {barrier}: {state.count} threads came, not {threads}"
            if state.count == threads:
                state.count, state.round = 0, round + 1
                self.changed.notify_all()
        return state, round

    def sync(self, barrier, threads):
        state, round = self.come(barrier, threads)
        self.wait_until(lambda: state.round > round, f"named barrier {int(barrier)}")

    # mbarriers: arrivals and bytes, then the next phase begins

    def at(self, slot):
        return self.mbarriers[slot.data.data_ptr()]

    def init(self, slot, count):
        self.mbarriers[slot.data.data_ptr()] = SimpleNamespace(expected=count, left=count, bytes=0, phase=0)

    def arrive(self, slot, count=1, bytes=0):
        with self.changed:
            state = self.at(slot)
            state.left -= count
            state.bytes += bytes
            assert state.left >= 0, "an mbarrier counted more arrivals than it was made for"
            self.complete(state)

    def expect(self, slot, bytes):
        self.arrive(slot, 1, bytes)

    def complete(self, state):
        if state.left == 0 and state.bytes == 0:
            state.left, state.phase = state.expected, state.phase + 1
            self.changed.notify_all()

    def wait(self, slot, parity, pred=True):
        if pred:
            self.wait_until(lambda: self.at(slot).phase % 2 != int(parity), f"an mbarrier, parity {int(parity)}")

    def count(self, counter, n):
        counter.T[counter.at] += n
        return int(counter.T[counter.at]) - n

    # TMA, and products that are computed when they are waited for

    def load(self, descriptor, at, slot, buffer):
        whole, part = torch.zeros(descriptor.block_shape, dtype=descriptor.dtype), tile_in_memory(descriptor, at)
        whole[tuple(slice(0, n) for n in part.shape)] = part
        with self.changed:
            buffer.data.copy_(whole)
            state = self.at(slot)
            state.bytes -= whole.numel() * whole.itemsize
            self.complete(state)

    def save(self, descriptor, at, buffer):
        target = tile_in_memory(descriptor, at)
        target.copy_(buffer.data.view(descriptor.block_shape)[tuple(slice(0, n) for n in target.shape)])

    def add(self, descriptor, at, buffer):
        self.local.sums.append((descriptor, at, buffer))

    def store_wait(self, pendings):
        while self.local.sums:
            descriptor, at, buffer = self.local.sums.pop(0)
            with self.changed:                         # as the L2 cache does it: each sum as a whole
                tile_in_memory(descriptor, at).add_(buffer.data)

    def product(self, A, B, C, use_acc=True, is_async=False):
        self.local.products.append(SimpleNamespace(A=A, B=B, C=C if use_acc else 0, value=None))
        return self.local.products[-1]

    def finish(self, pendings, deps):
        time.sleep(0)
        while len(self.local.products) > pendings:
            one = self.local.products.pop(0)
            A, B, C = (x.data if isinstance(x, Buffer) else getattr(x, "value", x) for x in (one.A, one.B, one.C))
            one.value = tile(C + A.float() @ B.float())
        values = [getattr(one, "value", one) for one in deps]
        assert all(value is not None for value in values), "a product is used that nobody has waited for"
        return values[0] if len(values) == 1 else values


# ---- what stands for the names of gluon_adapter


def aggregate(cls):
    """A class with a constructor of its fields."""
    names = f"{cls.fields} {getattr(cls, 'constants', '')}".split()
    cls.__init__ = lambda self, *args, **kwargs: vars(self).update(dict(zip(names, args, strict=False)) | kwargs)
    return cls


def warp_specialize(work, warps, registers):
    """A thread for each partition of a program; the first has the launch's warps."""
    def start(function, arguments, warps):
        name = f"{function.__name__}{[one for one in arguments if isinstance(one, int)][:1]}"
        vars(MACHINE.local).update(threads=32 * warps, name=name, products=[], sums=[])
        function(*arguments)

    with ThreadPoolExecutor(len(work)) as pool:
        started = [pool.submit(start, *one, n) for one, n in zip(work, [4, *warps], strict=True)]
    for one in started:
        one.result()


def fork(shared, consumer, consumers, others):
    work = [(consumer, (*shared, me)) for me in range(consumers)] + [(one, shared) for one in others]
    warp_specialize(work, [4] * (consumers - 1) + [1] * len(others), None)


def on_numbers(scalar, tensor):
    """An operation of numbers or of tiles."""
    tiles = lambda *xs: tensor(*map(torch.as_tensor, xs))
    return lambda *xs: (tiles if any(isinstance(x, torch.Tensor) for x in xs) else scalar)(*xs)


def maximum(x, axis):
    return int(x.max()) if x.ndim == 1 else x.amax(axis)


def store(pointer, values, mask=None):
    if mask is None:
        pointer.T.view(-1)[pointer.at] = values
    else:
        pointer.T.view(-1)[pointer.at[mask]] = values[mask].as_subclass(torch.Tensor)


def load(pointer):
    found = pointer.T.view(-1)[int(pointer.at)]
    return found if found.is_floating_point() else int(found)


def allocate(dtype, shape, layout):
    return Buffer(torch.full(shape, torch.nan if dtype.is_floating_point else 0, dtype=dtype))


def descriptor(base, shape, strides, block_shape, layout):
    block_type = SimpleNamespace(nbytes=torch.Size(block_shape).numel() * base.itemsize)
    return SimpleNamespace(base=base, shape=shape, strides=strides, block_shape=block_shape, dtype=base.dtype,
                           layout=layout, block_type=block_type)


class Layout:
    """Nothing: no thread holds a particular element here."""

    def __init__(self, *_, **__):
        pass

    get_default_for = classmethod(lambda cls, *_: cls())


def language():
    """What stands for gluon.language."""
    dtypes = {name: getattr(torch, name) for name in ("float16", "bfloat16", "float32", "int32", "int64")}
    kinds = ("NVMMADistributed", "NVMMAShared", "Slice", "Blocked", "DotOperand", "SwizzledShared")
    return SimpleNamespace(
        **dtypes, **{f"{kind}Layout": Layout for kind in kinds}, float8e4nv=torch.float8_e4m3fn, constexpr=lambda x: x,
        program_id=lambda axis: MACHINE.program, num_programs=lambda axis: MACHINE.programs, cast=lambda x, dtype: x,
        atomic_add=lambda pointer, n, sem=None: MACHINE.count(pointer, n), static_range=range, max=maximum,
        allocate_shared_memory=allocate, store=store, load=load, minimum=on_numbers(min, torch.minimum),
        maximum=on_numbers(max, torch.maximum), where=on_numbers(lambda c, a, b: a if c else b, torch.where),
        sum=lambda x, axis: x.sum(axis), exp2=torch.exp2, log2=torch.log2, convert_layout=lambda x, layout, **_: x,
        zeros=lambda shape, dtype, layout: tile(torch.zeros(shape, dtype=dtype)),
        full=lambda shape, value, dtype, layout: tile(torch.full(shape, value, dtype=dtype)),
        cdiv=lambda a, b: -(-a // b), warp_specialize=warp_specialize,
        arange=lambda start, end, layout: tile(torch.arange(start, end)))


def on_machine(name):
    """A word that acts on the program that runs."""
    return lambda *args, **kwargs: getattr(MACHINE, name)(*args, **kwargs)


def adapter():
    """What stands for the module gluon_adapter."""
    module = ModuleType("flashlab.kernels.gluon_adapter")
    mbarrier = {name: on_machine(name) for name in ("init", "arrive", "wait", "expect")}
    tma = {"load": on_machine("load"), "store": on_machine("save"), "store_wait": on_machine("store_wait")}
    vars(module).update(
        gl=language(), tma=SimpleNamespace(**tma), mbarrier=SimpleNamespace(**mbarrier, MBarrierLayout=Layout),
        jit=lambda function=None, **options: function or (lambda given: given), aggregate=aggregate,
        fork=fork, TensorDescriptor=descriptor, fence=lambda: None, thread_barrier=lambda: None,
        add_by_tma=on_machine("add"), wgmma=on_machine("product"), wgmma_wait=on_machine("finish"))
    return module


def load_kernels():
    """The modules of the Hopper kernels once more, from the same files, upon the stand-in."""
    rungs = [one.module for one in ladder.HOPPER_RUNGS]
    operator = {"words": "hopper_words", "spans": "spans", "pipeline": "hopper_pipeline", "forward": "hopper_forward",
                "backward_pipeline": "hopper_backward_pipeline", "backward": "hopper_backward", "fp8": "fp8_kernel"}
    names = {"first_words": "flashlab.kernels.hopper_words"} | {name.rpartition("_")[2]: name for name in rungs}
    names |= {short: f"flashlab.operator.{name}" for short, name in operator.items()}
    import flashlab.operator.fp8_kernel  # first: what the real ones import is then loaded only once
    import flashlab.operator.hopper_backward

    packages = (vars(flashlab.operator), vars(flashlab.kernels))
    with mock.patch.dict(sys.modules), mock.patch.dict(packages[0]), mock.patch.dict(packages[1]):
        for name in names.values():
            sys.modules.pop(name, None)
        sys.modules["flashlab.kernels.gluon_adapter"] = adapter()
        found = {short: importlib.import_module(name) for short, name in names.items()}
    same = lambda x: x
    in_assembly = {"sync": on_machine("sync"), "arrive": lambda *args: MACHINE.come(*args) and None, "opaque": same,
                   "pinned": same, "opaque_zero": lambda n: 0, "wait_for_sums": on_machine("store_wait")}
    for module in found.values():
        vars(module).update({name: value for name, value in in_assembly.items() if hasattr(module, name)})
    return SimpleNamespace(**found)


MACHINE = None                         # the program that runs
kernels = load_kernels()


def edited(function, *changes):
    """A function of the kernels as it stands, but for some of its text: (old, new), ..."""
    text = inspect.getsource(function)
    text = text[text.index("def "):]
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    found = {}
    exec(text, function.__globals__, found)
    return found[function.__name__]


def changed(module, changes):
    """A rung of the ladder with some of its lines changed, upon the stand-in. changes: (old, new), ..."""
    names = {"flashlab.kernels.gluon_adapter": adapter(), "flashlab.kernels.hopper_words": kernels.first_words}
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(sys.modules, names):
        return variant(module, changes, folder)


# ---- runs


def inputs(N_q, N_k, d, B=1, H_q=1, H_kv=1, logits=1, dtype=torch.float16):
    """Q, K, V, dO, in memory (B, N, H, d)."""
    g = torch.Generator().manual_seed(N_q)
    sizes = (N_q, H_q), (N_k, H_kv), (N_k, H_kv), (N_q, H_q)
    Q, K, V, dO = (torch.randn(B, N, H, d, generator=g).to(dtype).transpose(1, 2) for N, H in sizes)
    return Q * logits, K, V, dO


WINDOWS = {                            # inputs, the window
    "whole blocks": ((700, 700, 64), (256, 0)), "edges within blocks": ((450, 450, 128, 1, 2, 1), (200, 30)),
    "one key a row": ((200, 200, 64), (0, 0)), "narrower than a block": ((333, 333, 64), (20, 3)),
    "no limit at the left": ((300, 333, 128), (333, 40)), "no limit at the right": ((300, 333, 64), (33, 300)),
    "rows that see no key": ((500, 77, 64, 1, 2, 2), (30, 9)), "keys that no row sees": ((130, 900, 128), (100, 10)),
    "wide": ((130, 900, 128), (500, 100)),
}
LENGTHS = [130, 1, 0, 64, 200, 9], [70, 300, 64, 0, 200, 128]                      # queries, keys of packed sequences


def packed(d, window):
    """Inputs, the options of a call with packed sequences, and each sequence's rows of queries and keys."""
    cu_q, cu_k = (torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32) for lengths in LENGTHS)
    few = {"cu_seqlens_q": cu_q, "cu_seqlens_k": cu_k, "batch": len(LENGTHS[0])}
    few |= {"left": window[0], "right": window[1]} if window else {}
    rows = [(slice(*cu_q[s:s + 2]), slice(*cu_k[s:s + 2])) for s in range(len(LENGTHS[0]))]
    return inputs(int(cu_q[-1]) + 30, int(cu_k[-1]) + 9, d, 1, 2, 1), few, rows    # some rows belong to no sequence


def poisoned(tensors, rows, which, every):
    """Copies of tensors with NaN in every second sequence, beginning with sequence `every`; None: in none.

    which: for each tensor 0 if its rows are queries, 1 if they are keys
    """
    copies = [T.clone() for T in tensors]
    for T, n in zip(copies, which, strict=True):
        for s in range(every, len(rows), 2) if every is not None else ():
            T[:, :, rows[s][n]] = torch.nan
    return copies


def run_kernel(kernel, programs, arguments):
    """A launch of a Gluon kernel, program after program."""
    global MACHINE
    pointers = ("L", "counter", "table", "turns", "Q_scales", "K_scales", "V_scales")
    arguments = {name: Pointer(value) if name in pointers and isinstance(value, torch.Tensor) else value
                 for name, value in arguments.items()}
    for program in range(programs):
        MACHINE = Machine(program, programs)
        vars(MACHINE.local).update(threads=128, name="the program", products=[], sums=[])
        kernel(**arguments)


def run(monkeypatch, Q, K, V, causal, choice, **few):
    """O and L by fa2_hopper_kernel, two programs one after the other, so that one goes through many tiles.

    choice: as of how_many. few: left, right, cu_seqlens_q, cu_seqlens_k, batch
    """
    O, L = empty(*Q.shape, Q, packed="batch" in few).fill_(torch.nan), torch.full(Q.shape[:3], torch.nan)
    monkeypatch.setattr(kernels.forward, "how_many", lambda *_: choice)
    monkeypatch.setattr(kernels.forward, "programs_at_a_time", lambda *_: 2)
    grid, arguments = kernels.forward.launch(Q, K, V, O, L, causal=causal, scale=Q.shape[-1] ** -0.5, **few)
    plans.launch(arguments.pop("before", ()))
    run_kernel(kernels.forward.fa2_hopper_kernel, grid[0], arguments)
    assert not arguments["counter"].any(), "the next launch would begin to count where this one stopped"
    return O, L


def run_rung(module, Q, K, V, causal):
    """O and L by a Hopper rung of the ladder."""
    Q, K, V = (T.contiguous() for T in (Q, K, V))
    O, L = torch.full_like(Q, torch.nan), torch.full(Q.shape[:3], torch.nan)
    grid, arguments = module.launch(Q, K, V, O, L, causal=causal, scale=Q.shape[-1] ** -0.5)
    run_kernel(module.KERNEL, grid[0], arguments)
    return O, L


def outcome(module, changes, causal=True):
    """What a rung with some of its lines changed computes from 640 queries and keys of two heads, in words."""
    Q, K, V, _ = inputs(640, 640, 64, 1, 2, 1)
    try:
        O, L = run_rung(changed(module, changes), Q, K, V, causal)
    except AssertionError as stopped:
        return str(stopped)
    nans = f"NaN in {int(O.isnan().any(-1).sum())} of {O[..., 0].numel()} rows; " if O.isnan().any() else ""
    return nans + str(oracle.judge(O, L, Q, K, V, causal=causal))


def run_backward(monkeypatch, Q, K, V, O, dO, L, causal, choice, scale=None, **few):
    """dQ, dK, dV by fa2_hopper_backward: the kernels around the large one in Triton's interpreter. few: as of `run`

    ordered among them: programs run one after the other here, so that the test gives a `wait_for` that does not wait
    """
    grads = [empty(*T.shape, T, packed="batch" in few).fill_(torch.nan) for T in (Q, K, V)]
    monkeypatch.setattr(kernels.backward, "how_many", lambda *_: choice)
    scale = Q.shape[-1] ** -0.5 if scale is None else scale
    launches = kernels.backward.launch(Q, K, V, O, dO, L, None, *grads, causal=causal, scale=scale, **few)
    for kernel, grid, arguments in launches:
        if kernel is kernels.backward_pipeline.hopper_backward_kernel:
            run_kernel(kernel, grid[0], arguments)
        else:
            kernel[grid](**arguments)
    return grads
