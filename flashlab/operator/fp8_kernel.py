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
from flashlab.kernels.gluon_adapter import aggregate, gl, jit, mbarrier, thread_barrier, wgmma, wgmma_wait
from flashlab.kernels.hopper_words import LOG2_E, ROWS, scaled_rows
from flashlab.kernels.launch import heads_together, programs_at_a_time
from flashlab.kernels.plans import temporary
from flashlab.operator import quantize
from flashlab.operator.hopper_forward import LOWEST
from flashlab.operator.hopper_pipeline import Sizes, issue_scores, run, walk, write_O
from flashlab.operator.hopper_words import counters, opaque, pinned, row_maximum, row_shares
from flashlab.operator.spans import descriptor, only_visible

P_BITS = gl.constexpr(8.0)                             # P is computed 2^8 times too large


@aggregate
class Scales:
    """All scales in HBM: for each 64 rows of Q, and each block of K and V; those of V as logarithms to base 2."""

    fields = "Q K V"
    constants = "two_sums"             # see issue_output


@aggregate
class ScaledTask:
    """A task, with what multiplies S, the rows' scale included, and where the scales of its head's keys begin."""

    fields = "span first end Q_factor K_scales V_scales"

    @jit
    def scales_of(self, j):
        """What S of key block j is multiplied by, and log2 of V's scale."""
        return self.Q_factor * gl.load(self.K_scales + j), gl.load(self.V_scales + j)


@aggregate
class State:
    """A consumer's softmax between two blocks of keys."""

    fields = (
        "sums P m l "  # sums: see issue_output; P: the weights in hand, as `rounded` packs them; m: scaled
        "alpha V_log2 "                # what O is still to be multiplied by; log2 of the scale of V's block in hand
        "at coming"                    # where in the rings the block in hand is, and the one after it
    )


@jit
def issue_output(sums, alpha, P, V_s, slot, two_sums: gl.constexpr):
    """Start O = alpha · O + P V of the block in a slot. sums: (O,), or (O, PV, its alpha), where O = alpha · O + PV is
    still to do.

    Tensor cores add e4m3 products with about 14 bits, not float32's 24, and drop the rest: after thousands of keys that
    shows. With two sums they add up the keys of one block, and the threads add up the blocks, in float32: a
    multiplication and addition where there was a multiplication. It takes d / 2 more registers.
    """
    d: gl.constexpr = V_s.shape[3]
    V_j = V_s.index(slot).reshape([d, V_s.shape[4]])
    if two_sums:
        layout: gl.constexpr = sums[0].type.layout
        O = scaled_rows(sums[0], sums[2]) + sums[1]
        zeros = gl.zeros([ROWS, d], gl.float32, layout)
        return O, wgmma(P, V_j.permute((1, 0)), zeros, use_acc=False, is_async=True), alpha
    else:
        return (wgmma(P, V_j.permute((1, 0)), scaled_rows(sums[0], alpha), is_async=True),)


@jit
def waited_for(sums, two_sums: gl.constexpr):
    """What `issue_output` has started, when it is done."""
    if two_sums:
        return sums[0], wgmma_wait(0, deps=[sums[1]]), sums[2]
    else:
        return (wgmma_wait(0, deps=[sums[0]]),)


@jit
def rounded(P):
    """P in e4m3, four weights of a row in a register, their keys in the order of V's: no number changes its thread.

    Of the 16 keys 8b + 2t + e the thread t has those with b, e = 0 or 1, and in the second product it has to have 4t +
    2b + e.
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
    """One block: start S of the next and O += P V of this one, then the softmax of the next under the second product.

    n: how many blocks are still to come, the next one among them; mask: what hides some of its keys, or None O is
    rescaled while S is computed. P is rounded when its registers are free: when the product with the one before is
    done.
    """
    m, at, coming = state.m, state.at, state.coming
    factor, V_log2 = task.scales_of(n - 1)
    P = as_operand(state.P, state.sums[0])  # before a product starts: instructions in between would part them
    S = issue_scores(shared, coming.slot, me)
    shared.V.wait(at)
    sums = issue_output(state.sums, state.alpha, P, shared.V.tiles, at.slot, shared.fp8.two_sums)
    S = wgmma_wait(1, deps=[S])                        # S is there, the other product still runs
    shared.K.release(coming.slot)

    if mask is not None:
        S = mask(S, task.span, (n - 1) * shared.sizes.keys)
    m_new = gl.maximum(m, row_maximum(S, 2) * factor)
    P_next = gl.exp2(S * factor - (m_new - P_BITS)[:, None])
    alpha = gl.exp2(m - m_new)
    l = scaled_rows(state.l, alpha) + row_shares(P_next)
    if shared.unrolled:
        l = pinned(l)
    after = coming.following(shared.stages)
    # A wait for something else before the wait for P V: otherwise the assembler hoists that above the exponentials.
    shared.K.wait(after, n > 1)
    sums = waited_for(sums, shared.fp8.two_sums)
    shared.V.release(at.slot)
    alpha = alpha * gl.exp2(state.V_log2 - V_log2)     # for O alone, which has V's scale; l has none
    return State(sums, rounded(P_next), m_new, l, alpha, V_log2, coming, after)


@jit
def first_block(shared, task, at, me: gl.constexpr):
    """The softmax of the task's last block of keys, which may need a mask. O is still 0."""
    d: gl.constexpr = shared.Q_s.shape[-1]
    O_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, d, 32])
    factor, V_log2 = task.scales_of(task.end - 1)
    shared.K.wait(at)
    S = wgmma_wait(0, deps=[issue_scores(shared, at.slot, me)])
    shared.K.release(at.slot)
    if shared.masked:
        S = only_visible(S, task.span, (task.end - 1) * shared.sizes.keys)
    m = row_maximum(S, 2) * factor
    if shared.crossing:  # a row may see nothing of this block, and -inf minus -inf would be NaN
        m = gl.maximum(m, LOWEST)
    P = gl.exp2(S * factor - (m - P_BITS)[:, None])
    l = row_shares(P)
    P = rounded(P)
    coming = at.following(shared.stages)
    shared.K.wait(coming, task.end > 1)
    O, one = gl.zeros([ROWS, d], gl.float32, O_layout), gl.exp2(m - m)
    sums = (O, O, one) if shared.fp8.two_sums else (O,)
    return State(sums, P, m, l, one, V_log2, at, coming)


@jit
def attend(shared, task, at, me: gl.constexpr):
    """O of 64 query rows. Returns the place in the rings after the tile's blocks."""
    sizes, scales, span = shared.sizes, shared.fp8, task.span
    two_sums: gl.constexpr = scales.two_sums
    T_q, T_k = (sizes.N_q + ROWS - 1) // ROWS, (sizes.N_k + sizes.keys - 1) // sizes.keys          # blocks with a scale
    Q_factor = shared.scale * LOG2_E * gl.load(scales.Q + (task.head * T_q + span.first_row // ROWS))
    first_scale = task.head // sizes.group * T_k       # the head is b·H_q + h; over the group, it is b·H_kv + h_kv
    scaled = ScaledTask(span, task.first, task.end, Q_factor, scales.K + first_scale, scales.V + first_scale)
    state = walk(step, first_block(shared, scaled, at, me), shared, scaled, me)
    P = as_operand(state.P, state.sums[0])
    thread_barrier()                                   # all 128 threads have read Q
    mbarrier.arrive(shared.Q_free.index(me), count=1)
    shared.V.wait(state.at)
    sums = issue_output(state.sums, opaque(state.alpha), P, shared.V.tiles, state.at.slot, two_sums)
    l_i = gl.sum(state.l, 1)
    sums = waited_for(sums, two_sums)
    shared.V.release(state.at.slot)
    O = scaled_rows(sums[0], state.alpha) + sums[1] if two_sums else sums[0]
    write_O(shared, task, scaled_rows(O, gl.exp2(state.V_log2) / l_i), me)
    return state.coming


@jit(do_not_specialize=["N_q", "N_k", "H_q", "group", "together", "tiles"])
def fa2_fp8_kernel(Q, K, V, O, Q_scales, K_scales, V_scales, counter, scale, N_q, N_k, H_q, group, together, tiles,
                   keys: gl.constexpr, consumers: gl.constexpr, stages: gl.constexpr, causal: gl.constexpr,
                   ragged: gl.constexpr, crossing: gl.constexpr, unrolled: gl.constexpr, two_sums: gl.constexpr,
                   registers: gl.constexpr, num_warps: gl.constexpr):
    sizes = Sizes(N_q, N_k, H_q, tiles, group, together, None, None, None, False, causal, consumers, keys)
    scales = Scales(Q_scales, K_scales, V_scales, two_sums)
    masked: gl.constexpr = causal or ragged
    run(attend, Q, K, V, O, None, counter, scale, sizes, scales, stages, masked, crossing, unrolled, registers)


KERNEL = fa2_fp8_kernel


def launch(Q, K, V, O, Q_scales, K_scales, V_scales, *, causal, scale, choice=None, **options):
    """The grid and the arguments of one launch; nothing is checked and nothing runs.

    Q (B, H_q, N_q, d), K (B, H_kv, N_k, d) and V (B, H_kv, d, N_k rounded up to whole blocks) in e4m3, as quantize.py
    makes them; float32 scales, one for each 64 rows of Q and each block of K; V_scales are logarithms to base 2. O in
    bfloat16
    """
    (B, H_q, N_q, d), (_, H_kv, N_k, _) = Q.shape, K.shape
    choice = choice or how_many(d, max(N_q, N_k), causal)
    tiles, keys = B * H_q * triton.cdiv(N_q, choice["consumers"] * 64), choice["keys"]
    arguments = {"Q": descriptor(Q, (64, d)), "K": descriptor(K, (keys, d)), "V": descriptor(V, (d, keys))}
    arguments |= {"O": descriptor(O, (64, d), (B * H_q, N_q, d)), "scale": scale, "causal": causal}
    arguments |= {"Q_scales": Q_scales, "K_scales": K_scales, "V_scales": V_scales}
    arguments |= {"counter": temporary(counters, 2, dtype=torch.int32, device=Q.device)}
    arguments |= {"N_q": N_q, "N_k": N_k, "H_q": H_q, "group": H_q // H_kv, "tiles": tiles}
    arguments |= {"together": heads_together(Q, K, V) if causal else 1}
    arguments |= {"ragged": N_k % keys > 0, "crossing": causal and (N_k - N_q) % 64 > 0}
    return (min(tiles, programs_at_a_time(Q, 8)),), arguments | choice | {"num_warps": 4}


def how_many(d, N, causal):
    """Keys of a block, consumers, slots of a ring, unrolled by two or not, one sum or two: see `issue_output`."""
    if d == 64:
        return {"keys": 128, "consumers": 3, "stages": 3, "unrolled": False, "two_sums": False, "registers": 160}
    if d == 256:  # O takes 128 registers: none for a second sum, and masks spill a few bytes
        return {"keys": 128, "consumers": 2, "stages": 2, "unrolled": False, "two_sums": False, "registers": 240}
    return {"keys": 128, "consumers": 2, "stages": 3, "unrolled": False, "two_sums": True, "registers": 240}


def launches(Q, K, V, O, H=None, *, causal, scale, choice=None):
    """All launches of a call, (kernel, grid, arguments), in order: Q, K and V are quantised, then attended to."""
    (B, H_q, N_q, d), (_, H_kv, N_k, _) = Q.shape, K.shape
    choice = choice or how_many(d, max(N_q, N_k), causal)
    keys, made = choice["keys"], {}
    T_q, T_k = triton.cdiv(N_q, 64), triton.cdiv(N_k, keys)
    for name, shape, scales in (("Q", Q.shape, (B, H_q, T_q)), ("K", K.shape, (B, H_kv, T_k)),
                                ("V", (B, H_kv, d, T_k * keys), (B, H_kv, T_k))):
        made[name] = temporary(torch.empty, *shape, dtype=torch.float8_e4m3fn, device=Q.device)
        made[name + "_scales"] = temporary(torch.empty, *scales, dtype=torch.float32, device=Q.device)
    steps = []
    for name, T, rotation, block in (("Q", Q, H, 64), ("K", K, H, keys), ("V", V, None, keys)):
        one = quantize.launch(T, rotation, made[name], made[name + "_scales"], block, transposed=name == "V")
        steps.append((quantize.quantize_kernel, *one))
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
