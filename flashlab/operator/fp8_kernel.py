"""The Hopper kernel in FP8: the same division of labour, with products that the tensor cores make twice as fast.

Q, K and V come as e4m3 numbers, one byte each, with a scale for each block of rows: see quantize.py. Against fa2_hopper.py:

    scores        S is multiplied by the scales of its two blocks, which is one factor more in a multiplication that is there anyway
    P             weights lie in (0, 1], and e4m3 keeps nothing below 2^-10. So P is computed 2^8 times too large, at most 256 of
                  the 448 that e4m3 reaches; l is too large by as much, and the division of O by l takes both out
    V's scale     differs from block to block, but O is rescaled before every product anyway: by alpha times the ratio of the two
                  blocks' scales, and O always has the scale of the block that was added last
    V             the FP8 instructions want both operands with the summed index innermost, for P V the keys: V arrives as (d, keys)
    order of keys a thread holds other keys of S than the ones it must hold of P: 2 neighbours in every 8 against 4 in every 16.
                  Moving them would take shuffles. A sum may be taken in any order, so V's keys come in the order of the threads
"""

from functools import partial

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from flashlab.kernels import plans
from flashlab.kernels.launch import descriptor, heads_together, programs_at_a_time
from flashlab.kernels.plans import temporary
from flashlab.operator import quantize
from flashlab.operator.hopper_forward import pass_over
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
from flashlab.operator.spans import announce, announced, blocks_seen, only_visible, place

LOG2_E = gl.constexpr(1.4426950408889634)              # exp(x) = exp2(x · log2(e))
ROWS = gl.constexpr(64)                                # query rows of a consumer, which have a scale of their own
P_BITS = gl.constexpr(8.0)                             # P is computed 2^8 times too large
K_FREE = gl.constexpr(6)                               # named barriers as in fa2_hopper.py
V_FREE = gl.constexpr(9)
TURN = gl.constexpr(12)
LOWEST = gl.constexpr(-1e30)                           # below any score


@gluon.jit
def producer(shared, d: gl.constexpr, consumers: gl.constexpr, stages: gl.constexpr, causal: gl.constexpr):
    """Publish the number of the next tile, then have Q, K and V of this one copied, as fast as buffers become free."""
    descriptors, scales, buffers, signals, schedule, sizes, scale = shared
    Q, K, V, O_out = descriptors
    Q_s, K_s, V_s, O_s = buffers
    Q_full, Q_free, K_full, V_full = signals
    counter, board = schedule
    N_q, N_k, H_q, group, together, tiles, left, right, table = sizes               # no window, nothing packed
    all_threads: gl.constexpr = consumers * 128 + 32
    keys: gl.constexpr = K_s.shape[3]
    slot, phase, turn, filled = 0, 0, 0, 0
    tile = place(gl.program_id(0), sizes, consumers * ROWS)
    while tile >= 0:
        coming, _ = announce(gl.atomic_add(counter, 1), board, turn, sizes, consumers * ROWS)
        i, head = gl.cast(tile & 0xFFFFFFFF, gl.int32), gl.cast(tile >> 32, gl.int32)
        b, h = head // H_q, head % H_q
        h_kv = h // group                              # grouped-query attention: neighbours share a key head, uncopied
        for c in gl.static_range(consumers):
            mbarrier.wait(Q_free.index(c), (turn & 1) ^ 1)
            mbarrier.expect(Q_full.index(c), ROWS * d)                             # TMA counts the zeros past the ends, too
            tma.async_copy_global_to_shared(Q, [b, h, (i * consumers + c) * ROWS, 0], Q_full.index(c), Q_s.index(c))
        _, blocks = blocks_seen(i * consumers * ROWS, N_q, N_k, None, None, consumers * ROWS, keys, causal, False)
        for n in range(0, blocks):
            first_key = (blocks - 1 - n) * keys
            if filled >= stages:
                sync(slot + K_FREE, all_threads)
            mbarrier.expect(K_full.index(slot), keys * d)
            tma.async_copy_global_to_shared(K, [b, h_kv, first_key, 0], K_full.index(slot), K_s.index(slot))
            if filled >= stages:
                sync(slot + V_FREE, all_threads)
            mbarrier.expect(V_full.index(slot), keys * d)
            tma.async_copy_global_to_shared(V, [b, h_kv, 0, first_key], V_full.index(slot), V_s.index(slot))
            slot, phase = following(slot, phase, stages)
            filled += 1
        tile = coming
        turn += 1
    # The counter is the next launch's, too: who is the last to take nothing any more sets it back.
    if gl.atomic_add(counter + 1, 1) == gl.num_programs(0) - 1:
        gl.store(counter, 0)
        gl.store(counter + 1, 0)


@gluon.jit
def issue_scores(Q, K_s, slot, me: gl.constexpr, consumers: gl.constexpr):
    """Start S = Q K^T of the block in a slot, when it is this consumer's turn, and pass the turn on."""
    keys: gl.constexpr = K_s.shape[3]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, keys, 32])
    K_j = K_s.index(slot).reshape([keys, Q.shape[1]])
    zeros = gl.zeros([ROWS, keys], gl.float32, layout)
    sync(TURN + me, 256)                               # two consumers' threads: the one before arrives, this one waits
    S = warpgroup_mma(Q, K_j.permute((1, 0)), zeros, use_acc=False, is_async=True)
    arrive(TURN + (me + 1) % consumers, 256)
    return S


@gluon.jit
def issue_output(sums, alpha, P, V_s, slot, two_sums: gl.constexpr):
    """Start O = alpha · O + P V of the block in a slot. sums: (O,), or (O, PV, its alpha), where O = alpha · O + PV is still to do.

    Tensor cores add e4m3 products with about 14 bits, not float32's 24, and drop the rest: after thousands of keys that shows.
    With two sums they add up the keys of one block, and the threads the blocks, in float32: a multiplication and addition where
    there was a multiplication. It takes d / 2 more registers.
    """
    d: gl.constexpr = V_s.shape[3]
    V_j = V_s.index(slot).reshape([d, V_s.shape[4]])
    if two_sums:
        layout: gl.constexpr = sums[0].type.layout
        O = scaled_rows(sums[0], sums[2]) + sums[1]
        zeros = gl.zeros([ROWS, d], gl.float32, layout)
        return O, warpgroup_mma(P, V_j.permute((1, 0)), zeros, use_acc=False, is_async=True), alpha
    else:
        return (warpgroup_mma(P, V_j.permute((1, 0)), scaled_rows(sums[0], alpha), is_async=True),)


@gluon.jit
def waited_for(sums, two_sums: gl.constexpr):
    """What `issue_output` has started, when it is done."""
    if two_sums:
        return sums[0], warpgroup_mma_wait(0, deps=[sums[1]]), sums[2]
    else:
        return (warpgroup_mma_wait(0, deps=[sums[0]]),)


@gluon.jit
def rounded(P):
    """P in e4m3, four weights of a row in a register, their keys in the order of V's: no number changes its thread.

    Of the 16 keys 8b + 2t + e the thread t has those with b, e = 0 or 1, and in the second product it has to have 4t + 2b + e.
    """
    P = P.reshape([ROWS, P.shape[1] // 16, 2, 4, 2])                               # (rows, groups, b, t, e)
    first, second = gl.split(P)                                                    # e = 0, 1: (rows, groups, b, t)
    w0, w2 = gl.split(first.permute((0, 1, 3, 2)))                                 # b = 0, 1: (rows, groups, t)
    w1, w3 = gl.split(second.permute((0, 1, 3, 2)))
    return gl.inline_asm_elementwise("""{
        .reg .b16 low, high;
        cvt.rn.satfinite.e4m3x2.f32 low, $2, $1;
        cvt.rn.satfinite.e4m3x2.f32 high, $4, $3;
        mov.b32 $0, {low, high};
    }""", "=r,f,f,f,f", [w0, w1, w2, w3], dtype=gl.int32, is_pure=True, pack=1)


@gluon.jit
def as_operand(P, O):
    """What `rounded` has packed as an operand of a product that adds to O, (rows, keys) in e4m3. It costs no instruction."""
    operand: gl.constexpr = gl.DotOperandLayout(0, O.type.layout, 4)
    pairs = gl.join(P, P)
    P = gl.join(pairs, pairs).reshape([ROWS, P.shape[1] * 16])                     # each register once for each of its four
    P = gl.convert_layout(P, operand, assert_trivial=True)
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r,r,r,r", [P], dtype=gl.float8e4nv, is_pure=False, pack=4)


@gluon.jit
def step(state, Q, buffers, signals, scales, left, mask, masked: gl.constexpr, causal: gl.constexpr, me: gl.constexpr,
         consumers: gl.constexpr, stages: gl.constexpr, unrolled: gl.constexpr, two_sums: gl.constexpr):
    """One block: start S of the next and O += P V of this one, then the softmax of the next under the second product.

    O is rescaled while S is computed. P is rounded when its registers are free: when the product with the one before is done.
    """
    sums, P, m, l, alpha, V_log2, slot, phase, next_slot, next_phase = state
    Q_s, K_s, V_s, O_s = buffers
    Q_full, Q_free, K_full, V_full = signals
    Q_factor, K_scales, V_scales = scales
    first_row, next_key, N_q, N_k = mask
    all_threads: gl.constexpr = consumers * 128 + 32

    factor = Q_factor * gl.load(K_scales + (left - 1))
    next_V_log2 = gl.load(V_scales + (left - 1))
    P = as_operand(P, sums[0])                         # before a product starts: instructions in between would part them
    S = issue_scores(Q, K_s, next_slot, me, consumers)
    mbarrier.wait(V_full.index(slot), phase)
    sums = issue_output(sums, alpha, P, V_s, slot, two_sums)
    S = warpgroup_mma_wait(1, deps=[S])                # S is there, the other product still runs
    arrive(next_slot + K_FREE, all_threads)

    if masked:
        S = only_visible(S, (first_row, 0, N_q, N_k, None, None), next_key // S.shape[1], causal)
    m_new = gl.maximum(m, row_maximum(S, 2) * factor)
    P_next = gl.exp2(S * factor - (m_new - P_BITS)[:, None])
    alpha = gl.exp2(m - m_new)
    l = scaled_rows(l, alpha) + row_shares(P_next)
    if unrolled:
        l = pinned(l)
    after, after_phase = following(next_slot, next_phase, stages)
    # A wait for something else in front of the wait for P V: the assembler would hoist that above the exponentials otherwise.
    mbarrier.wait(K_full.index(after), after_phase, pred=left > 1)
    sums = waited_for(sums, two_sums)
    arrive(slot + V_FREE, all_threads)
    alpha = alpha * gl.exp2(V_log2 - next_V_log2)      # for O alone, which has V's scale; l has none
    return sums, rounded(P_next), m_new, l, alpha, next_V_log2, next_slot, next_phase, after, after_phase


@gluon.jit
def attend(Q, buffers, signals, scales, first_row, blocks, slot, phase, N_q, N_k, causal: gl.constexpr,
           ragged: gl.constexpr, crossing: gl.constexpr, me: gl.constexpr, consumers: gl.constexpr,
           stages: gl.constexpr, unrolled: gl.constexpr, two_sums: gl.constexpr):
    """All blocks of one tile but the last product: the first block, which may need a mask, then the loop. Returns the state."""
    Q_s, K_s, V_s, O_s = buffers
    Q_full, Q_free, K_full, V_full = signals
    Q_factor, K_scales, V_scales = scales
    d: gl.constexpr = Q.shape[1]
    keys: gl.constexpr = K_s.shape[3]
    O_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, d, 32])
    factor, V_log2 = Q_factor * gl.load(K_scales + (blocks - 1)), gl.load(V_scales + (blocks - 1))
    mbarrier.wait(K_full.index(slot), phase)
    S = issue_scores(Q, K_s, slot, me, consumers)
    S = warpgroup_mma_wait(0, deps=[S])
    arrive(slot + K_FREE, consumers * 128 + 32)
    if causal or ragged:
        S = only_visible(S, (first_row, 0, N_q, N_k, None, None), blocks - 1, causal)
    m = row_maximum(S, 2) * factor
    if crossing:                                       # a row may see nothing of this block, and -inf minus -inf would be NaN
        m = gl.maximum(m, LOWEST)
    P = gl.exp2(S * factor - (m - P_BITS)[:, None])
    l = row_shares(P)
    P = rounded(P)
    next_slot, next_phase = following(slot, phase, stages)
    left = blocks - 1
    mbarrier.wait(K_full.index(next_slot), next_phase, pred=left > 0)
    O, one = gl.zeros([ROWS, d], gl.float32, O_layout), gl.exp2(m - m)
    sums = (O, O, one) if two_sums else (O,)
    state = (sums, P, m, l, one, V_log2, slot, phase, next_slot, next_phase)

    if crossing:                                       # 64 rows whose diagonal crosses from one block of keys into the next
        for _ in range(0, gl.minimum(left, 1)):
            mask = (first_row, (left - 1) * keys, N_q, N_k)
            state = step(state, Q, buffers, signals, scales, left, mask, True, causal, me, consumers, stages, unrolled, two_sums)
        left = gl.maximum(left - 1, 0)
    mask = (0, 0, N_q, N_k)                            # the blocks from here on need none
    if unrolled:                                       # two blocks a round: what is P in one is P_next in the other, and stays put
        for _ in range(0, left & 1):
            state = step(state, Q, buffers, signals, scales, left, mask, False, causal, me, consumers, stages, unrolled, two_sums)
        left = left & -2
        for j in range(0, left, 2):
            state = step(state, Q, buffers, signals, scales, left - j, mask, False, causal, me, consumers, stages, unrolled,
                         two_sums)
            state = step(state, Q, buffers, signals, scales, left - j - 1, mask, False, causal, me, consumers, stages, unrolled,
                         two_sums)
    else:
        for j in range(0, left):
            state = step(state, Q, buffers, signals, scales, left - j, mask, False, causal, me, consumers, stages, unrolled,
                         two_sums)
    return state


@gluon.jit
def consumer(shared, me: gl.constexpr, d: gl.constexpr, consumers: gl.constexpr, stages: gl.constexpr, causal: gl.constexpr,
             ragged: gl.constexpr, crossing: gl.constexpr, unrolled: gl.constexpr, two_sums: gl.constexpr):
    """Take tile after tile: its 64 rows against all blocks of keys that they see, then O."""
    descriptors, scales, buffers, signals, schedule, sizes, scale = shared
    Q_in, K_in, V_in, O_out = descriptors
    Q_scales, K_scales, V_scales = scales
    Q_s, K_s, V_s, O_s = buffers
    Q_full, Q_free, K_full, V_full = signals
    counter, board = schedule
    N_q, N_k, H_q, group, together, tiles, left, right, table = sizes               # no window, nothing packed
    keys: gl.constexpr = K_s.shape[3]
    T_q, T_k = (N_q + ROWS - 1) // ROWS, (N_k + keys - 1) // keys                  # how many blocks with a scale
    Q = Q_s.index(me).reshape([ROWS, d])
    slot, phase, turn = 0, 0, 0
    if me == consumers - 1:                            # as if the last one had just issued: the first turn is consumer 0's
        arrive(TURN, 256)
    tile = place(gl.program_id(0), sizes, consumers * ROWS)
    while tile >= 0:
        i, head = gl.cast(tile & 0xFFFFFFFF, gl.int32), gl.cast(tile >> 32, gl.int32)
        head_kv = head // group                        # b·H_q + h over group: b·H_kv + h_kv
        first_row = (i * consumers + me) * ROWS
        _, all_blocks = blocks_seen(i * consumers * ROWS, N_q, N_k, None, None, consumers * ROWS, keys, causal, False)
        _, blocks = blocks_seen(first_row, N_q, N_k, None, None, ROWS, keys, causal, False)
        if first_row >= N_q:
            blocks = 0
        mbarrier.wait(Q_full.index(me), turn & 1)
        coming, _ = announced(board, turn, sizes)
        slot, phase = pass_over(all_blocks - blocks, slot, phase, signals, me, consumers, stages, True)
        if blocks == 0:
            mbarrier.arrive(Q_free.index(me), count=1)
        else:
            Q_factor = scale * LOG2_E * gl.load(Q_scales + (head * T_q + i * consumers + me))
            sums, P, m, l, alpha, V_log2, slot, phase, next_slot, next_phase = attend(
                Q, buffers, signals, (Q_factor, K_scales + head_kv * T_k, V_scales + head_kv * T_k), first_row, blocks, slot, phase,
                N_q, N_k, causal, ragged, crossing, me, consumers, stages, unrolled, two_sums)
            P = as_operand(P, sums[0])
            thread_barrier()                           # all 128 threads have read Q
            mbarrier.arrive(Q_free.index(me), count=1)
            mbarrier.wait(V_full.index(slot), phase)
            sums = issue_output(sums, opaque(alpha), P, V_s, slot, two_sums)
            l_i = gl.sum(l, 1)
            sums = waited_for(sums, two_sums)
            arrive(slot + V_FREE, consumers * 128 + 32)
            slot, phase = next_slot, next_phase
            O = scaled_rows(sums[0], alpha) + sums[1] if two_sums else sums[0]
            O = scaled_rows(O, gl.exp2(V_log2) / l_i)
            tma.store_wait(0)                          # the tile before has left O_s
            O_s.index(me).reshape([ROWS, d]).store(O.to(O_s.dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(O_out, [head, first_row, 0], O_s.index(me))
        tile = coming
        turn += 1
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["N_q", "N_k", "H_q", "group", "together", "tiles"])
def fa2_fp8_kernel(Q, K, V, O, Q_scales, K_scales, V_scales, counter, scale, N_q, N_k, H_q, group, together, tiles,
                   d: gl.constexpr, keys: gl.constexpr, consumers: gl.constexpr, stages: gl.constexpr, causal: gl.constexpr,
                   ragged: gl.constexpr, crossing: gl.constexpr, unrolled: gl.constexpr, two_sums: gl.constexpr,
                   registers: gl.constexpr, num_warps: gl.constexpr):
    """Shared memory and the signals in it, then every warp goes to its own work."""
    Q_s = gl.allocate_shared_memory(Q.dtype, [consumers, 1, 1, ROWS, d], Q.layout)
    K_s = gl.allocate_shared_memory(K.dtype, [stages, 1, 1, keys, d], K.layout)
    V_s = gl.allocate_shared_memory(V.dtype, [stages, 1, 1, d, keys], V.layout)
    O_s = gl.allocate_shared_memory(O.dtype, [consumers, 1, ROWS, d], O.layout)
    descriptors, scales, buffers = (Q, K, V, O), (Q_scales, K_scales, V_scales), (Q_s, K_s, V_s, O_s)
    signals, board = forward_signals(consumers, stages)
    sizes = (N_q, N_k, H_q, group, together, tiles, None, None, None)
    shared = (descriptors, scales, buffers, signals, (counter, board), sizes, scale)
    # Warps, and registers a thread, of all but the first, which has the launch's warps and what registers are left.
    if consumers == 2:
        gl.warp_specialize([
            (consumer, (shared, 0, d, 2, stages, causal, ragged, crossing, unrolled, two_sums)),
            (consumer, (shared, 1, d, 2, stages, causal, ragged, crossing, unrolled, two_sums)),
            (producer, (shared, d, 2, stages, causal)),
        ], [4, 1], [registers, 24])
    else:
        gl.warp_specialize([
            (consumer, (shared, 0, d, 3, stages, causal, ragged, crossing, unrolled, two_sums)),
            (consumer, (shared, 1, d, 3, stages, causal, ragged, crossing, unrolled, two_sums)),
            (consumer, (shared, 2, d, 3, stages, causal, ragged, crossing, unrolled, two_sums)),
            (producer, (shared, d, 3, stages, causal)),
        ], [4, 4, 1], [registers, registers, 24])


KERNEL = fa2_fp8_kernel


def launch(Q, K, V, O, Q_scales, K_scales, V_scales, *, causal, scale, choice=None, **options):
    """The grid and the arguments of one launch; nothing is checked and nothing runs.

    Q (B, H_q, N_q, d), K (B, H_kv, N_k, d) and V (B, H_kv, d, N_k rounded up to whole blocks) in e4m3, as quantize.py makes them;
    float32 scales, one for each 64 rows of Q and each block of K; V_scales are logarithms to base 2. O in bfloat16
    """
    (B, H_q, N_q, d), (_, H_kv, N_k, _) = Q.shape, K.shape
    choice = choice or how_many(d, max(N_q, N_k), causal)
    tiles, keys = B * H_q * triton.cdiv(N_q, choice["consumers"] * 64), choice["keys"]
    arguments = {"counter": temporary(counters, 2, dtype=torch.int32, device=Q.device), "scale": scale}
    for name, T, block in (("Q", Q, (64, d)), ("K", K, (keys, d)), ("V", V, (d, keys))):
        arguments[name] = descriptor(T, block, layout=gl.NVMMASharedLayout.get_default_for([1, 1, *block], gl.float8e4nv))
    of_O = gl.NVMMASharedLayout.get_default_for([1, 64, d], gl.bfloat16)
    arguments["O"] = descriptor(O, (64, d), (B * H_q, N_q, d), layout=of_O)
    arguments |= {"Q_scales": Q_scales, "K_scales": K_scales, "V_scales": V_scales}
    arguments |= {"N_q": N_q, "N_k": N_k, "H_q": H_q, "group": H_q // H_kv, "tiles": tiles}
    arguments |= {"together": heads_together(Q, K, V) if causal else 1, "d": d, "causal": causal}
    arguments |= {"ragged": N_k % keys > 0, "crossing": causal and (N_k - N_q) % 64 > 0}
    return (min(tiles, programs_at_a_time(Q, 8)),), arguments | choice | {"num_warps": 4}


def how_many(d, N, causal):
    """Keys of a block, consumers, slots of a ring, unrolled by two or not, one sum or two: see `issue_output`."""
    if d == 64:
        return {"keys": 128, "consumers": 3, "stages": 3, "unrolled": False, "two_sums": False, "registers": 160}
    if d == 256:                                       # O takes 128 registers: none for a second sum, and masks spill a few bytes
        return {"keys": 128, "consumers": 2, "stages": 2, "unrolled": False, "two_sums": False, "registers": 240}
    return {"keys": 128, "consumers": 2, "stages": 3, "unrolled": False, "two_sums": True, "registers": 240}


def launches(Q, K, V, O, H=None, *, causal, scale, choice=None):
    """All launches of a call, (kernel, grid, arguments), in order: Q, K and V are quantised, then attended to."""
    (B, H_q, N_q, d), (_, H_kv, N_k, _) = Q.shape, K.shape
    choice = choice or how_many(d, max(N_q, N_k), causal)
    keys, made = choice["keys"], {}
    T_q, T_k = triton.cdiv(N_q, ROWS.value), triton.cdiv(N_k, keys)
    for name, shape, scales in (("Q", Q.shape, (B, H_q, T_q)), ("K", K.shape, (B, H_kv, T_k)),
                                ("V", (B, H_kv, d, T_k * keys), (B, H_kv, T_k))):
        made[name] = temporary(torch.empty, *shape, dtype=torch.float8_e4m3fn, device=Q.device)
        made[name + "_scales"] = temporary(torch.empty, *scales, dtype=torch.float32, device=Q.device)
    steps = [(quantize.quantize_kernel, *quantize.launch(T, rotation, made[name], made[name + "_scales"], block, name == "V"))
             for name, T, rotation, block in (("Q", Q, H, ROWS.value), ("K", K, H, keys), ("V", V, None, keys))]
    return [*steps, (KERNEL, *launch(**made, O=O, causal=causal, scale=scale, choice=choice))]


def forward(Q, K, V, H=None, *, causal, scale, choice=None):
    """O in bfloat16. H: the rotation of Q and K, of their dtype; choice: as of how_many. Nothing is checked."""
    Q, K, V = (T if T.stride(-1) == 1 else T.contiguous() for T in (Q, K, V))
    O = torch.empty(Q.shape, dtype=torch.bfloat16, device=Q.device)
    options = {"causal": causal, "scale": scale, "choice": choice}
    inputs = {"Q": Q, "K": K, "V": V, "H": H}
    kind = plans.key((causal, scale, str(choice)), *inputs.values())
    plans.run((launches, kind), partial(launches, **options), inputs | {"O": O})
    return O
