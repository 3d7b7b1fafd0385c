"""Words of the operator's Hopper kernels. flashlab/kernels/hopper_words.py has those of the ladder's rungs as well."""

import torch
import triton

from flashlab.kernels.gluon_adapter import aggregate, gl, jit, mbarrier
from flashlab.kernels.hopper_words import arrive, fetch, sync
from flashlab.operator.spans import where_rows

LOWEST = gl.constexpr(-1e30)                           # below any score
_counters: dict[tuple, torch.Tensor] = {}


def counters(shape, dtype, device):
    """Zeros for a kernel that leaves zeros behind. Launches on one stream run one after the other, and share them.

    A CUDA graph has counters of its own, filled with zeros at each replay: it may run beside other launches.
    """
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return torch.zeros(shape, dtype=dtype, device=device)
    stream = triton.runtime.driver.active.get_current_stream(device.index), device
    if stream not in _counters:
        _counters[stream] = torch.zeros(shape, dtype=dtype, device=device)
    return _counters[stream]


@aggregate
class Position:
    """A place in a ring: the slot, and its mbarrier's phase, 0 or 1, which changes each time round."""

    fields = "slot phase"

    @jit
    def following(self, stages: gl.constexpr):
        last = self.slot == stages - 1
        return Position(gl.where(last, 0, self.slot + 1), self.phase ^ gl.where(last, 1, 0))


@aggregate
class Ring:
    """Slots of shared memory that the producer fills by TMA, and that all consumers wait for, read and release."""

    fields = "source tiles full"       # TMA's descriptor, the slots, an mbarrier a slot
    constants = (
        "free threads "                # the first of the named barriers, one a slot; the threads that come there
        "transposed"                   # whether source is (d, keys), as the V of FP8
    )

    @jit
    def fill(self, slot, b, head, j, tile, sizes):
        """Have TMA copy block j of a tile's keys, once all consumers have released the slot."""
        if self.transposed:
            where = [b, head, 0, j * sizes.keys]
        else:
            where = where_rows(b, head, j * sizes.keys, tile.start_k, tile.N_k, sizes.table)
        sync(slot + self.free, self.threads)
        fetch(self.source, where, self.full.index(slot), self.tiles.index(slot))

    @jit
    def wait(self, at, pred=True):
        mbarrier.wait(self.full.index(at.slot), at.phase, pred=pred)

    @jit
    def tile(self, at):
        return self.tiles.index(at.slot).reshape([self.tiles.shape[-2], self.tiles.shape[-1]])

    @jit
    def release(self, slot):
        arrive(slot + self.free, self.threads)



@jit
def opaque(x):
    """x, but LLVM cannot know. It would move the rescaling of O, or the rounding of P, past the loop's end, where that
    costs registers."""
    if x.dtype == gl.float32:
        return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=True, pack=2)


@jit
def opaque_zero(n):
    """0, from a loop's counter, but LLVM cannot know: addresses that depend on it are computed in the loop, and take no
    registers outside it."""
    return gl.inline_asm_elementwise("shr.u32 $0, $1, 30;", "=r,r", [n], dtype=gl.int32, is_pure=True, pack=1)


@jit
def pinned(x):
    """x, computed before anything that comes after: no compiler moves a shuffle, here of a lane with itself."""
    return gl.inline_asm_elementwise("shfl.sync.bfly.b32 $0, $1, 0, 31, -1;", "=f,f", [x], dtype=gl.float32,
                                     is_pure=False, pack=1)


@jit
def wait_for_sums(n):
    """Wait until the sums that this thread asked TMA for are in HBM. tma.store_wait waits for less: until they have
    left shared memory. n: any number."""
    gl.inline_asm_elementwise("cp.async.bulk.wait_group 0; mov.u32 $0, $1;", "=r,r", [n],
                              dtype=gl.int32, is_pure=False, pack=1)


@jit
def row_maximum(S):
    """The maximum of each row. gl.max makes one chain of dependent maxima a thread; here two run side by side."""
    parts = gl.max(S.reshape([S.shape[0], S.shape[1] // 8, 8]), 1)
    return gl.convert_layout(gl.max(parts, 1), gl.SliceLayout(1, S.type.layout), assert_trivial=True)


@jit
def row_shares(P):
    """Each thread's own part of the row sums: four threads hold a row, and add up their parts once, after the loop."""
    return gl.sum(gl.sum(P.reshape([P.shape[0], P.shape[1] // 8, 4, 2]), 3), 1)
