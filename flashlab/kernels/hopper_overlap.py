"""FA2's forward pass in Gluon: a consumer issues the next S = Q K^T before this softmax, O += P V too.

A product's result is needed only later, so a consumer issues ahead: first S of the next block, then O of this one. It
waits until S is there, wgmma_wait(1), and computes the next P while the tensor cores may still work on O. The first S
has nothing before it and the last O nothing after it: both stand outside the loop. With the keys walked from the last
block to the first, the only block that a causal tile must mask is the first one, outside the loop as well.
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
        row = first_key + (end - 1 - j) * KEYS
        fetch_when_free(K, row, K_s, K_full, K_free, j)
        fetch_when_free(V, row, V_s, V_full, V_free, j)


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
    mbarrier.wait(K_full.index(0), 0)
    S = wgmma(Q_s.index(me), K_s.index(0).permute((1, 0)), zeros, use_acc=False, is_async=True)
    S = wgmma_wait(0, deps=[S])
    release(K_free.index(0))
    if causal:
        S = hide_future(S, first_row, (end - 1) * KEYS)
    P, m_i, l_i, alpha = softmax(S, m_i, l_i, scale * LOG2_E)
    P = gl.convert_layout(P.to(V_s.dtype), gl.DotOperandLayout(0, O_layout, 2))
    mbarrier.wait(K_full.index(1 % SLOTS), 1 // SLOTS % 2, pred=end > 1)
    for j in range(1, end):                            # S of block j, O of the one before
        slot, before = j % SLOTS, (j - 1) % SLOTS
        S = wgmma(Q_s.index(me), K_s.index(slot).permute((1, 0)), zeros, use_acc=False, is_async=True)
        mbarrier.wait(V_full.index(before), (j - 1) // SLOTS % 2)
        O_i = wgmma(P, V_s.index(before), O_i, is_async=True)
        S = wgmma_wait(1, deps=[S])                    # S is there, O's product still runs
        release(K_free.index(slot))
        P_next, m_i, l_i, alpha = softmax(S, m_i, l_i, scale * LOG2_E)
        # A wait for something else before the wait for O: otherwise the assembler hoists that above the exponentials.
        mbarrier.wait(K_full.index((j + 1) % SLOTS), (j + 1) // SLOTS % 2, pred=j + 1 < end)
        O_i = wgmma_wait(0, deps=[O_i])
        release(V_free.index(before))
        P = gl.convert_layout(P_next.to(V_s.dtype), gl.DotOperandLayout(0, O_layout, 2))
        O_i = scaled_rows(O_i, alpha)
    last = (end - 1) % SLOTS
    mbarrier.wait(V_full.index(last), (end - 1) // SLOTS % 2)
    O_i = wgmma(P, V_s.index(last), O_i, is_async=True)
    O_i = wgmma_wait(0, deps=[O_i])
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
def hopper_overlap_kernel(Q, K, V, O, L, scale, N, group, together, causal: gl.constexpr, num_warps: gl.constexpr):
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


KERNEL = hopper_overlap_kernel


def hopper_overlap_forward(Q, K, V, *, causal=False, scale=None):
    """As `fa2_tma_forward`, for N_q = N_k, a multiple of 128. New: products under way during the softmax."""
    return checked_forward(KERNEL, launch, Q, K, V, causal=causal, scale=scale, B_r=None, B_c=None, why_not=why_not)


def launch(Q, K, V, O, L, **options):
    """The grid and the arguments of one launch; nothing is checked and nothing runs."""
    return launch_tiles(Q, K, V, O, L, rows=ROWS, keys=KEYS, **options)
