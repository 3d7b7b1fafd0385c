"""The Hopper kernel in FP8: the same division of labour, with products that the tensor cores make twice as fast.

Q, K and V come as e4m3 numbers, one byte each, with a scale for each block of rows: see quantize.py. Against
hopper_forward.py:

    scores        S is multiplied by the scales of its two blocks, which go into a factor that is there anyway
    P             weights lie in (0, 1], and e4m3 keeps nothing below 2^-10. So P is computed 2^8 times too large, at
                  most 256 of the 448 that e4m3 reaches; l is too large by as much, and O / l takes both out
    V's scale     differs from block to block, but O is rescaled before every product anyway: by alpha times the ratio
                  of the two blocks' scales, so that O always has the scale of the block that was added last
    V             the FP8 instructions want both operands with the summed index innermost, for P V the keys: V arrives
                  as (d, keys)
    order of keys a thread holds other keys of S than it must hold of P: 2 neighbours in every 8 against 4 in every 16.
                  Shuffles would move them. A sum may be taken in any order, so V's keys come in the threads' order
"""

from functools import partial

import torch
import triton

from flashlab.kernels import plans
from flashlab.kernels.gluon_adapter import aggregate, gl, jit, wgmma, wgmma_wait
from flashlab.kernels.hopper_words import ROWS, described, release, scaled_rows
from flashlab.kernels.launch import heads_together, programs_at_a_time
from flashlab.kernels.plans import temporary
from flashlab.operator import quantize
from flashlab.operator.hopper_pipeline import Sizes, issue_scores, run, walk, write_O
from flashlab.operator.hopper_words import LOWEST, counters, opaque, row_maximum, row_shares
from flashlab.operator.spans import only_visible, tiles_of, tiles_of_output

KEYS = 128                                             # of a block
P_BITS = gl.constexpr(8.0)                             # P is computed 2^8 times too large


@jit
def scales_of(shared, task, j):
    """What S of key block j is multiplied by, and log2 of V's scale."""
    sizes = shared.sizes
    Q_scales, K_scales, V_scales = shared.fp8
    T_k = (sizes.N_k + sizes.keys - 1) // sizes.keys
    first = task.head // sizes.group * T_k             # the head is b·H_q + h; over the group, it is b·H_kv + h_kv
    K_scales, V_scales = K_scales + first, V_scales + first
    return task.scale_log2 * gl.load(K_scales + j), gl.load(V_scales + j)


@aggregate
class State:
    """A consumer's softmax between two blocks of keys."""

    fields = (
        "O PV due "                    # see issue_output
        "P m l "                       # P: the weights in hand, as `rounded` packs them; m: scaled
        "alpha V_log2 "                # what O is still to be multiplied by; log2 of the scale of V's block in hand
        "at coming"                    # where in the rings the block in hand is, and the one after it
    )


@jit
def issue_output(state, alpha, P, V_j):
    """Start O = alpha · O + P V_j: (O, PV, due). With one sum PV is O; with two, at d = 128, due · O + PV is.

    Tensor cores add e4m3 products with about 14 bits, not float32's 24, and drop the rest: after thousands of keys that
    shows. With two sums they add up the keys of one block, and the threads add up the blocks, in float32: a
    multiplication and addition where there was a multiplication. It takes d / 2 registers, which d = 256 cannot spare.
    """
    O, PV, due = state.O, state.PV, state.due
    two_sums: gl.constexpr = PV.shape[1] == 128
    if two_sums:
        O, due = scaled_rows(O, due) + PV, alpha
        layout: gl.constexpr = PV.type.layout
        PV = gl.zeros([ROWS, 128], gl.float32, layout)
    else:
        PV = scaled_rows(PV, alpha)
    return O, wgmma(P, V_j.permute((1, 0)), PV, use_acc=not two_sums, is_async=True), due


@jit
def rounded(P):
    """P in e4m3, four weights of a row in a register, their keys in the order of V's: no number changes its thread.

    Thread t has, of each 16 keys, 8b + 2t + e for b, e = 0 or 1, and in the second product has to have 4t + 2b + e.
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


@jit
def as_operand(P, O):
    """What `rounded` has packed as an operand of a product that adds to O, (rows, keys) in e4m3: no instruction."""
    operand: gl.constexpr = gl.DotOperandLayout(0, O.type.layout, 4)
    pairs = gl.join(P, P)
    P = gl.join(pairs, pairs).reshape([ROWS, P.shape[1] * 16])         # each register once for each of its four
    P = gl.convert_layout(P, operand, assert_trivial=True)
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r,r,r,r", [P], dtype=gl.float8e4nv, is_pure=False, pack=4)


@jit
def step(state, shared, task, n, mask: gl.constexpr, me: gl.constexpr):
    """As hopper_forward's. O is rescaled while S is computed, and P rounded when its registers are free: when the
    product with the one before is done."""
    m, at, coming, sizes = state.m, state.at, state.coming, shared.sizes
    factor, V_log2 = scales_of(shared, task, n - 1)
    P = as_operand(state.P, state.PV)                  # before a product starts: instructions between would part them
    S = issue_scores(shared, coming, me)
    shared.V.wait(at)
    O, PV, due = issue_output(state, state.alpha, P, shared.V.tile(at))
    S = wgmma_wait(1, deps=[S])                        # S is there, the other product still runs
    shared.K.release(coming.slot)

    if mask is not None:
        S = mask(S, task, (n - 1) * sizes.keys, sizes)
    m_new = gl.maximum(m, row_maximum(S) * factor)
    P_next = gl.exp2(S * factor - (m_new - P_BITS)[:, None])
    alpha = gl.exp2(m - m_new)
    l = scaled_rows(state.l, alpha) + row_shares(P_next)
    after = coming.following(sizes.stages)
    # A wait for something else before the wait for P V: otherwise the assembler hoists that above the exponentials.
    shared.K.wait(after, n > 1)
    PV = wgmma_wait(0, deps=[PV])
    shared.V.release(at.slot)
    alpha = alpha * gl.exp2(state.V_log2 - V_log2)     # for O alone, which has V's scale; l has none
    return State(O, PV, due, rounded(P_next), m_new, l, alpha, V_log2, coming, after)


@jit
def first_block(shared, task, at, me: gl.constexpr):
    """The softmax of the task's last block of keys, which may need a mask. O is still 0."""
    d: gl.constexpr = shared.Q_s.shape[-1]
    factor, V_log2 = scales_of(shared, task, task.end - 1)
    shared.K.wait(at)
    S = wgmma_wait(0, deps=[issue_scores(shared, at, me)])
    shared.K.release(at.slot)
    if shared.sizes.masked:
        S = only_visible(S, task, (task.end - 1) * shared.sizes.keys, shared.sizes)
    m = row_maximum(S) * factor
    if shared.sizes.crossing:                          # a row may see nothing of this block, and -inf minus -inf is NaN
        m = gl.maximum(m, LOWEST)
    P = gl.exp2(S * factor - (m - P_BITS)[:, None])
    l = row_shares(P)
    P = rounded(P)
    coming = at.following(shared.sizes.stages)
    shared.K.wait(coming, task.end > 1)
    zeros, one = gl.zeros([ROWS, d], gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, d, 32])), gl.exp2(m - m)
    return State(zeros, zeros, one, P, m, l, one, V_log2, at, coming)


@jit
def attend(shared, task, at, me: gl.constexpr):
    """O of 64 query rows. Returns the place in the rings after the tile's blocks."""
    state = walk(step, first_block(shared, task, at, me), shared, task, me)
    P = as_operand(state.P, state.PV)
    release(shared.Q_free.index(me))
    shared.V.wait(state.at)
    O, PV, due = issue_output(state, opaque(state.alpha), P, shared.V.tile(state.at))
    l_i = gl.sum(state.l, 1)
    PV = wgmma_wait(0, deps=[PV])
    shared.V.release(state.at.slot)
    if PV.shape[1] == 128:                             # two sums
        PV = scaled_rows(O, state.alpha) + PV
    write_O(shared, task, scaled_rows(PV, gl.exp2(state.V_log2) / l_i), me)
    return state.coming


@jit(do_not_specialize=["N_q", "N_k", "H_q", "group", "together", "tiles"])
def fa2_fp8_kernel(Q, K, V, O, Q_scales, K_scales, V_scales, counter, scale, N_q, N_k, H_q, group, together, tiles,
                   keys: gl.constexpr, causal: gl.constexpr, consumers: gl.constexpr, stages: gl.constexpr,
                   masked: gl.constexpr, crossing: gl.constexpr, num_warps: gl.constexpr):
    sizes = Sizes(N_q, N_k, H_q, tiles, group, together, None, None, None, causal, consumers, keys, stages, masked,
                  crossing, False)
    run(attend, Q, K, V, O, None, counter, scale, sizes, (Q_scales, K_scales, V_scales))


def launches(Q, K, V, O, H=None, *, causal, scale):
    """All launches of a call, each (kernel, grid, arguments), in order. H: the rotation of Q and K, of their dtype"""
    (B, H_q, N_q, d), (_, H_kv, N_k, _) = Q.shape, K.shape
    consumers, stages = 3 if d == 64 else 2, 2 if d == 256 else 3
    tiles, steps, made = B * H_q * triton.cdiv(N_q, consumers * 64), [], {}
    for name, T, rotation, block in (("Q", Q, H, 64), ("K", K, H, KEYS), ("V", V, None, KEYS)):
        blocks = triton.cdiv(T.shape[2], block)
        shape = (B, H_kv, d, blocks * KEYS) if name == "V" else T.shape
        values = temporary(torch.empty, *shape, dtype=torch.float8_e4m3fn, device=Q.device)
        scales = temporary(torch.empty, *T.shape[:2], blocks, dtype=torch.float32, device=Q.device)
        made |= {name: values, name + "_scales": scales}
        one = quantize.launch(T, rotation, values, scales, block, transposed=name == "V")
        steps.append((quantize.quantize_kernel, *one))
    together = heads_together(made["Q"], made["K"], made["V"]) if causal else 1
    arguments = made | {
        "Q": tiles_of(made["Q"], 64, d), "K": tiles_of(made["K"], KEYS, d), "O": tiles_of_output(O, 64, d),
        "V": described(made["V"], made["V"].shape, made["V"].stride(), (d, KEYS)),
        "counter": temporary(counters, 2, dtype=torch.int32, device=Q.device), "scale": scale, "N_q": N_q, "N_k": N_k,
        "H_q": H_q, "group": H_q // H_kv, "together": together, "tiles": tiles, "keys": KEYS, "consumers": consumers,
        "stages": stages, "causal": causal, "masked": causal or N_k % KEYS > 0,
        "crossing": causal and (N_k - N_q) % 64 > 0, "num_warps": 4}
    return [*steps, (fa2_fp8_kernel, (min(tiles, programs_at_a_time(Q, 8)),), arguments)]


def forward(Q, K, V, H=None, *, causal, scale):
    """O in bfloat16. H: as for `launches`. Nothing is checked."""
    Q, K, V = (T if T.stride(-1) == 1 else T.contiguous() for T in (Q, K, V))
    O = torch.empty(Q.shape, dtype=torch.bfloat16, device=Q.device)
    inputs = {"Q": Q, "K": K, "V": V, "H": H}
    key = plans.key((causal, scale), *inputs.values())
    plans.run((launches, key), partial(launches, causal=causal, scale=scale), inputs | {"O": O})
    return O
