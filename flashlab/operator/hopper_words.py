"""What a kernel of warpgroups that work apart needs and Gluon has no word for: named barriers, rings of buffers, fences for values,
sums by TMA, counters that outlive a launch, and the signals that two kernels share.

A warpgroup is 128 threads whose matrix products run on the tensor cores while the threads go on. Two kinds of barriers keep
warpgroups apart. An mbarrier lies in shared memory and counts bytes, too: TMA arrives there when a tile has landed. A named
barrier is one of a program's sixteen, and cheap: threads that have something to announce `arrive` and walk on; who waits, `sync`s.
"""

import torch
import triton
from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

_counters: dict[tuple, torch.Tensor] = {}


def counters(shape, dtype, device):
    """Zeros for a kernel that sets them back to zero: launches of one stream run one after the other and share them.

    A CUDA graph has its own, which it fills itself: it may be replayed beside other launches.
    """
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return torch.zeros(shape, dtype=dtype, device=device)
    stream = triton.runtime.driver.active.get_current_stream(device.index)
    if (stream, device, shape) not in _counters:
        _counters[stream, device, shape] = torch.zeros(shape, dtype=dtype, device=device)
    return _counters[stream, device, shape]


thread_barrier = getattr(gl, "barrier", None) or gl.thread_barrier     # its name before Triton 3.7


@gluon.jit
def sync(barrier, threads: gl.constexpr):
    """Wait at a named barrier until this many threads have come, those that wait and those that have arrived."""
    gl.inline_asm_elementwise("bar.sync $1, $2; mov.u32 $0, $1;", "=r,r,r", [barrier, threads],
                              dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def arrive(barrier, threads: gl.constexpr):
    """Count towards a named barrier without waiting."""
    gl.inline_asm_elementwise("bar.arrive $1, $2; mov.u32 $0, $1;", "=r,r,r", [barrier, threads],
                              dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def following(slot, phase, stages: gl.constexpr):
    """The next slot of a ring, and the parity of its mbarrier: it changes each time round."""
    last = slot == stages - 1
    return gl.where(last, 0, slot + 1), phase ^ gl.where(last, 1, 0)


@gluon.jit
def opaque(x):
    """x, by an instruction that LLVM cannot see through: it moves the rescaling of O, or the rounding of P, past the loop's end
    otherwise, where it costs registers."""
    if x.dtype == gl.float32:
        return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=True, pack=2)


@gluon.jit
def opaque_zero(n):
    """0, from a loop's counter, by an instruction that LLVM cannot see through: what is computed with it stays in the loop."""
    return gl.inline_asm_elementwise("shr.u32 $0, $1, 30;", "=r,r", [n], dtype=gl.int32, is_pure=True, pack=1)


@builtin
def add_by_tma(descriptor, at, tile, _semantic=None):
    """Have TMA add a tile in shared memory to a tensor in HBM. It is under way until tma.store_wait."""
    at = _semantic._convert_to_ir_values(at, require_i64=False)
    _semantic.builder.create_async_tma_reduce(ir.DESCRIPTOR_REDUCE_KIND.ADD, descriptor.handle, at, tile.handle)


@gluon.jit
def sums_are_there(n):
    """Wait until what this thread had TMA add is in HBM; tma.store_wait waits until it is out of shared memory. n: any number."""
    gl.inline_asm_elementwise("cp.async.bulk.wait_group 0; mov.u32 $0, $1;", "=r,r", [n], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def pinned(x):
    """x, which has to be there before anything after it: no compiler moves a shuffle. With itself, it changes nothing."""
    return gl.inline_asm_elementwise("shfl.sync.bfly.b32 $0, $1, 0, 31, -1;", "=f,f", [x], dtype=gl.float32, is_pure=False, pack=1)


@gluon.jit
def row_maximum(S, chains: gl.constexpr):
    """The maximum of each row. gl.max makes one chain of dependent maxima of a thread's elements; two chains run side by side."""
    rows: gl.constexpr = gl.SliceLayout(1, S.type.layout)
    if chains == 1:
        return gl.max(S, 1)
    parts = gl.max(S.reshape([S.shape[0], S.shape[1] // 8, 8]), 1)
    return gl.convert_layout(gl.max(parts, 1), rows, assert_trivial=True)


@gluon.jit
def row_shares(P):
    """Each thread's own part of the row sums: four threads hold a row, and add up their parts once, after the loop."""
    return gl.sum(gl.sum(P.reshape([P.shape[0], P.shape[1] // 8, 4, 2]), 3), 1)


@gluon.jit
def scaled_rows(x, alpha):
    """x with each row multiplied by its alpha."""
    return x * gl.convert_layout(alpha, gl.SliceLayout(1, x.type.layout))[:, None]


@gluon.jit
def forward_signals(consumers: gl.constexpr, stages: gl.constexpr):
    """The mbarriers of a forward pass: (Q_full, Q_free, K_full, V_full), and a board on which the next tile is written down."""
    Q_full = gl.allocate_shared_memory(gl.int64, [consumers, 1], mbarrier.MBarrierLayout())
    Q_free = gl.allocate_shared_memory(gl.int64, [consumers, 1], mbarrier.MBarrierLayout())
    K_full = gl.allocate_shared_memory(gl.int64, [stages, 1], mbarrier.MBarrierLayout())
    V_full = gl.allocate_shared_memory(gl.int64, [stages, 1], mbarrier.MBarrierLayout())
    numbers = gl.allocate_shared_memory(gl.int64, [12, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))    # six, in two places
    next_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    next_free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for n in gl.static_range(consumers):
        mbarrier.init(Q_full.index(n), count=1)
        mbarrier.init(Q_free.index(n), count=1)
    for n in gl.static_range(stages):
        mbarrier.init(K_full.index(n), count=1)
        mbarrier.init(V_full.index(n), count=1)
    for n in gl.static_range(2):
        mbarrier.init(next_full.index(n), count=1)
        mbarrier.init(next_free.index(n), count=consumers)
    return (Q_full, Q_free, K_full, V_full), (numbers, next_full, next_free)
