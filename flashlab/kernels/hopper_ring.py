"""FA2's forward pass in Gluon: TMA copies into a ring of slots, mbarriers say what has landed, wgmma multiplies.

Triton's rung before this one has all of it, too, written by the compiler. Here it stands in the kernel. The K and V of
a program go through a ring, two slots each: block j lies in slot j % 2. Each slot has an mbarrier, `full`, which counts
bytes: `expect` says how many will come, TMA counts those that have come, and with the last one the mbarrier's phase
ends. Phases are numbered 0, 1, 0, 1, ...: wait(full, 0) returns once a phase 0 is over, so the reader of block j, the
slot's use number j // 2, waits for phase j // 2 % 2.

A product is issued by one line and waited for by another: wgmma_wait(n) returns once at most n are still under way.
"""

from flashlab.kernels.gluon_adapter import fence, gl, jit, mbarrier, thread_barrier, tma, wgmma, wgmma_wait
from flashlab.kernels.hopper_words import (
    LOG2_E,
    fetch,
    hide_future,
    launch_tiles,
    mbarriers,
    place,
    scaled_rows,
    softmax,
    why_not,
)
from flashlab.kernels.launch import checked_forward

ROWS = gl.constexpr(128)                               # queries of a program: 16 a warp
KEYS = gl.constexpr(128)                               # of a block
SLOTS = gl.constexpr(2)                                # of a ring


@jit
def hopper_ring_kernel(Q, K, V, O, L, scale, N, group, together, causal: gl.constexpr, num_warps: gl.constexpr):
    Q_s = gl.allocate_shared_memory(Q.dtype, Q.block_shape, Q.layout)
    K_s = gl.allocate_shared_memory(K.dtype, [SLOTS] + K.block_shape, K.layout)
    V_s = gl.allocate_shared_memory(V.dtype, [SLOTS] + V.block_shape, V.layout)
    Q_full, K_full, V_full = mbarriers(1, 1), mbarriers(SLOTS, 1), mbarriers(SLOTS, 1)
    thread_barrier()                                   # all warps see them

    head, first_row, end = place(gl.program_id(0), N, together, ROWS, KEYS, causal)
    first_key = head // group * N                      # where this head begins in K and V
    fetch(Q, [head * N + first_row, 0], Q_full.index(0), Q_s)
    for j in gl.static_range(SLOTS):
        if j < end:
            fetch(K, [first_key + j * KEYS, 0], K_full.index(j), K_s.index(j))
            fetch(V, [first_key + j * KEYS, 0], V_full.index(j), V_s.index(j))

    d: gl.constexpr = Q.block_shape[1]
    S_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, KEYS, 16])     # who holds what of S
    O_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, d, 16])
    m_i = gl.full([ROWS], -float("inf"), gl.float32, gl.SliceLayout(1, S_layout))
    l_i = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, S_layout))
    O_i = gl.zeros([ROWS, d], gl.float32, O_layout)
    zeros = gl.zeros([ROWS, KEYS], gl.float32, S_layout)
    mbarrier.wait(Q_full.index(0), 0)
    for j in range(0, end):
        slot, phase = j % SLOTS, j // SLOTS % 2
        mbarrier.wait(K_full.index(slot), phase)
        S = wgmma(Q_s, K_s.index(slot).permute((1, 0)), zeros, use_acc=False, is_async=True)
        S = wgmma_wait(0, deps=[S])
        if causal:
            if (j + 1) * KEYS > first_row + 1:
                S = hide_future(S, first_row, j * KEYS)
        P, m_i, l_i, alpha = softmax(S, m_i, l_i, scale * LOG2_E)
        P = gl.convert_layout(P.to(V.dtype), gl.DotOperandLayout(0, O_layout, 2))
        mbarrier.wait(V_full.index(slot), phase)
        O_i = wgmma(P, V_s.index(slot), scaled_rows(O_i, alpha), is_async=True)
        O_i = wgmma_wait(0, deps=[O_i])
        thread_barrier()                               # all warps have read the slot
        if j + SLOTS < end:
            fetch(K, [first_key + (j + SLOTS) * KEYS, 0], K_full.index(slot), K_s.index(slot))
            fetch(V, [first_key + (j + SLOTS) * KEYS, 0], V_full.index(slot), V_s.index(slot))

    Q_s.store(scaled_rows(O_i, 1 / l_i).to(Q.dtype))   # its place is free now
    fence()                                            # TMA sees what threads have written
    tma.store(O, [head * N + first_row, 0], Q_s)
    gl.store(L + head * N + first_row + gl.arange(0, ROWS, m_i.type.layout), (m_i + gl.log2(l_i)) / LOG2_E)
    tma.store_wait(0)


KERNEL = hopper_ring_kernel


def hopper_ring_forward(Q, K, V, *, causal=False, scale=None):
    """As `fa2_tma_forward`, for N_q = N_k, a multiple of 128. New: a ring of slots, mbarriers and wgmma by hand."""
    return checked_forward(KERNEL, launch, Q, K, V, causal=causal, scale=scale, B_r=None, B_c=None, why_not=why_not)


def launch(Q, K, V, O, L, **options):
    """The grid and the arguments of one launch; nothing is checked and nothing runs."""
    return launch_tiles(Q, K, V, O, L, rows=ROWS, keys=KEYS, num_warps=8, **options)
