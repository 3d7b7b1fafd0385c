"""Kernels with nothing to race, each with one of the ways in which fa2_hopper's warps hand something over: see sanitizer.py."""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from flashlab.operator.hopper_words import arrive, sync

FULL = gl.constexpr(8)                 # named barriers that Triton leaves alone
FREE = gl.constexpr(9)
HAND_OVERS = 10


@gluon.jit
def store(out):
    gl.store(out, 1)


@gluon.jit
def dispatch_kernel(out, num_warps: gl.constexpr):
    """Two groups of warps that have nothing to do with one another."""
    gl.warp_specialize([(store, (out,)), (store, (out + 1,))], [1], [24])


@gluon.jit
def give(place, full, free, n):
    one: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    for k in range(n):
        mbarrier.wait(free.index(0), (k & 1) ^ 1)
        place.store(gl.full([1], k, gl.int32, one))
        mbarrier.arrive(full.index(0), count=1)


@gluon.jit
def take(place, full, free, n, out):
    one: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    total = 0
    for k in range(n):
        mbarrier.wait(full.index(0), k & 1)
        total += gl.max(place.load(one), 0)
        mbarrier.arrive(free.index(0), count=1)
    gl.store(out, total)


@gluon.jit
def mbarrier_kernel(out, n, num_warps: gl.constexpr):
    """One warp hands n numbers over to four, one after the other in the same place, through two mbarriers."""
    place = gl.allocate_shared_memory(gl.int32, [1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    mbarrier.init(full.index(0), count=1)
    mbarrier.init(free.index(0), count=1)
    gl.warp_specialize([(take, (place, full, free, n, out)), (give, (place, full, free, n))], [1], [24])


@gluon.jit
def give_by_name(place, n):
    one: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    for k in range(n):
        if k > 0:
            sync(FREE, 160)
        place.store(gl.full([1], k, gl.int32, one))
        arrive(FULL, 160)


@gluon.jit
def take_by_name(place, n, out):
    one: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    total = 0
    for k in range(n):
        sync(FULL, 160)
        total += gl.max(place.load(one), 0)
        if k < n - 1:
            arrive(FREE, 160)
    gl.store(out, total)


@gluon.jit
def named_barrier_kernel(out, n, num_warps: gl.constexpr):
    """The same through two named barriers."""
    place = gl.allocate_shared_memory(gl.int32, [1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    gl.warp_specialize([(take_by_name, (place, n, out)), (give_by_name, (place, n))], [1], [24])


def run(name):
    """What a control computes; each has one right result.

    Raises: RuntimeError if that is not what came out
    """
    out = torch.zeros(2, dtype=torch.int32, device="cuda")
    if name == "control_dispatch":
        dispatch_kernel[(1,)](out, num_warps=4)
        right = 2
    else:
        kernel = {"control_mbarrier": mbarrier_kernel, "control_named_barrier": named_barrier_kernel}[name]
        kernel[(1,)](out, HAND_OVERS, num_warps=4)
        right = HAND_OVERS * (HAND_OVERS - 1) // 2
    found = int(out.sum())
    if found != right:
        raise RuntimeError(f"{name} must give {right}, gave {found}")
    return found
