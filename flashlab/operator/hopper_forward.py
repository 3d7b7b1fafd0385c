"""FA2's forward pass for Hopper, in Gluon: warps that do different things at the same time.

Triton decides how a program's warps share its work; Gluon, the language below it, lets the kernel say so. Here a program has

    one producer warp        asks TMA for Q once and for K and V block after block, into rings of a few slots
    two to four consumers    warpgroups of 64 query rows each, which share every K and V that arrives

and a consumer never waits for its own product if it can help it. While the tensor cores work on the next block's S = Q K^T and
on O += P V of this one, its threads compute the exponentials of the block between, and the consumers take turns at issuing
products, so that one's exponentials run beside another's products:

    consumer 0    QK 1   softmax 0 . PV 0    QK 2   softmax 1 . PV 1    ...
    consumer 1           QK 1   softmax 0 . PV 0    QK 2   softmax 1 . PV 1

Keys are walked from the last block to the first: what needs a mask, the diagonal or a short last block, comes first, outside the
loop, and a window's left edge last; its rows see too unlike blocks for turns. Programs stay, and a counter hands out their tiles.

Every signal is one of a pair, `full` and `free`, for one buffer. Who counts on which:

    Q_full, K_full, V_full   mbarriers: TMA arrives with the last byte        a consumer waits
    Q_free                   mbarrier: a consumer has read its Q to the end   the producer waits
    K_FREE, V_FREE + slot    named barriers: all consumers have read a slot   the producer waits
    TURN + consumer          named barriers: the one before has issued QK^T   the consumer waits
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from flashlab.kernels.launch import (
    check_call,
    forward,
    heads_together,
    positive_scale,
    programs_at_a_time,
    refuse,
    why_no_tma,
    why_not_hopper,
)
from flashlab.kernels.plans import temporary
from flashlab.operator.hopper_words import (
    arrive,
    counters,
    following,
    forward_signals,
    opaque,
    pinned,
    row_maximum,
    row_shares,
    scaled_rows,
    sync,
    thread_barrier,
)
from flashlab.operator.sequences import slots
from flashlab.operator.spans import (
    announce,
    announced,
    blocks_seen,
    not_before,
    only_visible,
    place,
    rows_of,
    table_of_blocks,
    tiles_of,
    whole_blocks,
    within,
)

LOG2_E = gl.constexpr(1.4426950408889634)              # exp(x) = exp2(x · log2(e))
ROWS = gl.constexpr(64)                                # query rows of a consumer: what one wgmma of a warpgroup takes
K_FREE = gl.constexpr(6)                               # named barriers 6, 7, 8: one a slot; Triton uses the first few itself
V_FREE = gl.constexpr(9)                               # 9, 10, 11
TURN = gl.constexpr(12)                                # 12, 13, ...: one for each consumer
LOWEST = gl.constexpr(-1e30)                           # below any score


@gluon.jit
def ask_for(T, T_s, full, slot, free, j, b, h_kv, rows, packed: gl.constexpr, threads: gl.constexpr):
    """Have block j of K or V copied into a slot as soon as that is free."""
    i, start_q, n_q, start_k, n_k = rows
    at = within(start_k, n_k, h_kv, j * T_s.shape[-2]) if packed else [b, h_kv, j * T_s.shape[-2], 0]
    sync(slot + free, threads)
    mbarrier.expect(full.index(slot), T_s.shape[-2] * T_s.shape[-1] * 2)           # TMA counts the zeros past the ends, too
    tma.async_copy_global_to_shared(T, at, full.index(slot), T_s.index(slot))


@gluon.jit
def producer(shared, d: gl.constexpr, consumers: gl.constexpr, stages: gl.constexpr, causal: gl.constexpr):
    """Have Q, K and V of tile after tile copied, as fast as buffers become free, and tell the consumers which tile comes next."""
    descriptors, L, buffers, signals, schedule, sizes, scale = shared
    Q, K, V, O_out = descriptors
    Q_s, K_s, V_s, O_s = buffers
    Q_full, Q_free, K_full, V_full = signals
    counter, board = schedule
    N_q, N_k, H_q, group, together, tiles, left, right, table = sizes
    all_threads: gl.constexpr = consumers * 128 + 32
    keys: gl.constexpr = K_s.shape[-2]
    packed: gl.constexpr = table is not None
    slot, turn = 0, 0
    tile = place(gl.program_id(0), sizes, consumers * ROWS)
    rows = rows_of(tile, sizes)
    while tile >= 0:
        ticket = gl.atomic_add(counter, 1)             # asked for here, looked at when the slots are full
        coming, coming_rows = tile, rows               # of the same types: there is always a block, and then these are others
        head = gl.cast(tile >> 32, gl.int32)
        b, h = head // H_q, head % H_q
        h_kv = h // group                              # grouped-query attention: neighbours share a key head, uncopied
        i, start_q, n_q, start_k, n_k = rows           # n_q, n_k: the sequence's own
        first, end = blocks_seen(i * consumers * ROWS, n_q, n_k, left, right, consumers * ROWS, keys, causal, packed)
        ask_for(K, K_s, K_full, slot, K_FREE, end - 1, b, h_kv, rows, packed, all_threads)         # room for it comes before Q's
        for c in gl.static_range(consumers):
            mbarrier.wait(Q_free.index(c), (turn & 1) ^ 1)
            mbarrier.expect(Q_full.index(c), ROWS * d * 2)
            row = (i * consumers + c) * ROWS
            at = within(start_q, n_q, h, row) if packed else [b, h, row, 0]
            tma.async_copy_global_to_shared(Q, at, Q_full.index(c), Q_s.index(c))
        for n in range(0, end - first):
            ask_for(V, V_s, V_full, slot, V_FREE, end - 1 - n, b, h_kv, rows, packed, all_threads)
            slot, _ = following(slot, 0, stages)
            if n + 1 < end - first:
                ask_for(K, K_s, K_full, slot, K_FREE, end - 2 - n, b, h_kv, rows, packed, all_threads)
            if n == gl.minimum(stages, end - first) - 1:
                coming, coming_rows = announce(ticket, board, turn, sizes, consumers * ROWS)
        tile, rows, turn = coming, coming_rows, turn + 1
    # The counter is the next launch's, too: who is the last to take nothing any more sets it back.
    if gl.atomic_add(counter + 1, 1) == gl.num_programs(0) - 1:
        gl.store(counter, 0)
        gl.store(counter + 1, 0)


@gluon.jit
def issue_scores(Q, K_s, slot, me: gl.constexpr, consumers: gl.constexpr, turns: gl.constexpr):
    """Start S = Q K^T of the block in a slot. With turns, when it is this consumer's, which it passes on."""
    keys: gl.constexpr = K_s.shape[-2]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, keys, 16])
    K_j = K_s.index(slot).reshape([keys, Q.shape[1]])
    zeros = gl.zeros([ROWS, keys], gl.float32, layout)
    if turns:
        sync(TURN + me, 256)                           # two consumers' threads: the one before arrives, this one waits
    S = warpgroup_mma(Q, K_j.permute((1, 0)), zeros, use_acc=False, is_async=True)
    if turns:
        arrive(TURN + (me + 1) % consumers, 256)
    return S


@gluon.jit
def step(state, Q, buffers, signals, scale_log2, n, span, mask: gl.constexpr, causal: gl.constexpr, me: gl.constexpr,
         consumers: gl.constexpr, stages: gl.constexpr, unrolled: gl.constexpr):
    """One block: start S of the next and O += P V of this one, then the softmax of the next under the second product.

    n: how many blocks are still to come, the next one among them; span: which rows these are, and what they see
    mask: what puts -inf in S where a key of the next block is hidden, or None
    At d = 128 O is rescaled while S is computed, and P rounded as soon as it is there. At d = 64, with three consumers, fewer
    registers are left: O is rescaled when its product is done, and P stays float32 until the one before has been used.
    """
    O, P, m, l, alpha, slot, phase, next_slot, next_phase = state
    Q_s, K_s, V_s, O_s = buffers
    Q_full, Q_free, K_full, V_full = signals
    d: gl.constexpr = Q.shape[1]
    wide: gl.constexpr = d == 128
    operand: gl.constexpr = gl.DotOperandLayout(0, O.type.layout, 2)
    all_threads: gl.constexpr = consumers * 128 + 32

    S = issue_scores(Q, K_s, next_slot, me, consumers, span[4] is None)
    mbarrier.wait(V_full.index(slot), phase)
    if wide:
        O = scaled_rows(O, alpha)
    O = warpgroup_mma(P, V_s.index(slot).reshape([V_s.shape[-2], d]), O, is_async=True)
    S = warpgroup_mma_wait(1, deps=[S])                # S is there, O's product still runs
    arrive(next_slot + K_FREE, all_threads)

    if mask is not None:
        S = mask(S, span, n - 1, causal)
    m_new = gl.maximum(m, row_maximum(S, 1 if wide else 2))
    P_next = gl.exp2(S * scale_log2 - (m_new * scale_log2)[:, None])
    alpha = gl.exp2(m * scale_log2 - m_new * scale_log2)
    l = scaled_rows(l, alpha) + row_shares(P_next)
    if wide:
        P_rounded = P_next.to(V_s.dtype)
    if unrolled:
        l = pinned(l)
    after, after_phase = following(next_slot, next_phase, stages)
    # A wait for something else in front of the wait for O: the assembler would hoist that above the exponentials otherwise.
    mbarrier.wait(K_full.index(after), after_phase, pred=n > 1)
    O = warpgroup_mma_wait(0, deps=[O])
    if wide:
        P = gl.convert_layout(P_rounded, operand)
    else:
        P = opaque(gl.convert_layout(P_next.to(V_s.dtype), operand))
    arrive(slot + V_FREE, all_threads)
    if not wide:
        O = scaled_rows(O, alpha)
    return O, P, m_new, l, alpha, next_slot, next_phase, after, after_phase


@gluon.jit
def pass_over(count, slot, phase, signals, me: gl.constexpr, consumers: gl.constexpr, stages: gl.constexpr, turns: gl.constexpr):
    """Let go of blocks that no row of this consumer sees: the others wait for its turns, the producer for its slots."""
    Q_full, Q_free, K_full, V_full = signals
    all_threads: gl.constexpr = consumers * 128 + 32
    for _ in range(0, count):
        if turns:
            sync(TURN + me, 256)
            arrive(TURN + (me + 1) % consumers, 256)
        mbarrier.wait(K_full.index(slot), phase)       # not before it is full: the producer would count it for the round before
        arrive(slot + K_FREE, all_threads)
        mbarrier.wait(V_full.index(slot), phase)
        arrive(slot + V_FREE, all_threads)
        slot, phase = following(slot, phase, stages)
    return slot, phase


@gluon.jit
def attend(Q, buffers, signals, scale_log2, span, end, slot, phase, causal: gl.constexpr, packed: gl.constexpr,
           ragged: gl.constexpr, crossing: gl.constexpr, me: gl.constexpr, consumers: gl.constexpr, stages: gl.constexpr,
           unrolled: gl.constexpr):
    """All blocks of one tile but the last product: the last block, which may need a mask, then the loop. Returns the state."""
    Q_s, K_s, V_s, O_s = buffers
    Q_full, Q_free, K_full, V_full = signals
    first_row, first, N_q, N_k, left, right = span
    d: gl.constexpr = Q.shape[1]
    keys: gl.constexpr = K_s.shape[-2]
    O_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, d, 16])
    mbarrier.wait(K_full.index(slot), phase)
    S = issue_scores(Q, K_s, slot, me, consumers, left is None)
    S = warpgroup_mma_wait(0, deps=[S])
    arrive(slot + K_FREE, consumers * 128 + 32)
    n = end - 1 - first                                # blocks after this one
    if causal or ragged:
        S = only_visible(S, span, n, causal)
    m = row_maximum(S, 1 if d == 128 else 2)
    if crossing or packed:                             # a row may see nothing of this block, and -inf minus -inf would be NaN
        m = gl.maximum(m, LOWEST)
    P = gl.exp2(S * scale_log2 - (m * scale_log2)[:, None])
    l = row_shares(P)
    P = opaque(gl.convert_layout(P.to(V_s.dtype), gl.DotOperandLayout(0, O_layout, 2)))
    next_slot, next_phase = following(slot, phase, stages)
    mbarrier.wait(K_full.index(next_slot), next_phase, pred=n > 0)
    O = gl.zeros([ROWS, d], gl.float32, O_layout)
    state = (O, P, m, l, gl.exp2(m - m), slot, phase, next_slot, next_phase)

    at_left, at_right = 0, gl.minimum(n, 1)        # blocks that need a mask, before and after those that need none
    if left is not None or packed:
        whole, whole_end = whole_blocks(first_row, N_q, N_k, left, right, ROWS, keys, causal)
        at_right = gl.maximum(0, gl.minimum(n, end - 1 - whole_end))
        at_left = gl.maximum(0, gl.minimum(n - at_right, whole - first))
    if crossing:                                       # 64 rows whose last keys lie in two blocks
        for j in range(0, at_right):
            state = step(state, Q, buffers, signals, scale_log2, n - j, span, only_visible, causal, me, consumers, stages, unrolled)
        n = n - at_right
    whole = n - at_left
    if unrolled:                                       # two blocks a round: what is P in one is P_next in the other, and stays put
        for _ in range(0, whole & 1):
            state = step(state, Q, buffers, signals, scale_log2, n, span, None, causal, me, consumers, stages, unrolled)
        n = n - (whole & 1)
        for j in range(0, whole & -2, 2):
            state = step(state, Q, buffers, signals, scale_log2, n - j, span, None, causal, me, consumers, stages, unrolled)
            state = step(state, Q, buffers, signals, scale_log2, n - j - 1, span, None, causal, me, consumers, stages, unrolled)
    else:
        for j in range(0, whole):
            state = step(state, Q, buffers, signals, scale_log2, n - j, span, None, causal, me, consumers, stages, unrolled)
    if left is not None:
        for j in range(0, at_left):
            state = step(state, Q, buffers, signals, scale_log2, at_left - j, span, not_before, causal, me, consumers, stages,
                         unrolled)
    return state


@gluon.jit
def write_out(O, m, l_i, scale_log2, O_out, O_s, L, head, first_row, start_q, n_q, N_q, blind: gl.constexpr, packed: gl.constexpr):
    """Divide O by l, and have TMA write it while the next tile is computed; L. blind, packed: a row may have seen no key."""
    if blind or packed:
        l_i = gl.where(l_i == 0, 1.0, l_i)             # O stays 0
    O = scaled_rows(O, 1.0 / l_i)
    tma.store_wait(0)                                  # the tile before has left O_s
    O_s.reshape([ROWS, O.shape[1]]).store(O.to(O_s.dtype))
    fence_async_shared()
    at = within(start_q, n_q, head, first_row) if packed else [head, first_row, 0]
    tma.async_copy_shared_to_global(O_out, at, O_s)
    rows = first_row + gl.arange(0, ROWS, m.type.layout)
    L_at, exist = L + gl.cast(head, gl.int64) * N_q + start_q + rows, rows < n_q
    L_i = (m * scale_log2 + gl.log2(l_i)) / LOG2_E
    if blind or packed:
        L_i = gl.where(m == LOWEST, float("-inf"), L_i)
    gl.store(L_at, L_i, mask=exist)


@gluon.jit
def consumer(shared, me: gl.constexpr, d: gl.constexpr, consumers: gl.constexpr, stages: gl.constexpr, causal: gl.constexpr,
             ragged: gl.constexpr, crossing: gl.constexpr, unrolled: gl.constexpr):
    """Take tile after tile: its 64 rows against all blocks of keys that they see, then O and L."""
    descriptors, L, buffers, signals, schedule, sizes, scale = shared
    Q_in, K_in, V_in, O_out = descriptors
    Q_s, K_s, V_s, O_s = buffers
    Q_full, Q_free, K_full, V_full = signals
    counter, board = schedule
    N_q, N_k, H_q, group, together, tiles, left, right, table = sizes
    packed: gl.constexpr = table is not None
    keys: gl.constexpr = K_s.shape[-2]
    rows_of_S: gl.constexpr = gl.SliceLayout(1, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, keys, 16]))
    scale_log2 = scale * LOG2_E
    Q = Q_s.index(me).reshape([ROWS, d])
    slot, phase, turn = 0, 0, 0
    for n in gl.static_range(stages):                  # all slots are free
        arrive(n + K_FREE, consumers * 128 + 32)
        arrive(n + V_FREE, consumers * 128 + 32)
    if me == consumers - 1:                            # as if the last one had just issued: the first turn is consumer 0's
        arrive(TURN, 256)
    tile = place(gl.program_id(0), sizes, consumers * ROWS)
    rows = rows_of(tile, sizes)
    while tile >= 0:
        head = gl.cast(tile >> 32, gl.int32)
        i, start_q, n_q, start_k, n_k = rows
        first_row = (i * consumers + me) * ROWS
        all_first, all_end = blocks_seen(i * consumers * ROWS, n_q, n_k, left, right, consumers * ROWS, keys, causal, packed)
        first, end = blocks_seen(first_row, n_q, n_k, left, right, ROWS, keys, causal, packed)
        if left is not None:
            first = gl.where(first_row < n_q, first, all_first)
        end = gl.where(first_row < n_q, end, first)
        mbarrier.wait(Q_full.index(me), turn & 1)
        slot, phase = pass_over(all_end - end, slot, phase, signals, me, consumers, stages, left is None)
        if end == first:
            mbarrier.arrive(Q_free.index(me), count=1)
        else:
            span = (first_row, first, n_q, n_k, left, right)
            O, P, m, l, alpha, slot, phase, next_slot, next_phase = attend(
                Q, buffers, signals, scale_log2, span, end, slot, phase, causal, packed, ragged, crossing, me, consumers, stages,
                unrolled)
            if d == 128:
                O = scaled_rows(O, opaque(alpha))
            thread_barrier()                           # all 128 threads have read Q
            mbarrier.arrive(Q_free.index(me), count=1)
            mbarrier.wait(V_full.index(slot), phase)
            O = warpgroup_mma(P, V_s.index(slot).reshape([V_s.shape[-2], d]), O, is_async=True)
            l_i = gl.convert_layout(gl.sum(l, 1), rows_of_S)
            O = warpgroup_mma_wait(0, deps=[O])
            arrive(slot + V_FREE, consumers * 128 + 32)
            slot, phase = next_slot, next_phase
            if left is not None:
                slot, phase = pass_over(first - all_first, slot, phase, signals, me, consumers, stages, False)
            write_out(O, m, l_i, scale_log2, O_out, O_s.index(me), L, head, first_row, start_q, n_q, N_q, left is not None, packed)
        tile, rows = announced(board, turn, sizes)
        turn += 1
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["N_q", "N_k", "H_q", "group", "together", "tiles", "left", "right"])
def fa2_hopper_kernel(Q, K, V, O, L, counter, scale, N_q, N_k, H_q, group, together, tiles, left, right, table, d: gl.constexpr,
                      keys: gl.constexpr, consumers: gl.constexpr, stages: gl.constexpr, causal: gl.constexpr, ragged: gl.constexpr,
                      crossing: gl.constexpr, unrolled: gl.constexpr, registers: gl.constexpr, num_warps: gl.constexpr):
    """Shared memory and the signals in it, then every warp goes to its own work."""
    if table is not None:
        tiles = H_q * gl.load(table)                   # which the host does not know
    Q_s = gl.allocate_shared_memory(Q.dtype, [consumers] + Q.block_shape, Q.layout)
    K_s = gl.allocate_shared_memory(K.dtype, [stages] + K.block_shape, K.layout)
    V_s = gl.allocate_shared_memory(V.dtype, [stages] + V.block_shape, V.layout)
    O_s = gl.allocate_shared_memory(O.dtype, [consumers] + O.block_shape, O.layout)
    descriptors, buffers = (Q, K, V, O), (Q_s, K_s, V_s, O_s)
    signals, board = forward_signals(consumers, stages)
    sizes = (N_q, N_k, H_q, group, together, tiles, left, right, table)
    shared = (descriptors, L, buffers, signals, (counter, board), sizes, scale)
    # Warps, and registers a thread, of all but the first, which has the launch's warps and what registers are left.
    if consumers == 2:
        gl.warp_specialize([
            (consumer, (shared, 0, d, 2, stages, causal, ragged, crossing, unrolled)),
            (consumer, (shared, 1, d, 2, stages, causal, ragged, crossing, unrolled)),
            (producer, (shared, d, 2, stages, causal)),
        ], [4, 1], [registers, 24])
    elif consumers == 3:
        gl.warp_specialize([
            (consumer, (shared, 0, d, 3, stages, causal, ragged, crossing, unrolled)),
            (consumer, (shared, 1, d, 3, stages, causal, ragged, crossing, unrolled)),
            (consumer, (shared, 2, d, 3, stages, causal, ragged, crossing, unrolled)),
            (producer, (shared, d, 3, stages, causal)),
        ], [4, 4, 1], [registers, registers, 24])
    else:
        gl.warp_specialize([
            (consumer, (shared, 0, d, 4, stages, causal, ragged, crossing, unrolled)),
            (consumer, (shared, 1, d, 4, stages, causal, ragged, crossing, unrolled)),
            (consumer, (shared, 2, d, 4, stages, causal, ragged, crossing, unrolled)),
            (consumer, (shared, 3, d, 4, stages, causal, ragged, crossing, unrolled)),
            (producer, (shared, d, 4, stages, causal)),
        ], [4, 4, 4, 1], [registers, registers, registers, 24])


KERNEL = fa2_hopper_kernel


def fa2_hopper_forward(
    Q, K, V, *, causal=False, window=None, cu_seqlens_q=None, cu_seqlens_k=None, scale=None, dropout_p=0.0, seed=None,
    B_r=None, B_c=None,
):
    """Exact attention for every batch and head in one launch, on a Hopper GPU.

    Shapes:  Q (B, H_q, N_q, d), K (B, H_kv, N_k, d), V (B, H_kv, N_k, d)
             -> O (B, H_q, N_q, d) in Q's dtype, L (B, H_q, N_q) float32, natural-log logsumexp
             d 64 or 128, float16 or bfloat16, H_q a multiple of H_kv, no dropout; strides and the rest: see `why_not`
    Window, packed: as fa2_triton_forward
    Tiles:   192 x 128 or 256 x 64 at d = 64, 128 x 128 at d = 128: the division of labour fixes them
    Error:   at most 2x that of naive in the same dtype, both against float64
    Raises:  TypeError or ValueError before anything is launched
    Source:  Shah et al. 2024, arXiv:2407.08608, FlashAttention-3: warp specialisation, products under exponentials
    New:     against fa2_persistent_forward: who loads and who computes are different warps; a counter hands out the tiles
    """
    options = check_call(Q, K, V, B_r=B_r, B_c=B_c, causal=causal, window=window, cu_seqlens_q=cu_seqlens_q,
                         cu_seqlens_k=cu_seqlens_k, scale=scale, dropout_p=dropout_p, seed=seed)
    refuse(why_not(Q, K, V, B_r=B_r, B_c=B_c, **options))
    return forward(KERNEL, launch, Q, K, V, **options)


def why_not(Q, K, V, *, causal=False, dropout_p=0.0, cu_seqlens_q=None, B_r=None, B_c=None, **options):
    """Why this rung does not take a call, in words; None where it does."""
    if reason := why_not_hopper(Q, V, dropout_p, B_r, B_c):
        return reason
    if causal and cu_seqlens_q is None and Q.shape[2] > K.shape[2]:
        return "with more queries than keys some causal rows see no key"
    return why_no_tma(Q, K, V)


def launch(Q, K, V, O, L, *, causal, scale, left=None, right=None, cu_seqlens_q=None, cu_seqlens_k=None, batch=None, **options):
    """The grid and the arguments of one launch, with those `before` it; nothing is checked and nothing runs."""
    Q, scale = positive_scale(Q, scale)
    (B, H_q, N_q, d), (_, H_kv, N_k, _) = Q.shape, K.shape
    N = max(N_q, N_k) // (batch or 1)                  # packed: of a sequence of medium length
    packed, choice = batch is not None, how_many(d, N, causal) if left is None else how_many(d, min(N, left + right + 1), True)
    keys, rows = choice["keys"], choice["consumers"] * 64
    arguments = {"L": L, "counter": temporary(counters, 2, dtype=torch.int32, device=Q.device), "scale": scale, "table": None}
    arguments |= {name: tiles_of(T, n, packed) for name, T, n in (("Q", Q, 64), ("K", K, keys), ("V", V, keys))}
    arguments["O"] = tiles_of(O, 64, packed, (B * H_q, N_q, d))
    if packed:
        arguments["table"], *arguments["before"] = table_of_blocks(cu_seqlens_q, cu_seqlens_k, N_q, N_k, rows)
    tiles = B * H_q * slots(N_q, rows, batch)
    arguments |= {"N_q": N_q, "N_k": N_k, "H_q": H_q, "group": H_q // H_kv, "tiles": tiles, "left": left, "right": right}
    arguments |= {"together": 1, "d": d, "causal": causal}
    if causal or left is not None:                     # tiles that see few keys, of all these heads, come last
        in_use = N_k // (batch or 1) if left is None else left + right + 4 * rows
        arguments["together"] = heads_together(Q, K, V, in_use)
    arguments |= {"ragged": packed or left is not None or N_k % keys > 0}
    arguments["crossing"] = left is not None or causal and (packed or (N_k - N_q) % 64 > 0)
    return (min(tiles, programs_at_a_time(Q, 8)),), arguments | choice | {"num_warps": 4}


def how_many(d, N, causal):
    """Keys of a block, consumers, slots of a ring, whether the loop is unrolled by two: the fastest of those tried on an H200."""
    if d == 64 and causal and N <= 4096:               # smaller blocks waste less at the diagonal
        return {"keys": 64, "consumers": 4, "stages": 3, "unrolled": False, "registers": 112}
    if d == 64:
        return {"keys": 128, "consumers": 3, "stages": 3, "unrolled": False, "registers": 160}
    return {"keys": 128, "consumers": 2, "stages": 2, "unrolled": N >= 8192, "registers": 240}
