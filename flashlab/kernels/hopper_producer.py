"""FA2's forward pass in Gluon, with a warp that only loads and eight that only compute.

The producer runs ahead: it fetches block after block as long as there is room. So each slot gets a second mbarrier,
`free`, at which the consumer arrives when it has read the slot. The producer waits there before it fills the slot
again, one round behind: block j may come when use j // 2 - 1 of its slot is over, which is the phase before the
consumer's. Nobody has freed a slot before the first round. But a new mbarrier is in phase 0, and counts the phase
before it, number 1, as over: so the first wait returns at once.
"""

from flashlab.kernels.gluon_adapter import fence, gl, jit, mbarrier, tma, wgmma, wgmma_wait
from flashlab.kernels.hopper_words import (
    LOG2_E,
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

ROWS = gl.constexpr(128)                               # queries of a program: 16 a warp
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
    head, first_row, end = place(gl.program_id(0), N, together, ROWS, KEYS, causal)
    fetch(Q, [head * N + first_row, 0], Q_full.index(0), Q_s)
    first_key = head // group * N                      # where this head begins in K and V
    for j in range(0, end):
        fetch_when_free(K, first_key + j * KEYS, K_s, K_full, K_free, j)
        fetch_when_free(V, first_key + j * KEYS, V_s, V_full, V_free, j)


@jit
def attend(tiles, signals, scale, first_row, end, causal: gl.constexpr):
    """O of these queries, and their L in base 2."""
    Q_s, K_s, V_s = tiles
    Q_full, K_full, V_full, K_free, V_free = signals
    d: gl.constexpr = Q_s.shape[1]
    S_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, KEYS, 16])     # who holds what of S
    O_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, d, 16])
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
def consumer(O, L, tiles, signals, scale, N, together, causal: gl.constexpr):
    Q_s, K_s, V_s = tiles
    head, first_row, end = place(gl.program_id(0), N, together, ROWS, KEYS, causal)
    O_i, L_i = attend(tiles, signals, scale, first_row, end, causal)
    Q_s.store(O_i.to(Q_s.dtype))                       # its place is free now
    fence()                                            # TMA sees what threads have written
    tma.store(O, [head * N + first_row, 0], Q_s)
    gl.store(L + head * N + first_row + gl.arange(0, ROWS, L_i.type.layout), L_i / LOG2_E)
    tma.store_wait(0)


@jit
def hopper_producer_kernel(Q, K, V, O, L, scale, N, group, together, causal: gl.constexpr, num_warps: gl.constexpr):
    Q_s = gl.allocate_shared_memory(Q.dtype, Q.block_shape, Q.layout)
    K_s = gl.allocate_shared_memory(K.dtype, [SLOTS] + K.block_shape, K.layout)
    V_s = gl.allocate_shared_memory(V.dtype, [SLOTS] + V.block_shape, V.layout)
    tiles = (Q_s, K_s, V_s)
    full = (mbarriers(1, 1), mbarriers(SLOTS, 1), mbarriers(SLOTS, 1))
    signals = full + (mbarriers(SLOTS, 1), mbarriers(SLOTS, 1))
    gl.warp_specialize([
        (consumer, (O, L, tiles, signals, scale, N, together, causal)),            # has the launch's eight warps
        (producer, (Q, K, V, tiles, signals, N, group, together, causal)),
    ], [1], [24])                                      # warps and registers a thread, of all but the first


KERNEL = hopper_producer_kernel


def hopper_producer_forward(Q, K, V, *, causal=False, scale=None):
    """As `fa2_tma_forward`, for N_q = N_k, a multiple of 128. New: a warp that only loads."""
    return checked_forward(KERNEL, launch, Q, K, V, causal=causal, scale=scale, B_r=None, B_c=None, why_not=why_not)


def launch(Q, K, V, O, L, **options):
    """The grid and the arguments of one launch; nothing is checked and nothing runs."""
    return launch_tiles(Q, K, V, O, L, rows=ROWS, keys=KEYS, num_warps=8, **options)
