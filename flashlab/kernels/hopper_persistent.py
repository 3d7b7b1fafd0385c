"""FA2's forward pass in Gluon, by programs that stay: the next tile's Q, K and V come while this one is finished.

A counter in HBM hands out the tiles, so that a program with short ones takes more of them. The producer draws the next
number early, and lays it down beside Q; Q_full and Q_free are the signals for both. The rings go on where the tile
before has left them: n counts the blocks of all tiles so far, turn the tiles. O has a place of its own, from which TMA
writes while the next tile is computed. An SM holds one such program.
"""

import torch

from flashlab.kernels.gluon_adapter import fence, gl, jit, mbarrier, tma, wgmma, wgmma_wait
from flashlab.kernels.hopper_words import (
    LOG2_E,
    ROWS,
    arrive,
    fetch,
    hide_future,
    launch_tiles,
    mbarriers,
    place,
    release,
    scaled_rows,
    softmax,
    sync,
    why_not,
)
from flashlab.kernels.launch import checked_forward, programs_at_a_time
from flashlab.kernels.plans import temporary

CONSUMERS = gl.constexpr(2)                            # warpgroups
KEYS = gl.constexpr(128)                               # of a block
SLOTS = gl.constexpr(2)                                # of a ring
TURN = gl.constexpr(12)                                # named barriers 12 and 13; Triton uses the first few of 16


@jit
def fetch_when_free(T, row, T_s, full, free, j):
    """Fetch the j-th tile that goes through a ring, as soon as its slot is free."""
    slot, phase = j % SLOTS, j // SLOTS % 2
    mbarrier.wait(free.index(slot), phase ^ 1)
    fetch(T, [row, 0], full.index(slot), T_s.index(slot))


@jit
def lay_down(place, number):
    """Write one number to shared memory, by one warp. Each of its 32 threads holds a copy."""
    place.store(gl.full([1], number, gl.int32, gl.BlockedLayout([1], [32], [1], [0])))


@jit
def look_at(place):
    """That number, read by four warps. gl.max makes a plain number of the tile of one."""
    return gl.max(place.load(gl.BlockedLayout([1], [32], [4], [0])), 0)


@jit
def producer(Q, K, V, tiles, signals, counter, how_many, N, group, together, causal: gl.constexpr):
    Q_s, K_s, V_s, O_s, number = tiles
    Q_full, K_full, V_full, Q_free, K_free, V_free = signals
    n, turn, tile = 0, 0, gl.program_id(0)
    while tile < how_many:
        coming = gl.num_programs(0) + gl.atomic_add(counter, 1)                    # requested here, needed below
        head, first_row, end = place(tile, N, together, CONSUMERS * ROWS, KEYS, causal)
        mbarrier.wait(Q_free.index(0), turn % 2 ^ 1)
        lay_down(number, tile)
        for me in gl.static_range(CONSUMERS):
            fetch(Q, [head * N + first_row + me * ROWS, 0], Q_full.index(me), Q_s.index(me))
        first_key = head // group * N                  # where this head begins in K and V
        for j in range(0, end):
            row = first_key + (end - 1 - j) * KEYS
            fetch_when_free(K, row, K_s, K_full, K_free, n + j)
            fetch_when_free(V, row, V_s, V_full, V_free, n + j)
        n, turn, tile = n + end, turn + 1, coming
    mbarrier.wait(Q_free.index(0), turn % 2 ^ 1)
    lay_down(number, -1)                               # no more
    for me in gl.static_range(CONSUMERS):
        mbarrier.arrive(Q_full.index(me), count=1)


@jit
def issue_scores(me: gl.constexpr, Q_i, K_j):
    """Start S = Q K^T when it is this consumer's turn, and pass the turn on. The last time, nobody takes it."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    zeros = gl.zeros([ROWS, KEYS], gl.float32, layout)
    sync(TURN + me, 256)                               # the threads of both: the other arrives, this one waits
    S = wgmma(Q_i, K_j.permute((1, 0)), zeros, use_acc=False, is_async=True)
    arrive(TURN + 1 - me, 256)
    return S


@jit
def attend(me: gl.constexpr, tiles, signals, n, scale, first_row, end, causal: gl.constexpr):
    """O of these queries, and their L in base 2. n: how many blocks the rings have had before"""
    Q_s, K_s, V_s, O_s, number = tiles
    Q_full, K_full, V_full, Q_free, K_free, V_free = signals
    d: gl.constexpr = Q_s.shape[2]
    S_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])     # who holds what of S
    O_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, d, 16])
    m_i = gl.full([ROWS], -float("inf"), gl.float32, gl.SliceLayout(1, S_layout))
    l_i = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, S_layout))
    O_i = gl.zeros([ROWS, d], gl.float32, O_layout)
    mbarrier.wait(K_full.index(n % SLOTS), n // SLOTS % 2)
    S = wgmma_wait(0, deps=[issue_scores(me, Q_s.index(me), K_s.index(n % SLOTS))])
    release(K_free.index(n % SLOTS))
    if causal:
        S = hide_future(S, first_row, (end - 1) * KEYS)
    P, m_i, l_i, alpha = softmax(S, m_i, l_i, scale * LOG2_E)
    P = gl.convert_layout(P.to(V_s.dtype), gl.DotOperandLayout(0, O_layout, 2))
    mbarrier.wait(K_full.index((n + 1) % SLOTS), (n + 1) // SLOTS % 2, pred=end > 1)
    for j in range(n + 1, n + end):                    # S of block j, O of the one before
        slot, before = j % SLOTS, (j - 1) % SLOTS
        S = issue_scores(me, Q_s.index(me), K_s.index(slot))
        mbarrier.wait(V_full.index(before), (j - 1) // SLOTS % 2)
        O_i = wgmma(P, V_s.index(before), O_i, is_async=True)
        S = wgmma_wait(1, deps=[S])                    # S is there, O's product still runs
        release(K_free.index(slot))
        P_next, m_i, l_i, alpha = softmax(S, m_i, l_i, scale * LOG2_E)
        # A wait for something else before the wait for O: otherwise the assembler hoists that above the exponentials.
        mbarrier.wait(K_full.index((j + 1) % SLOTS), (j + 1) // SLOTS % 2, pred=j + 1 < n + end)
        O_i = wgmma_wait(0, deps=[O_i])
        release(V_free.index(before))
        P = gl.convert_layout(P_next.to(V_s.dtype), gl.DotOperandLayout(0, O_layout, 2))
        O_i = scaled_rows(O_i, alpha)
    release(Q_free.index(0))
    slot, phase = (n + end - 1) % SLOTS, (n + end - 1) // SLOTS % 2
    mbarrier.wait(V_full.index(slot), phase)
    O_i = wgmma(P, V_s.index(slot), O_i, is_async=True)
    O_i = wgmma_wait(0, deps=[O_i])
    release(V_free.index(slot))
    return scaled_rows(O_i, 1 / l_i), m_i + gl.log2(l_i)


@jit
def consumer(me: gl.constexpr, O, L, tiles, signals, scale, N, together, causal: gl.constexpr):
    Q_s, K_s, V_s, O_s, number = tiles
    Q_full, K_full, V_full, Q_free, K_free, V_free = signals
    if me == 1:
        arrive(TURN, 256)                              # consumer 0 begins
    n, turn = 0, 0
    mbarrier.wait(Q_full.index(me), 0)
    tile = look_at(number)
    while tile >= 0:
        head, first_row, end = place(tile, N, together, CONSUMERS * ROWS, KEYS, causal)
        first_row += me * ROWS
        O_i, L_i = attend(me, tiles, signals, n, scale, first_row, end, causal)
        tma.store_wait(0)                              # the tile before has left its place
        O_s.index(me).store(O_i.to(O_s.dtype))
        fence()                                        # TMA sees what threads have written
        tma.store(O, [head * N + first_row, 0], O_s.index(me))
        gl.store(L + head * N + first_row + gl.arange(0, ROWS, L_i.type.layout), L_i / LOG2_E)
        n, turn = n + end, turn + 1
        mbarrier.wait(Q_full.index(me), turn % 2)
        tile = look_at(number)
    tma.store_wait(0)


@jit
def hopper_persistent_kernel(Q, K, V, O, L, counter, scale, how_many, N, group, together, causal: gl.constexpr,
                             num_warps: gl.constexpr):
    Q_s = gl.allocate_shared_memory(Q.dtype, [CONSUMERS] + Q.block_shape, Q.layout)
    K_s = gl.allocate_shared_memory(K.dtype, [SLOTS] + K.block_shape, K.layout)
    V_s = gl.allocate_shared_memory(V.dtype, [SLOTS] + V.block_shape, V.layout)
    O_s = gl.allocate_shared_memory(O.dtype, [CONSUMERS] + O.block_shape, O.layout)
    number = gl.allocate_shared_memory(gl.int32, [1], gl.SwizzledSharedLayout(1, 1, 1, [0]))   # 1, 1, 1: no swizzle
    tiles = (Q_s, K_s, V_s, O_s, number)
    full = (mbarriers(CONSUMERS, 1), mbarriers(SLOTS, 1), mbarriers(SLOTS, 1))
    signals = full + (mbarriers(1, CONSUMERS), mbarriers(SLOTS, CONSUMERS), mbarriers(SLOTS, CONSUMERS))
    gl.warp_specialize([
        (consumer, (0, O, L, tiles, signals, scale, N, together, causal)),         # has the launch's four warps
        (consumer, (1, O, L, tiles, signals, scale, N, together, causal)),
        (producer, (Q, K, V, tiles, signals, counter, how_many, N, group, together, causal)),
    ], [4, 1], [240, 24])                              # warps and registers a thread, of all but the first


KERNEL = hopper_persistent_kernel


def hopper_persistent_forward(Q, K, V, *, causal=False, scale=None):
    """As `fa2_tma_forward`, for N_q = N_k, a multiple of 128. New: programs stay, and a counter hands out the tiles."""
    return checked_forward(KERNEL, launch, Q, K, V, causal=causal, scale=scale, B_r=None, B_c=None, why_not=why_not)


def launch(Q, K, V, O, L, **options):
    """The grid and the arguments of one launch; nothing is checked and nothing runs."""
    (tiles,), arguments = launch_tiles(Q, K, V, O, L, rows=ROWS, keys=KEYS, **options)
    arguments["counter"] = temporary(torch.zeros, 1, dtype=torch.int32, device=Q.device)
    return (min(tiles, programs_at_a_time(Q, 8)),), arguments | {"how_many": tiles}
