"""FA2's forward pass for Hopper, in Gluon: warps that do different things at the same time.

Triton decides how a program's warps share its work; Gluon, the language below it, lets the kernel say so. Who loads,
who computes and who waits for whom stands in hopper_pipeline.py; here is what a consumer, four warps, does with its 64
query rows.

It never waits for its own product if it can help it. While the tensor cores work on the next block's S = Q K^T and on
O += P V of this one, its threads compute the exponentials of the block between. And the consumers take turns at issuing
products, so that one's exponentials run beside another's products:

    consumer 0    QK 1   softmax 0 . PV 0    QK 2   softmax 1 . PV 1    ...
    consumer 1           QK 1   softmax 0 . PV 0    QK 2   softmax 1 . PV 1

The first block, which may need a mask, is computed before the loop. With a window, a few more need one: the consumers'
rows then see too different blocks to take turns.
"""

import torch

from flashlab.kernels.gluon_adapter import aggregate, gl, jit, mbarrier, thread_barrier, wgmma, wgmma_wait
from flashlab.kernels.hopper_words import LOG2_E, ROWS, scaled_rows
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
from flashlab.operator.hopper_pipeline import Sizes, issue_scores, pass_over, run, walk, write_O
from flashlab.operator.hopper_words import counters, opaque, pinned, row_maximum, row_shares
from flashlab.operator.sequences import slots
from flashlab.operator.spans import only_visible, table_of_blocks, tiles_of

LOWEST = gl.constexpr(-1e30)                           # below any score


@aggregate
class State:
    """A consumer's softmax between two blocks of keys."""

    fields = (
        "O P m l "                     # P: the weights in hand, not yet in O; l: each thread's part of the running sum
        "alpha "                       # what O is still to be multiplied by, at d = 128
        "at coming"                    # where in the rings the block in hand is, and the one after it
    )


@jit
def step(state, shared, task, n, mask: gl.constexpr, me: gl.constexpr):
    """One block: start S of the next and O += P V of this one, then the softmax of the next under the second product.

    n: how many blocks are still to come, the next one among them; mask: what hides some of its keys, or None

    At d = 128 O is rescaled while S is computed, and P rounded as soon as it is there. At d = 64, with three consumers,
    fewer registers are left: O is rescaled when its product is done, and P stays float32 until the one before is used.
    """
    O, P, m, at, coming, V_s = state.O, state.P, state.m, state.at, state.coming, shared.V.tiles
    d: gl.constexpr = O.shape[1]
    wide: gl.constexpr = d == 128
    operand: gl.constexpr = gl.DotOperandLayout(0, O.type.layout, 2)
    scale_log2 = shared.scale * LOG2_E

    S = issue_scores(shared, coming.slot, me)
    shared.V.wait(at)
    if wide:
        O = scaled_rows(O, state.alpha)
    O = wgmma(P, V_s.index(at.slot).reshape([V_s.shape[-2], d]), O, is_async=True)
    S = wgmma_wait(1, deps=[S])                        # S is there, O's product still runs
    shared.K.release(coming.slot)

    if mask is not None:
        S = mask(S, task.span, (task.first + n - 1) * shared.sizes.keys)
    m_new = gl.maximum(m, row_maximum(S, 1 if wide else 2) * scale_log2)
    P_next = gl.exp2(S * scale_log2 - m_new[:, None])
    alpha = gl.exp2(m - m_new)
    l = scaled_rows(state.l, alpha) + row_shares(P_next)
    if wide:
        P_rounded = P_next.to(V_s.dtype)
    if shared.unrolled:
        l = pinned(l)
    after = coming.following(shared.stages)
    # A wait for something else before the wait for O: otherwise the assembler hoists that above the exponentials.
    shared.K.wait(after, n > 1)
    O = wgmma_wait(0, deps=[O])
    if wide:
        P = gl.convert_layout(P_rounded, operand)
    else:
        P = opaque(gl.convert_layout(P_next.to(V_s.dtype), operand))
    shared.V.release(at.slot)
    if not wide:
        O = scaled_rows(O, alpha)
    return State(O, P, m_new, l, alpha, coming, after)


@jit
def first_block(shared, task, at, me: gl.constexpr):
    """The softmax of the task's last block of keys, which may need a mask. O is still 0."""
    scale_log2 = shared.scale * LOG2_E
    d: gl.constexpr = shared.Q_s.shape[-1]
    O_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, d, 16])
    shared.K.wait(at)
    S = wgmma_wait(0, deps=[issue_scores(shared, at.slot, me)])
    shared.K.release(at.slot)
    if shared.masked:
        S = only_visible(S, task.span, (task.end - 1) * shared.sizes.keys)
    m = row_maximum(S, 1 if d == 128 else 2) * scale_log2
    if shared.crossing or shared.sizes.packed:  # a row may see nothing of this block, and -inf minus -inf would be NaN
        m = gl.maximum(m, LOWEST)
    P = gl.exp2(S * scale_log2 - m[:, None])
    l = row_shares(P)
    P = opaque(gl.convert_layout(P.to(shared.V.tiles.dtype), gl.DotOperandLayout(0, O_layout, 2)))
    coming = at.following(shared.stages)
    shared.K.wait(coming, task.end - 1 > task.first)
    return State(gl.zeros([ROWS, d], gl.float32, O_layout), P, m, l, gl.exp2(m - m), at, coming)


@jit
def attend(shared, task, at, me: gl.constexpr):
    """O and L of 64 query rows. Returns the place in the rings after the tile's blocks."""
    V_s = shared.V.tiles
    d: gl.constexpr = shared.Q_s.shape[-1]
    rows_of_S: gl.constexpr = gl.SliceLayout(1, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, shared.sizes.keys, 16]))
    state = walk(step, first_block(shared, task, at, me), shared, task, me)
    O = state.O
    if d == 128:
        O = scaled_rows(O, opaque(state.alpha))
    thread_barrier()                                   # all 128 threads have read Q
    mbarrier.arrive(shared.Q_free.index(me), count=1)
    shared.V.wait(state.at)
    O = wgmma(state.P, V_s.index(state.at.slot).reshape([V_s.shape[-2], d]), O, is_async=True)
    l_i = gl.convert_layout(gl.sum(state.l, 1), rows_of_S)
    O = wgmma_wait(0, deps=[O])
    shared.V.release(state.at.slot)
    at = state.coming
    if shared.sizes.left is not None:
        at = pass_over(task.first - task.all_first, at, shared, me, False)
    write_out(shared, task, O, state.m, l_i, me)
    return at


@jit
def write_out(shared, task, O, m, l_i, me: gl.constexpr):
    """Divide O by l, and have it written; write L."""
    span, sizes, head = task.span, shared.sizes, task.head
    some_blind: gl.constexpr = sizes.left is not None or sizes.packed              # a row may have seen no key
    if some_blind:
        l_i = gl.where(l_i == 0, 1.0, l_i)             # O stays 0
    write_O(shared, task, scaled_rows(O, 1.0 / l_i), me)
    rows = span.first_row + gl.arange(0, ROWS, m.type.layout)
    L_i = (m + gl.log2(l_i)) / LOG2_E
    if some_blind:
        L_i = gl.where(m == LOWEST, float("-inf"), L_i)
    gl.store(shared.L + gl.cast(head, gl.int64) * sizes.N_q + task.start_q + rows, L_i, mask=rows < span.N_q)


@jit(do_not_specialize=["N_q", "N_k", "H_q", "group", "together", "tiles", "left", "right"])
def fa2_hopper_kernel(Q, K, V, O, L, counter, scale, N_q, N_k, H_q, group, together, tiles, left, right, table,
                      keys: gl.constexpr, consumers: gl.constexpr, stages: gl.constexpr, causal: gl.constexpr,
                      ragged: gl.constexpr, crossing: gl.constexpr, unrolled: gl.constexpr, registers: gl.constexpr,
                      num_warps: gl.constexpr):
    if table is not None:
        tiles = H_q * gl.load(table)                   # which the host does not know
    sizes = Sizes(N_q, N_k, H_q, tiles, group, together, left, right, table, table is not None, causal, consumers, keys)
    run(attend, Q, K, V, O, L, counter, scale, sizes, None, stages, causal or ragged, crossing, unrolled, registers)


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
    New:     against hopper_persistent_forward: ragged rows, windows, packed sequences; up to four consumers
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


def launch(Q, K, V, O, L, *, causal, scale, left=None, right=None, cu_seqlens_q=None, cu_seqlens_k=None, batch=None,
           **options):
    """The grid and the arguments of one launch, with those `before` it; nothing is checked and nothing runs."""
    Q, scale = positive_scale(Q, scale)
    (B, H_q, N_q, d), (_, H_kv, N_k, _) = Q.shape, K.shape
    packed, window, N = batch is not None, left is not None, max(N_q, N_k) // (batch or 1)  # N: of a medium sequence
    choice = how_many(d, min(N, left + right + 1), True) if window else how_many(d, N, causal)
    keys, rows = choice["keys"], choice["consumers"] * 64
    tiles = B * H_q * slots(N_q, rows, batch)
    arguments = {"Q": tiles_of(Q, 64, packed), "K": tiles_of(K, keys, packed), "V": tiles_of(V, keys, packed)}
    arguments |= {"O": tiles_of(O, 64, packed, (B * H_q, N_q, d)), "L": L, "scale": scale, "causal": causal}
    arguments |= {"N_q": N_q, "N_k": N_k, "H_q": H_q, "group": H_q // H_kv, "tiles": tiles}
    arguments |= {"left": left, "right": right, "together": 1, "table": None}
    arguments |= {"counter": temporary(counters, 2, dtype=torch.int32, device=Q.device)}
    if packed:
        arguments["table"], *arguments["before"] = table_of_blocks(cu_seqlens_q, cu_seqlens_k, N_q, N_k, rows)
    if causal or window:                               # tiles that see few keys, of all these heads, come last
        arguments["together"] = heads_together(Q, K, V, left + right + 4 * rows if window else N_k // (batch or 1))
    arguments["ragged"] = packed or window or N_k % keys > 0
    arguments["crossing"] = window or causal and (packed or (N_k - N_q) % 64 > 0)
    return (min(tiles, programs_at_a_time(Q, 8)),), arguments | choice | {"num_warps": 4}


def how_many(d, N, causal):
    """Keys of a block, consumers, slots of a ring, is the loop unrolled: the fastest of those tried on an H200."""
    if d == 64 and causal and N <= 4096:               # smaller blocks waste less at the diagonal
        return {"keys": 64, "consumers": 4, "stages": 3, "unrolled": False, "registers": 112}
    if d == 64:
        return {"keys": 128, "consumers": 3, "stages": 3, "unrolled": False, "registers": 160}
    return {"keys": 128, "consumers": 2, "stages": 2, "unrolled": N >= 8192, "registers": 240}
