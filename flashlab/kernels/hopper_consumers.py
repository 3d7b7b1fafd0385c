"""FA2's forward pass in Gluon, with two consumers that share every K and V: while one waits, the other computes.

The eight warps of the rung before do everything in step: they wait together for products, and leave the tensor cores
idle together during the softmax. Now two warpgroups have 64 queries each, and need not be at the same place. `free`
counts two arrivals, one from each. Registers change hands as before: the producer's threads keep 24, a consumer's get
240.
"""

from flashlab.kernels.gluon_adapter import fence, gl, jit, mbarrier, tma, wgmma, wgmma_wait
from flashlab.kernels.hopper_words import (
    LOG2_E,
    ROWS,
    fetch,
    hide_future,
    launch_tiles,
    mbarriers,
    place,
    release,
    scaled_rows,
    softmax,
    why_not,
)
from flashlab.kernels.launch import checked_forward

CONSUMERS = gl.constexpr(2)                            # warpgroups
KEYS = gl.constexpr(128)                               # of a block
SLOTS = gl.constexpr(2)                                # of a ring


@jit
def fetch_when_free(T, row, T_s, full, free, j):
    """Fetch the j-th tile that goes through a ring, as soon as its slot is free."""
    slot, phase = j % SLOTS, j // SLOTS % 2
    mbarrier.wait(free.index(slot), phase ^ 1)
    fetch(T, [row, 0], full.index(slot), T_s.index(slot))


@jit
def producer(Q, K, V, tiles, signals, N, group, together, causal: gl.constexpr):
    Q_s, K_s, V_s = tiles
    Q_full, K_full, V_full, K_free, V_free = signals
    head, first_row, end = place(gl.program_id(0), N, together, CONSUMERS * ROWS, KEYS, causal)
    for me in gl.static_range(CONSUMERS):
        fetch(Q, [head * N + first_row + me * ROWS, 0], Q_full.index(me), Q_s.index(me))
    first_key = head // group * N                      # where this head begins in K and V
    for j in range(0, end):
        fetch_when_free(K, first_key + j * KEYS, K_s, K_full, K_free, j)
        fetch_when_free(V, first_key + j * KEYS, V_s, V_full, V_free, j)


@jit
def attend(me: gl.constexpr, tiles, signals, scale, first_row, end, causal: gl.constexpr):
    """O of these queries, and their L in base 2."""
    Q_s, K_s, V_s = tiles
    Q_full, K_full, V_full, K_free, V_free = signals
    d: gl.constexpr = Q_s.shape[2]
    S_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])     # who holds what of S
    O_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, d, 16])
    m_i = gl.full([ROWS], -float("inf"), gl.float32, gl.SliceLayout(1, S_layout))
    l_i = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, S_layout))
    O_i = gl.zeros([ROWS, d], gl.float32, O_layout)
    zeros = gl.zeros([ROWS, KEYS], gl.float32, S_layout)
    mbarrier.wait(Q_full.index(me), 0)
    for j in range(0, end):
        slot, phase = j % SLOTS, j // SLOTS % 2
        mbarrier.wait(K_full.index(slot), phase)
        S = wgmma(Q_s.index(me), K_s.index(slot).permute((1, 0)), zeros, use_acc=False, is_async=True)
        S = wgmma_wait(0, deps=[S])
        release(K_free.index(slot))
        if causal:
            if (j + 1) * KEYS > first_row + 1:
                S = hide_future(S, first_row, j * KEYS)
        P, m_i, l_i, alpha = softmax(S, m_i, l_i, scale * LOG2_E)
        P = gl.convert_layout(P.to(V_s.dtype), gl.DotOperandLayout(0, O_layout, 2))
        mbarrier.wait(V_full.index(slot), phase)
        O_i = wgmma(P, V_s.index(slot), scaled_rows(O_i, alpha), is_async=True)
        O_i = wgmma_wait(0, deps=[O_i])
        release(V_free.index(slot))
    return scaled_rows(O_i, 1 / l_i), m_i + gl.log2(l_i)


@jit
def consumer(me: gl.constexpr, O, L, tiles, signals, scale, N, together, causal: gl.constexpr):
    Q_s, K_s, V_s = tiles
    head, first_row, end = place(gl.program_id(0), N, together, CONSUMERS * ROWS, KEYS, causal)
    first_row += me * ROWS
    O_i, L_i = attend(me, tiles, signals, scale, first_row, end, causal)
    Q_s.index(me).store(O_i.to(Q_s.dtype))             # its place is free now
    fence()                                            # TMA sees what threads have written
    tma.store(O, [head * N + first_row, 0], Q_s.index(me))
    gl.store(L + head * N + first_row + gl.arange(0, ROWS, L_i.type.layout), L_i / LOG2_E)
    tma.store_wait(0)


@jit
def hopper_consumers_kernel(Q, K, V, O, L, scale, N, group, together, causal: gl.constexpr, num_warps: gl.constexpr):
    Q_s = gl.allocate_shared_memory(Q.dtype, [CONSUMERS] + Q.block_shape, Q.layout)
    K_s = gl.allocate_shared_memory(K.dtype, [SLOTS] + K.block_shape, K.layout)
    V_s = gl.allocate_shared_memory(V.dtype, [SLOTS] + V.block_shape, V.layout)
    tiles = (Q_s, K_s, V_s)
    full = (mbarriers(CONSUMERS, 1), mbarriers(SLOTS, 1), mbarriers(SLOTS, 1))
    signals = full + (mbarriers(SLOTS, CONSUMERS), mbarriers(SLOTS, CONSUMERS))
    gl.warp_specialize([
        (consumer, (0, O, L, tiles, signals, scale, N, together, causal)),         # has the launch's four warps
        (consumer, (1, O, L, tiles, signals, scale, N, together, causal)),
        (producer, (Q, K, V, tiles, signals, N, group, together, causal)),
    ], [4, 1], [240, 24])                              # warps and registers a thread, of all but the first


KERNEL = hopper_consumers_kernel


def hopper_consumers_forward(Q, K, V, *, causal=False, scale=None):
    """As `fa2_tma_forward`, for N_q = N_k, a multiple of 128. New: two consumers, each at its own pace."""
    return checked_forward(KERNEL, launch, Q, K, V, causal=causal, scale=scale, B_r=None, B_c=None, why_not=why_not)


def launch(Q, K, V, O, L, **options):
    """The grid and the arguments of one launch; nothing is checked and nothing runs."""
    return launch_tiles(Q, K, V, O, L, rows=ROWS, keys=KEYS, **options)
