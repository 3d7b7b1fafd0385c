"""FA2's forward pass for Hopper, in Gluon: hopper_persistent_forward with what a model needs, and what makes it faster.

The rungs of the ladder up to that one explain the design. This one adds:

    ragged rows               the blocks that need a mask, at the end or on the diagonal, are walked first: the last one
                              before the loop. TMA reads zeros past the end, and writes nothing there
    windows                   more blocks need a mask, and consumers' rows see too different ones to take turns
    packed sequences          the tiles are those of a table: see spans.py
    three or four consumers   at d = 64 O takes half the registers, so that more queries share each K and V
    free by named barriers    before an arrival at an mbarrier a warpgroup's 128 threads have to meet; here they do not
    a board of two places     the producer knows the next tile, and fetches for it, before the consumers ask
    sums kept in parts        each thread adds up its own weights, and four of them meet once a tile instead of a block

hopper_pipeline.py has the warps; here is what a consumer does with its 64 query rows. Who waits for whom:

    Q_full, K.full, V.full   mbarriers: TMA arrives with the last byte           a consumer waits
    Q_free                   mbarrier: a consumer has read its Q to the end      the producer waits
    K.free, V.free           named barriers: all consumers have read the slot    the producer waits
    TURN + consumer          named barriers: the one before has issued Q K^T     the consumer waits
    posted, taken            mbarriers: a tile is on the board, all have read it a consumer waits, the producer waits
"""

import torch

from flashlab.kernels.gluon_adapter import aggregate, gl, jit, tma, wgmma, wgmma_wait
from flashlab.kernels.hopper_words import LOG2_E, ROWS, release, scaled_rows
from flashlab.kernels.launch import (
    checked_forward,
    heads_together,
    padded,
    positive_scale,
    programs_at_a_time,
    why_no_tma,
    why_not_hopper,
)
from flashlab.kernels.plans import temporary
from flashlab.operator.hopper_pipeline import Sizes, issue_scores, pass_over, run, walk, write_O
from flashlab.operator.hopper_words import LOWEST, counters, opaque, pinned, row_maximum, row_shares
from flashlab.operator.sequences import slots
from flashlab.operator.spans import only_visible, table_of_blocks, tiles_of, tiles_of_output


@aggregate
class State:
    """A consumer's softmax between two blocks of keys."""

    fields = (
        "O P m l "                     # P: the weights in hand, not yet in O; l: each thread's part of the running sum
        "alpha at coming"              # what O must still be multiplied by, at d = 128; places of P's block, the next
    )


@jit
def step(state, shared, task, n, mask: gl.constexpr, me: gl.constexpr):
    """One block: start S of the next and O += P V of this one, then the softmax of the next under the second product.

    n: how many blocks are still to come, the next one among them; mask: what hides some of its keys, or None
    At d = 128 O is rescaled while S is computed, and P rounded as soon as it is there. At d = 64, with more consumers,
    fewer registers are left: O is rescaled when its product is done, and P stays float32 until the one before is used.
    """
    O, P, m, at, coming, sizes = state.O, state.P, state.m, state.at, state.coming, shared.sizes
    wide: gl.constexpr = O.shape[1] >= 128

    S = issue_scores(shared, coming, me)
    shared.V.wait(at)
    if wide:
        O = scaled_rows(O, state.alpha)
    O = wgmma(P, shared.V.tile(at), O, is_async=True)
    S = wgmma_wait(1, deps=[S])                        # S is there, O's product still runs
    shared.K.release(coming.slot)

    if mask is not None:
        S = mask(S, task, (task.first + n - 1) * sizes.keys, sizes)
    m_new = gl.maximum(m, (gl.max(S, 1) if wide else row_maximum(S)) * task.scale_log2)
    P_next = gl.exp2(S * task.scale_log2 - m_new[:, None])
    alpha = gl.exp2(m - m_new)
    l = scaled_rows(state.l, alpha) + row_shares(P_next)
    if wide:
        P_next = P_next.to(P.dtype)
    if sizes.unrolled:
        l = pinned(l)
    after = coming.following(sizes.stages)
    # A wait for something else before the wait for O: otherwise the assembler hoists that above the exponentials.
    shared.K.wait(after, n > 1)
    O = wgmma_wait(0, deps=[O])
    P = gl.convert_layout(P_next.to(P.dtype), gl.DotOperandLayout(0, O.type.layout, 2))
    if not wide:
        P = opaque(P)
    shared.V.release(at.slot)
    if not wide:
        O = scaled_rows(O, alpha)
    return State(O, P, m_new, l, alpha, coming, after)


@jit
def first_block(shared, task, at, me: gl.constexpr):
    """The softmax of the task's last block of keys, which may need a mask. O is still 0."""
    sizes = shared.sizes
    d: gl.constexpr = shared.Q_s.shape[-1]
    O_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, d, 16])
    shared.K.wait(at)
    S = wgmma_wait(0, deps=[issue_scores(shared, at, me)])
    shared.K.release(at.slot)
    if sizes.masked:
        S = only_visible(S, task, (task.end - 1) * sizes.keys, sizes)
    m = (gl.max(S, 1) if d >= 128 else row_maximum(S)) * task.scale_log2
    if sizes.crossing or sizes.table is not None:  # a row may see nothing of this block, and -inf minus -inf is NaN
        m = gl.maximum(m, LOWEST)
    P = gl.exp2(S * task.scale_log2 - m[:, None])
    l = row_shares(P)
    P = opaque(gl.convert_layout(P.to(shared.V.tiles.dtype), gl.DotOperandLayout(0, O_layout, 2)))
    coming = at.following(sizes.stages)
    shared.K.wait(coming, task.end - 1 > task.first)
    return State(gl.zeros([ROWS, d], gl.float32, O_layout), P, m, l, gl.exp2(m - m), at, coming)


@jit
def attend(shared, task, at, me: gl.constexpr):
    """O and L of 64 query rows. Returns the place in the rings after the tile's blocks."""
    state, sizes, tile = walk(step, first_block(shared, task, at, me), shared, task, me), shared.sizes, task.tile
    O, m = state.O, state.m
    if O.shape[1] >= 128:
        O = scaled_rows(O, opaque(state.alpha))
    if O.shape[1] < 256:
        release(shared.Q_free.index(me))
    shared.V.wait(state.at)
    O = wgmma(state.P, shared.V.tile(state.at), O, is_async=True)
    l_i = gl.convert_layout(gl.sum(state.l, 1), m.type.layout)
    O = wgmma_wait(0, deps=[O])
    shared.V.release(state.at.slot)
    at = state.coming
    if sizes.left is not None:
        at = pass_over(task.first - task.all_first, at, shared, me)
    some_blind: gl.constexpr = sizes.left is not None or sizes.table is not None   # a row may have seen no key
    if some_blind:
        l_i = gl.where(l_i == 0, 1.0, l_i)             # O stays 0
    write_O(shared, task, scaled_rows(O, 1.0 / l_i), me)
    if O.shape[1] == 256:                              # O lies where Q did
        tma.store_wait(0)
        release(shared.Q_free.index(me))
    rows = task.first_row + gl.arange(0, ROWS, m.type.layout)
    L_i = (m + gl.log2(l_i)) / LOG2_E
    if some_blind:
        L_i = gl.where(m == LOWEST, float("-inf"), L_i)
    gl.store(shared.L + gl.cast(task.head, gl.int64) * sizes.N_q + tile.start_q + rows, L_i, mask=rows < tile.N_q)
    return at


@jit(do_not_specialize=["N_q", "N_k", "H_q", "group", "together", "tiles", "left", "right"])
def fa2_hopper_kernel(Q, K, V, O, L, counter, scale, N_q, N_k, H_q, group, together, tiles, left, right, table,
                      causal: gl.constexpr, keys: gl.constexpr, consumers: gl.constexpr, stages: gl.constexpr,
                      masked: gl.constexpr, crossing: gl.constexpr, unrolled: gl.constexpr, num_warps: gl.constexpr):
    if table is not None:
        tiles = H_q * gl.load(table)                   # which the host does not know
    sizes = Sizes(N_q, N_k, H_q, tiles, group, together, left, right, table, causal, consumers, keys, stages, masked,
                  crossing, unrolled)
    run(attend, Q, K, V, O, L, counter, scale, sizes, None)


KERNEL = fa2_hopper_kernel


def fa2_hopper_forward(Q, K, V, *, B_r=None, B_c=None, **options):
    """Exact attention for every batch and head in one launch, on a Hopper GPU.

    Shapes:  as fa2_triton_forward; d, d_v up to 256, float16 or bfloat16; strides and the rest: see `why_not`
    Options: as kernels/launch.check_call takes them, but no dropout
    Tiles:   192 x 128 or 256 x 64 at d = 64, 128 x 128 at d = 128, 128 x 64 at d = 256: the division of labour fixes
             them. Other heads have the next wider tiles
    Error:   at most 2x that of naive in the same dtype, both against float64
    Raises:  TypeError or ValueError before anything is launched
    Source:  Shah et al. 2024, arXiv:2407.08608, FlashAttention-3: warp specialisation, products under exponentials
    New:     against hopper_persistent_forward: ragged rows, windows, packed sequences; up to four consumers
    """
    return checked_forward(KERNEL, launch, Q, K, V, B_r=B_r, B_c=B_c, why_not=why_not, **options)


def why_not(Q, K, V, *, causal=False, dropout_p=0.0, cu_seqlens_q=None, B_r=None, B_c=None, **options):
    """Why this rung does not take a call, in words; None where it does."""
    if reason := why_not_hopper(Q, V, 256, dropout_p, B_r, B_c):
        return reason
    if causal and cu_seqlens_q is None and Q.shape[2] > K.shape[2]:
        return "with more queries than keys some causal rows see no key"
    return why_no_tma(Q, K, V)


def launch(Q, K, V, O, L, *, causal, scale, left=None, right=None, cu_seqlens_q=None, cu_seqlens_k=None, batch=None,
           **options):
    """The grid and the arguments of one launch, with those `before` it; nothing is checked and nothing runs."""
    Q, scale = positive_scale(Q, scale)
    (B, H_q, N_q, _), (_, H_kv, N_k, _) = Q.shape, K.shape
    width = padded(max(Q.shape[-1], V.shape[-1]))
    packed, window, N = batch is not None, left is not None, max(N_q, N_k) // (batch or 1)  # N: of a medium sequence
    choice = how_many(width, min(N, left + right + 1), True) if window else how_many(width, N, causal)
    keys, rows = choice["keys"], choice["consumers"] * 64
    tiles = B * H_q * slots(N_q, rows, batch)
    arguments = choice | {name: tiles_of(T, height, width, packed)
                          for name, T, height in (("Q", Q, 64), ("K", K, keys), ("V", V, keys))}
    arguments |= {
        "O": tiles_of_output(O, 64, width, packed),
        "L": L, "counter": temporary(counters, 2, dtype=torch.int32, device=Q.device), "scale": scale, "N_q": N_q,
        "N_k": N_k, "H_q": H_q, "group": H_q // H_kv, "together": 1, "tiles": tiles, "left": left, "right": right,
        "table": None, "causal": causal, "masked": causal or packed or window or N_k % keys > 0,
        "crossing": window or causal and (packed or (N_k - N_q) % 64 > 0), "num_warps": 4}
    if packed:
        arguments["table"], *arguments["before"] = table_of_blocks(cu_seqlens_q, cu_seqlens_k, N_q, N_k, rows)
    if causal or window:                               # tiles that see few keys, of all these heads, come last
        arguments["together"] = heads_together(Q, K, V, left + right + 4 * rows if window else N_k // (batch or 1))
    return (min(tiles, programs_at_a_time(Q, 8)),), arguments


def how_many(d, N, causal):
    """Keys of a block, consumers, slots of a ring, is the loop unrolled: the fastest of those tried on an H200."""
    if d == 64 and causal and N <= 4096:               # smaller blocks waste less at the diagonal
        return {"keys": 64, "consumers": 4, "stages": 3, "unrolled": False}
    if d == 64:
        return {"keys": 128, "consumers": 3, "stages": 3, "unrolled": False}
    return {"keys": 128 if d == 128 else 64, "consumers": 2, "stages": 2, "unrolled": d == 128 and N >= 8192}
