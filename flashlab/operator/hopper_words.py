"""The vocabulary of the Hopper kernels: named barriers, rings of buffers, fences for the compiler, operations on a
tile's rows.

A warpgroup is 128 threads whose matrix products run on the tensor cores while the threads go on. Two kinds of barriers
keep warpgroups apart. An mbarrier lies in shared memory and counts bytes as well as arrivals: TMA arrives there when a
tile has landed. A named barrier is one of a program's sixteen, and cheap: a thread with something to announce arrives
and walks on; a thread that needs the news syncs, which waits until enough threads have come.
"""

import torch
import triton

from flashlab.operator.gluon_adapter import aggregate, gl, jit, mbarrier, tma

LOG2_E = gl.constexpr(1.4426950408889634)              # exp(x) = exp2(x · log2(e))
ROWS = gl.constexpr(64)                                # rows of a consumer: what one wgmma of a warpgroup takes

_counters: dict[tuple, torch.Tensor] = {}


def counters(shape, dtype, device):
    """Zeros for a kernel that leaves zeros behind. Launches on one stream run one after the other, and share them.

    A CUDA graph has counters of its own, filled with zeros at each replay: it may run beside other launches.
    """
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return torch.zeros(shape, dtype=dtype, device=device)
    stream = triton.runtime.driver.active.get_current_stream(device.index)
    if (stream, device, shape) not in _counters:
        _counters[stream, device, shape] = torch.zeros(shape, dtype=dtype, device=device)
    return _counters[stream, device, shape]


# ---- barriers and rings


@jit
def sync(barrier, threads: gl.constexpr):
    """Wait at a named barrier until this many threads have come: those that wait there and those that have arrived."""
    gl.inline_asm_elementwise("bar.sync $1, $2; mov.u32 $0, $1;", "=r,r,r", [barrier, threads],
                              dtype=gl.int32, is_pure=False, pack=1)


@jit
def arrive(barrier, threads: gl.constexpr):
    """Count towards a named barrier without waiting."""
    gl.inline_asm_elementwise("bar.arrive $1, $2; mov.u32 $0, $1;", "=r,r,r", [barrier, threads],
                              dtype=gl.int32, is_pure=False, pack=1)


@jit
def mbarriers(number: gl.constexpr, count: gl.constexpr):
    """New mbarriers, each of which waits for `count` arrivals a phase."""
    new = gl.allocate_shared_memory(gl.int64, [number, 1], mbarrier.MBarrierLayout())
    for n in gl.static_range(number):
        mbarrier.init(new.index(n), count=count)
    return new


@aggregate
class Position:
    """A place in a ring: the slot, and its mbarriers' phase, 0 or 1, which changes each time round."""

    fields = "slot phase"

    @jit
    def following(self, stages: gl.constexpr):
        """The next place."""
        last = self.slot == stages - 1
        return Position(gl.where(last, 0, self.slot + 1), self.phase ^ gl.where(last, 1, 0))


@aggregate
class Ring:
    """A few slots of shared memory that the producer fills by TMA and all consumers read, round and round.

    source: a TMA descriptor; tiles: the slots; full: an mbarrier a slot, where TMA arrives with the last byte free: the
    first of the named barriers, one a slot, at which all consumers have read it; threads: the producer's and theirs
    """

    fields = "source tiles full"
    constants = "free threads"

    @jit
    def fill(self, slot, where):
        """The producer: have TMA copy the tile at these coordinates, once all consumers have released the slot."""
        sync(slot + self.free, self.threads)
        fetch(self.source, where, self.full.index(slot), self.tiles.index(slot))

    @jit
    def wait(self, at, pred=True):
        """A consumer: wait until the tile has landed."""
        mbarrier.wait(self.full.index(at.slot), at.phase, pred=pred)

    @jit
    def release(self, slot):
        """A consumer: say that it has read the slot to the end."""
        arrive(slot + self.free, self.threads)


@jit
def fetch(source, where, full, target):
    """Have TMA copy one tile, and arrive at the mbarrier `full` with its last byte."""
    mbarrier.expect(full, source.block_type.nbytes)    # TMA counts the zeros past a tensor's end, too
    tma.async_copy_global_to_shared(source, where, full, target)


# ---- values that no compiler may move


@jit
def opaque(x):
    """x, through an instruction that LLVM cannot see through. LLVM would move the rescaling of O, or the rounding of P,
    past the loop's end otherwise, where it costs registers."""
    if x.dtype == gl.float32:
        return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=True, pack=2)


@jit
def opaque_zero(n):
    """0, from a loop's counter, but LLVM cannot know: what is computed with it stays in the loop."""
    return gl.inline_asm_elementwise("shr.u32 $0, $1, 30;", "=r,r", [n], dtype=gl.int32, is_pure=True, pack=1)


@jit
def pinned(x):
    """x, computed before anything that comes after: no compiler moves a shuffle. With itself, it changes nothing."""
    return gl.inline_asm_elementwise("shfl.sync.bfly.b32 $0, $1, 0, 31, -1;", "=f,f", [x], dtype=gl.float32,
                                     is_pure=False, pack=1)


@jit
def wait_for_sums(n):
    """Wait until the sums that this thread asked TMA for are in HBM. tma.store_wait waits for less: until they have
    left shared memory. n: any number."""
    gl.inline_asm_elementwise("cp.async.bulk.wait_group 0; mov.u32 $0, $1;", "=r,r", [n],
                              dtype=gl.int32, is_pure=False, pack=1)


# ---- operations on rows


@jit
def row_maximum(S, chains: gl.constexpr):
    """The maximum of each row. gl.max makes one chain of dependent maxima a thread; two chains run side by side."""
    rows: gl.constexpr = gl.SliceLayout(1, S.type.layout)
    if chains == 1:
        return gl.max(S, 1)
    parts = gl.max(S.reshape([S.shape[0], S.shape[1] // 8, 8]), 1)
    return gl.convert_layout(gl.max(parts, 1), rows, assert_trivial=True)


@jit
def row_shares(P):
    """Each thread's own part of the row sums: four threads hold a row, and add up their parts once, after the loop."""
    return gl.sum(gl.sum(P.reshape([P.shape[0], P.shape[1] // 8, 4, 2]), 3), 1)


@jit
def scaled_rows(x, alpha):
    """x with each row multiplied by its alpha."""
    return x * gl.convert_layout(alpha, gl.SliceLayout(1, x.type.layout))[:, None]
