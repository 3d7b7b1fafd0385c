"""A stand-in for Gluon that runs the Hopper kernels on the CPU, a Python thread for each warpgroup, to test how they take turns.

It knows just enough: tiles are tensors, and barriers count as the hardware's do. What the hardware may delay is delayed as far as
the barriers allow: a matrix product reads its operands when it is waited for, and so does a sum by TMA, so a slot that is let go
too early is overwritten in time to be seen. A barrier that counts too many, or that nobody reaches, is an error and not a hang.
"""

import threading
import time
from types import SimpleNamespace

import torch

from flashlab.kernels import plans
from flashlab.kernels.launch import empty
from flashlab.operator import hopper_backward as fa2_hopper_backward  # noqa: E402
from flashlab.operator import hopper_forward as fa2_hopper  # noqa: E402
from flashlab.operator import hopper_words as hopper  # noqa: E402
from flashlab.operator import spans, turns  # noqa: E402

PATIENCE = 20                          # seconds until a wait counts as a deadlock


class Tile(torch.Tensor):
    """A tile in registers."""

    type = property(lambda self: SimpleNamespace(layout=None))
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
    """The part of a tile that lies within the descriptor's sizes, as TMA finds it: by sums of 64 bits, which wrap around."""
    T, at = descriptor.base, [int(a) for a in at]
    sizes = [max(0, min(n, size - a)) for a, n, size in zip(at, descriptor.block_shape, descriptor.shape, strict=True)]
    if 0 in sizes:
        return T.new_empty(0).view(*[0] * len(sizes))
    first = sum(a * step * T.itemsize for a, step in zip(at, descriptor.strides, strict=True)) % 2**64 // T.itemsize
    strides = [step if n > 1 else 1 for n, step in zip(sizes, descriptor.strides, strict=True)]
    last = first + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    assert all(a >= 0 for a in at) and last < T.untyped_storage().nbytes() // T.itemsize - T.storage_offset(), "TMA, outside"
    return T.as_strided(sizes, strides, T.storage_offset() + first)


class Machine:
    """One program: its barriers, and what its threads have under way."""

    def __init__(self, program):
        self.program, self.changed = program, threading.Condition()
        self.named, self.mbarriers = {}, {}
        self.local = threading.local()

    def wait_until(self, ready, what):
        deadline = time.monotonic() + PATIENCE
        with self.changed:
            while not ready():
                if not self.changed.wait(deadline - time.monotonic()):
                    raise AssertionError(f"deadlock: {threading.current_thread().name} waits for {what}")

    # named barriers: a number of threads arrive, then it begins again

    def come(self, barrier, threads):
        barrier, mine = int(barrier), 128 if threading.current_thread().name.startswith("consumer") else 32
        with self.changed:
            state = self.named.setdefault(barrier, SimpleNamespace(count=0, round=0))
            round = state.round
            state.count += mine
            assert state.count <= threads, f"named barrier {barrier}: {state.count} threads came, {threads} were expected"
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

    def complete(self, state):
        if state.left == 0 and state.bytes == 0:
            state.left, state.phase = state.expected, state.phase + 1
            self.changed.notify_all()

    def wait(self, slot, parity, pred=True):
        if pred:
            self.wait_until(lambda: self.at(slot).phase % 2 != int(parity), f"an mbarrier, parity {int(parity)}")

    def count(self, counter, n, sem=None):
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
        self.local.__dict__.setdefault("sums", []).append((descriptor, at, buffer))

    def store_wait(self, pendings):
        for descriptor, at, buffer in self.local.__dict__.pop("sums", []):
            with self.changed:                         # as the L2 cache does it: each sum as a whole
                tile_in_memory(descriptor, at).add_(buffer.data)

    def product(self, A, B, C, use_acc=True, is_async=False):
        under_way = self.local.__dict__.setdefault("products", [])
        under_way.append(SimpleNamespace(A=A, B=B, C=C if use_acc else 0, value=None))
        return under_way[-1]

    def finish(self, pendings, deps):
        time.sleep(0)
        under_way = self.local.products
        while len(under_way) > pendings:
            one = under_way.pop(0)
            A, B, C = (x.data if isinstance(x, Buffer) else getattr(x, "value", x) for x in (one.A, one.B, one.C))
            one.value = tile(C + A.float() @ B.float())
        values = [getattr(one, "value", one) for one in deps]
        assert all(value is not None for value in values), "a product is used that nobody has waited for"
        return values[0] if len(values) == 1 else values


def language(machine, grid):
    """What stands for gluon.language."""
    on_tiles = lambda scalar, tensor: lambda *xs: tensor(*xs) if any(isinstance(x, torch.Tensor) for x in xs) else scalar(*xs)

    def allocate(dtype, shape, layout):
        fill = torch.nan if dtype.is_floating_point else 0
        return Buffer(torch.full(shape, fill, dtype=dtype))

    def store(pointer, values, mask=None):
        if mask is None:
            pointer.T[pointer.at] = values
            return
        pointer.T.view(-1)[pointer.at[mask]] = values[mask].as_subclass(torch.Tensor)

    def load(pointer):
        found = pointer.T.view(-1)[int(pointer.at)]
        return found if found.is_floating_point() else int(found)

    def specialise(parts, warps, registers):
        names = [f"{function.__name__} {n}" for n, (function, _) in enumerate(parts)]
        errors = []

        def run(function, arguments):
            try:
                function(*arguments)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=part, name=n, daemon=True) for part, n in zip(parts, names, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    anything = lambda *_, **__: None
    return SimpleNamespace(
        constexpr=object, float32=torch.float32, int32=torch.int32, int64=torch.int64,
        program_id=lambda axis: machine.program, num_programs=lambda axis: grid, cast=lambda x, dtype: x,
        atomic_add=machine.count, allocate_shared_memory=allocate, store=store, warp_specialize=specialise, static_range=range,
        load=load,
        minimum=on_tiles(min, lambda a, b: torch.minimum(a, torch.as_tensor(b))),
        where=on_tiles(lambda c, a, b: a if c else b, torch.where),
        maximum=on_tiles(max, lambda a, b: torch.maximum(a, torch.as_tensor(b, dtype=torch.float32))),
        max=lambda x, axis: int(x.max()), sum=lambda x, axis: x.sum(axis), exp2=torch.exp2, log2=torch.log2,
        zeros=lambda shape, dtype, layout: tile(torch.zeros(shape, dtype=dtype)),
        full=lambda shape, value, dtype, layout: torch.full(shape, int(value), dtype=dtype),
        arange=lambda start, end, layout: tile(torch.arange(start, end)), convert_layout=lambda x, layout, **_: x,
        NVMMADistributedLayout=anything, SliceLayout=anything, BlockedLayout=anything, DotOperandLayout=anything,
        SwizzledSharedLayout=anything, NVMMASharedLayout=SimpleNamespace(get_default_for=anything))


def run(monkeypatch, Q, K, V, causal, choice, few=None, **broken):
    """O and L by fa2_hopper_kernel, two programs one after the other.

    choice: as of how_many. few: left, right, cu_seqlens_q, cu_seqlens_k, batch. broken: functions to replace
    """
    few = few or {}
    O, L = empty(*Q.shape, Q, packed="batch" in few).fill_(torch.nan), torch.full(Q.shape[:3], torch.nan)
    monkeypatch.setattr(fa2_hopper, "how_many", lambda *_: choice | {"registers": 0})
    monkeypatch.setattr(fa2_hopper, "programs_at_a_time", lambda *_: 2)            # few, so that one goes through many tiles
    grid, arguments = fa2_hopper.launch(Q, K, V, O, L, causal=causal, scale=Q.shape[-1] ** -0.5, **few)
    plans.launch(arguments.pop("before", ()))
    counter = arguments["counter"]
    arguments |= {"L": Pointer(L), "counter": Pointer(counter)}
    run_kernel(monkeypatch, fa2_hopper, "fa2_hopper_kernel", grid, arguments, **broken)
    assert not counter.any(), "the next launch would begin to count where this one stopped"
    return O, L


def run_backward(monkeypatch, Q, K, V, O, dO, L, causal, choice, scale=None, few=None, ordered=False, **broken):
    """dQ, dK, dV by fa2_hopper_backward: the kernels around the large one in Triton's interpreter. few: as of `run`

    ordered: programs run one after the other here, so that the test gives a `wait_for` that does not wait
    """
    few = few or {}
    grads = [empty(*T.shape, T, packed="batch" in few).fill_(torch.nan) for T in (Q, K, V)]
    monkeypatch.setattr(fa2_hopper_backward, "how_many", lambda *_: choice | {"registers": 0})
    scale = Q.shape[-1] ** -0.5 if scale is None else scale
    launches = fa2_hopper_backward.launch(Q, K, V, O, dO, L, None, *grads, causal=causal, scale=scale, ordered=ordered, **few)
    for kernel, grid, arguments in launches:
        if kernel is fa2_hopper_backward.hopper_backward_kernel:
            arguments["turns"] = Pointer(arguments["turns"])
            run_kernel(monkeypatch, fa2_hopper_backward, "hopper_backward_kernel", grid, arguments, **broken)
        else:
            kernel[grid](**arguments)
    return grads


def run_kernel(monkeypatch, module, name, grid, arguments, **broken):
    """A launch of a Gluon kernel, program by program."""
    for argument, given in arguments.items():
        if hasattr(given, "block_shape"):
            seen = SimpleNamespace(base=given.base, shape=given.shape, strides=given.strides, block_shape=given.block_shape,
                                   dtype=given.base.dtype, layout=None)
            arguments = arguments | {argument: seen}
        elif argument == "table" and given is not None:
            arguments = arguments | {argument: Pointer(given)}
    kernel = {name: value.fn for name, value in vars(module).items() if hasattr(value, "is_gluon")}
    sizes = {name: value.value for name, value in vars(module).items() if type(value).__name__ == "constexpr"}
    beyond, together = spans.BEYOND.value, turns.TOGETHER.value
    of_spans = {name: value.fn for name, value in vars(spans).items() if hasattr(value, "is_gluon")}
    ring = hopper.following.fn
    for program in range(grid[0]):
        machine = Machine(program)
        gl = language(machine, grid[0])
        tma = SimpleNamespace(async_copy_global_to_shared=machine.load, async_copy_shared_to_global=machine.save,
                              store_wait=machine.store_wait)
        mbarrier = SimpleNamespace(init=machine.init, arrive=machine.arrive, wait=machine.wait, MBarrierLayout=lambda: None,
                                   expect=lambda slot, bytes: machine.arrive(slot, 1, bytes))
        stands_for = {
            "gl": gl, "tma": tma, "mbarrier": mbarrier, "sync": machine.sync, "following": ring, "opaque": lambda x: x,
            "arrive": lambda barrier, threads: machine.come(barrier, threads) and None, "pinned": lambda x: x,
            "warpgroup_mma": machine.product, "warpgroup_mma_wait": machine.finish, "fence_async_shared": lambda: None,
            "thread_barrier": lambda: None, "row_maximum": lambda S, chains: S.amax(1), "add_by_tma": machine.add,
            "row_shares": lambda P: P.sum(1, keepdim=True), "scaled_rows": lambda x, alpha: x * alpha[:, None],
            "opaque_zero": lambda n: 0, "sums_are_there": machine.store_wait}
        stands_for = kernel | sizes | {name: value for name, value in stands_for.items() if hasattr(module, name)} | broken
        with monkeypatch.context() as patch:
            patch.setattr(hopper, "gl", gl)
            patch.setattr(hopper, "mbarrier", mbarrier)
            for one, value in (of_spans | {"gl": gl, "mbarrier": mbarrier, "BEYOND": beyond}).items():
                patch.setattr(spans, one, value)
            patch.setattr(turns, "gl", gl)
            patch.setattr(turns, "TOGETHER", together)
            for one, value in stands_for.items():
                patch.setattr(module, one, value)
            kernel[name](**arguments)
