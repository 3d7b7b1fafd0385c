"""FA2's backward pass for Hopper, in Gluon: one warp loads, warpgroups compute and take turns at dQ, one warp has dQ
added up.

A program owns a block of keys, and walks all query tiles of 64 rows that see it. It has

    one producer warp        asks TMA for K and V once, and for Q, dO, L and D tile after tile, into a ring of slots
    two or three consumers   warpgroups of 64 keys each: S^T = K Q^T and dP^T = V dO^T have keys in rows, so that P^T
                             and dS^T stay in registers, where dV += P^T dO and dK += dS^T Q take them from
    one adder warp           asks TMA to add a tile of dQ in HBM, when it lies in shared memory

dQ_i = dS_ij K_j needs the dS of all consumers. They put it into shared memory, too, and one of them, the tile's owner,
computes the whole of it; the next tile has the next owner. Only the owner waits; the others say that their dS is there
and run ahead. So consumers drift apart, and one's exponentials run beside another's products:

    consumer 0    tile 0: S dP . dV . dK, dQ of tile 0     tile 1: S dP . dV . dK              tile 2: ...
    consumer 1    tile 0: S dP . dV . dK         tile 1: S dP . dV . dK, dQ of tile 1          tile 2: ...

dQ is added up in HBM, in float32, by TMA: one instruction adds a tile that lies in shared memory, its elements in the
order in which threads hold them. finish_kernel puts them in order. TMA fills query rows past the end with zeros, and
zero times a key of -inf is NaN: where sizes are ragged, S is set to 0 in those rows, which are known by L = +inf.

A program walks the queries of all heads that share its keys. Where that makes too few programs to keep all SMs busy,
the heads are shared out: `parts` programs own the same keys, each makes dK and dV of its heads, and add_parts_kernel
adds them up.

The order in which programs add to a tile decides its last bits. For the same bits each time, adders take turns: see
hopper_backward_pipeline.py, which has the producer and the adder.

Every signal is one of a pair, "it is there" and "it may be overwritten". Who waits for whom:

    K_full, V_full, Q_full, dO_full    mbarriers: TMA arrives with the last byte       a consumer waits
    SLOT_FREE + slot                   named barriers: all consumers have read it      the producer waits
    DS_READY + owner                   named barriers: the dS of a tile lies in dS_s   the tile's owner waits
    DQ_READY                           named barrier: a tile of dQ lies in dQ_s        the adder waits
    DQ_FREE                            named barrier: the tile of dQ has left dQ_s     the next tile's owner waits
    K_READ                             named barrier: the last dQ is computed          consumers wait: K_s becomes dK
"""

import torch
import triton
import triton.language as tl

from flashlab.kernels.gluon_adapter import aggregate, fence, fork_warps, gl, jit, mbarrier, tma, wgmma, wgmma_wait
from flashlab.kernels.groups import how_many_parts, in_parts
from flashlab.kernels.hopper_words import LOG2_E, ROWS, arrive, mbarriers, sync
from flashlab.kernels.launch import (
    backward,
    check_backward_call,
    fit_for_tma,
    largest_divisor,
    programs_at_a_time,
    refuse,
    why_not_hopper,
)
from flashlab.kernels.plans import temporary
from flashlab.operator.hopper_backward_pipeline import (
    DQ_FREE,
    DQ_READY,
    SLOT_FREE,
    TOGETHER,
    Shared,
    Sizes,
    adder,
    block_of,
    producer,
)
from flashlab.operator.hopper_words import Position, opaque_zero
from flashlab.operator.sequences import output_rows, rows_of_part, slots
from flashlab.operator.spans import descriptor, table_of_blocks, tiles_of, within, without_hidden
from flashlab.operator.windows_backward import preprocess

DS_READY = gl.constexpr(10)                            # named barriers 10, 11, 12: one a consumer
K_READ = gl.constexpr(13)


@aggregate
class State:
    """A consumer's sums over the tiles so far, and the tile's place in the ring."""

    fields = "dK dV at"


@jit
def step(state, n, first_row, block, shared, owner: gl.constexpr, me: gl.constexpr, masked: gl.constexpr):
    """One query tile: dV += P^T dO and dK += dS^T Q for these 64 keys; for the owner dQ += dS K for all keys of the
    block.

    n: the loop's counter; first_row: of the tile
    """
    dV, dK, at, slot, sizes = state.dV, state.dK, state.at, state.at.slot, shared.sizes
    consumers: gl.constexpr = shared.sizes.consumers
    d: gl.constexpr = dK.shape[1]
    S_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, d, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    columns: gl.constexpr = gl.SliceLayout(0, S_layout)
    zero = opaque_zero(n)  # addresses that depend on it are computed here, not kept in registers
    Q_i, dO_i = shared.Q_s.index(slot).reshape([ROWS, d]), shared.dO_s.index(slot).reshape([ROWS, d])
    K_j, V_j = shared.K_s.index(me + zero).reshape([ROWS, d]), shared.V_s.index(me + zero).reshape([ROWS, d])
    no_scores = gl.zeros([ROWS, ROWS], gl.float32, S_layout)

    mbarrier.wait(shared.Q_full.index(slot), at.phase)
    S = wgmma(K_j, Q_i.permute((1, 0)), no_scores, use_acc=False, is_async=True)
    mbarrier.wait(shared.dO_full.index(slot), at.phase)
    dP = wgmma(V_j, dO_i.permute((1, 0)), no_scores, use_acc=False, is_async=True)
    L_i = shared.L_s.index(slot).reshape([ROWS]).load(columns)
    S = wgmma_wait(1, deps=[S])                        # S is there, dP's product still runs
    if sizes.ragged:
        S = gl.where(L_i[None, :] == float("inf"), 0.0, S)
    P = gl.exp2(S * (shared.scale * LOG2_E) - L_i[None, :])
    if masked:
        P = without_hidden(P, (block.j * consumers + me) * ROWS, first_row, block, sizes)
    dV = wgmma(gl.convert_layout(P.to(shared.Q_s.dtype), operand), dO_i, dV, is_async=True)
    D_i = shared.D_s.index(slot).reshape([ROWS]).load(columns)
    dP = wgmma_wait(1, deps=[dP])
    dS = (P * (dP * shared.scale - D_i[None, :])).to(shared.Q_s.dtype)
    dK = wgmma(gl.convert_layout(dS, operand), Q_i, dK, is_async=True)
    shared.dS_s.index(owner * consumers + me + zero).store(dS)                     # a set of buffers for each owner
    fence()

    if me == owner:
        dV = wgmma_wait(1, deps=[dV])                  # gives back the registers of P before dQ takes its own
        sync(DS_READY + owner, consumers * 128)
        dQ, dK = dQ_of_tile(dK, zero, shared, owner)
        arrive(slot + SLOT_FREE, consumers * 128 + 32)
        sync(DQ_FREE, 160)
        put_dQ(dQ, shared.dQ_s, d)
        arrive(DQ_READY, 160)
    else:
        arrive(DS_READY + owner, consumers * 128)
        dK, dV = wgmma_wait(0, deps=[dK, dV])
        arrive(slot + SLOT_FREE, consumers * 128 + 32)
    return State(dK, dV, at.following(sizes.stages))


@jit
def dQ_of_tile(dK, zero, shared, owner: gl.constexpr):
    """dQ = dS K of a tile, for all keys of the block; and dK, whose product is done by then, too."""
    consumers: gl.constexpr = shared.sizes.consumers
    d: gl.constexpr = shared.Q_s.shape[-1]
    dQ = gl.zeros([ROWS, d], gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, d, 16]))
    for c in gl.static_range(consumers):
        dS_c, K_c = shared.dS_s.index(owner * consumers + c + zero), shared.K_s.index(c + zero).reshape([ROWS, d])
        dQ = wgmma(dS_c.permute((1, 0)), K_c, dQ, use_acc=c > 0, is_async=True)
    return wgmma_wait(0, deps=[dQ, dK])


@jit
def put_dQ(dQ, dQ_s, d: gl.constexpr):
    """A tile of dQ in shared memory in the order in which threads hold it: 16 bytes of each of 128 threads, then the
    next 16.

    Of a wgmma's result, thread 4a + b of warp w holds, in rows 16w + a and 16w + a + 8, columns 8n + 2b and 8n + 2b +
    1.
    """
    #                 w  8  a  ------ n ------  b  1
    by_bits = dQ.reshape([4, 2, 8, d // 16, 2, 4, 2])
    in_order = by_bits.permute((1, 3, 0, 2, 5, 4, 6))  # what a thread holds in fours, threads, the four
    dQ_s.store(in_order.reshape([d // 4, 256]))
    fence()


@jit
def some_rounds(state, start, stop, block, shared, me: gl.constexpr, masked: gl.constexpr):
    """Rounds `start` to `stop` of those that see the block: a tile for each owner."""
    sizes = shared.sizes
    for k in range(start, stop):
        n = block.round_at(k, sizes)
        for owner in gl.static_range(sizes.consumers):
            state = step(state, k, (n * sizes.consumers + owner) * ROWS, block, shared, owner, me, masked)
    return state


@jit
def consumer(shared, me: gl.constexpr):
    """Walk the query tiles of all heads that share these 64 keys, then write their dK and dV."""
    sizes, K_s, V_s = shared.sizes, shared.K_s, shared.V_s
    d: gl.constexpr = shared.Q_s.shape[-1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, d, 16])
    block = block_of(sizes)
    first, whole_from, whole_to = block.first, block.whole_from, block.whole_to
    zeros = gl.zeros([ROWS, d], gl.float32, layout)
    state = State(zeros, zeros, Position(0, 0))
    mbarrier.wait(shared.K_full, 0)
    if sizes.left is not None or sizes.table is not None:      # no query may see these keys: then V is not copied
        mbarrier.wait(shared.V_full, 0, pred=first < block.end)
    else:
        mbarrier.wait(shared.V_full, 0)
    for _ in range(0, sizes.group):
        if sizes.causal or sizes.ragged:               # a loop with masks; elsewhere none is compiled
            state = some_rounds(state, 0, whole_from - first, block, shared, me, True)
        state = some_rounds(state, gl.maximum(0, whole_from - first), whole_to - first, block, shared, me, False)
        if sizes.left is not None:
            state = some_rounds(state, whole_to - first, block.end - first, block, shared, me, True)

    sync(K_READ, sizes.consumers * 128)
    V_s.index(me).reshape([ROWS, d]).store(state.dV.to(V_s.dtype))
    K_s.index(me).reshape([ROWS, d]).store(state.dK.to(K_s.dtype))
    fence()
    b, h, row = block.head // sizes.H_kv, block.head % sizes.H_kv, (block.j * sizes.consumers + me) * ROWS
    where = [b, h, row, 0] if sizes.table is None else within(block.start_k, block.N_k, h, row)
    tma.store(shared.dV, where, V_s.index(me))
    tma.store(shared.dK, where, K_s.index(me))
    tma.store_wait(0)


@jit(do_not_specialize=["N_q", "N_k", "H_kv", "together", "left", "right", "tiles_of_a_head"])
def hopper_backward_kernel(Q, K, V, dO, L, D, dQ, dK, dV, turns, scale, N_q, N_k, H_kv, together, left, right, table,
                           tiles_of_a_head, group: gl.constexpr, parts: gl.constexpr, consumers: gl.constexpr,
                           stages: gl.constexpr, causal: gl.constexpr, ragged: gl.constexpr, ordered: gl.constexpr,
                           registers: gl.constexpr, num_warps: gl.constexpr):
    """Shared memory and the signals in it, then every warp goes to its own work."""
    Q_s = gl.allocate_shared_memory(Q.dtype, [stages] + Q.block_shape, Q.layout)
    dO_s = gl.allocate_shared_memory(Q.dtype, [stages] + dO.block_shape, dO.layout)
    K_s = gl.allocate_shared_memory(Q.dtype, [consumers] + K.block_shape, K.layout)
    V_s = gl.allocate_shared_memory(Q.dtype, [consumers] + V.block_shape, V.layout)
    L_s = gl.allocate_shared_memory(gl.float32, [stages, 1, ROWS], L.layout)
    D_s = gl.allocate_shared_memory(gl.float32, [stages, 1, ROWS], D.layout)
    dS_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, ROWS], Q.dtype)
    dS_s = gl.allocate_shared_memory(Q.dtype, [consumers * consumers, ROWS, ROWS], dS_layout)
    dQ_s = gl.allocate_shared_memory(gl.float32, dQ.block_shape, dQ.layout)
    K_full, V_full = mbarriers(1, 1).index(0), mbarriers(1, 1).index(0)
    keys: gl.constexpr = consumers * ROWS
    blocks = (N_k + keys - 1) // keys if table is None else gl.load(table)
    sizes = Sizes(N_q, N_k, blocks, H_kv, together, left, right, table, tiles_of_a_head,
                  group, parts, consumers, keys, stages, causal, ragged, ordered)
    shared = Shared(Q, K, V, dO, L, D, dQ, dK, dV, turns, scale, sizes, Q_s, dO_s, L_s, D_s, K_s, V_s, dS_s, dQ_s,
                    K_full, V_full, mbarriers(stages, 1), mbarriers(stages, 1))
    if table is None:
        fork_warps((shared,), consumer, consumers, registers, (producer, adder))
    elif gl.program_id(0) < H_kv * blocks:             # the host launches as many programs as there may be blocks
        fork_warps((shared,), consumer, consumers, registers, (producer, adder))


@triton.jit
def finish_kernel(dQ_sum, dQ, N_q, tiles_of_a_head, H_q, cu_seqlens, batch, B, d: tl.constexpr):
    """dQ = dQ_sum of one query tile, in dQ's dtype, in the order of rows and columns again: see put_dQ."""
    tile = tl.program_id(0).to(tl.int64)
    head, i = tile // tiles_of_a_head, tile % tiles_of_a_head
    at = tl.arange(0, d // 8)[:, None] * 512 + tl.arange(0, 512)                   # 512: four of each of 128 threads
    in_order = tl.load(dQ_sum + tile * (64 * d) + at).reshape(2, d // 16, 4, 8, 4, 2, 2)
    dQ_i = in_order.permute(2, 0, 3, 1, 5, 4, 6).reshape(64, d)                    # (64, d)
    row, col = tl.arange(0, 64)[:, None], tl.arange(0, d)
    if batch is None:
        tl.store(dQ + (head * N_q + i * 64 + row) * d + col, dQ_i, mask=row < N_q - i * 64)
    else:
        first, end = rows_of_part(i * 64, cu_seqlens, batch, N_q, B)
        tl.store(dQ + output_rows(head, first + row, H_q, N_q, batch) * d + col, dQ_i, mask=row < end - first)


def fa2_hopper_backward(
    Q, K, V, O, dO, L, *, dL=None, causal=False, window=None, cu_seqlens_q=None, cu_seqlens_k=None, scale=None,
    dropout_p=0.0, seed=None, deterministic=False, B_r=None, B_c=None,
):
    """The gradients of attention for every batch and head, in three or four launches, on a Hopper GPU.

    Shapes:  Q (B, H_q, N_q, d), K (B, H_kv, N_k, d), V (B, H_kv, N_k, d), O and dO (B, H_q, N_q, d), L (B, H_q, N_q)
             -> dQ, dK, dV, each like its tensor, contiguous; dK and dV are sums over the query heads that share them
             dL, like L, where L has a gradient of its own; d 64 or 128, float16 or bfloat16: see `why_not`
             any strides: what TMA cannot read is copied first
    Window, packed: as fa2_triton_backward; packed sequences take a fourth launch
    Deterministic: dK and dV always; dQ if asked for, without window and packed sequences: adders then wait for turns
    Tiles:   64 x 128 or 64 x 192: the division of labour fixes them
    Error:   at most 3x that of naive_backward in the same dtype, both against float64
    Raises:  TypeError or ValueError before anything is launched
    Source:  Dao 2023, arXiv:2307.08691, Algorithm 2; Shah et al. 2024, arXiv:2407.08608: warp specialisation
    New:     against fa2_tma_backward: different warps load, compute and add up, and the consumers take turns at dQ
    """
    options = check_backward_call(Q, K, V, O, dO, L, dL, B_r=B_r, B_c=B_c, causal=causal, window=window, scale=scale,
                                  cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, dropout_p=dropout_p, seed=seed,
                                  deterministic=deterministic)
    refuse(why_not(Q, K, V, dropout_p=dropout_p, deterministic=deterministic, B_r=B_r, B_c=B_c, window=window,
                   cu_seqlens_q=cu_seqlens_q))
    return backward(launch_in_order if deterministic else launch, Q, K, V, O, dO, L, dL, **options)


def why_not(Q, K, V, *, dropout_p=0.0, deterministic=False, B_r=None, B_c=None, **options):
    """Why this rung does not take a call, in words; None where it does."""
    if reason := why_not_hopper(Q, V, dropout_p, B_r, B_c):
        return reason
    if deterministic and any(options.get(name) is not None for name in ("window", "cu_seqlens_q")):
        return "with a window or packed sequences it adds dQ up in whatever order its programs come"
    if deterministic and programs_at_a_time(Q, 8) < TOGETHER.value:
        return f"the {TOGETHER.value} programs that wait for one another, for the same bits each time, need as many SMs"
    return None


def launch_in_order(*tensors, **options):
    """As `launch`, with the same bits in dQ each time."""
    return launch(*tensors, **options, ordered=True)


def launch(Q, K, V, O, dO, L, dL, dQ, dK, dV, *, causal, scale, left=None, right=None, cu_seqlens_q=None,
           cu_seqlens_k=None, batch=None, ordered=False, **options):
    """The launches in order, each (kernel, grid, arguments); nothing is checked and nothing runs."""
    (B, H_q, N_q, d), (_, H_kv, N_k, _) = Q.shape, K.shape
    packed, N = batch is not None, max(N_q, N_k) // (batch or 1)       # packed: of a sequence of medium length
    choice = how_many(d, N, causal or left is not None)
    block = 64 * choice["consumers"]
    tiles = slots(N_q, block, batch) * choice["consumers"]                         # of a head, in whole rounds
    first, rows = preprocess(O, dO, L, dL, scale, N_out=64 * tiles, batch=batch, cu_seqlens=cu_seqlens_q, block=block)
    programs = B * H_kv * slots(N_k, block, batch)
    parts = 1 if packed else how_many_parts(programs, H_q // H_kv, programs_at_a_time(Q, 8) * (8 if causal else 1))
    programs, heads = programs * parts, H_kv * parts                               # heads: of dK_parts, too
    dK_parts, dV_parts, adding = in_parts(dK, dV, parts)
    dQ_sum = temporary(torch.zeros, B * H_q * tiles * 64 * d // 256, 256, dtype=torch.float32, device=Q.device)
    plain = gl.NVMMASharedLayout(0, 32, rank=2)
    arguments = {name: tiles_of(fit_for_tma(T), 64, packed)
                 for name, T in (("Q", Q), ("K", K), ("V", V), ("dO", dO), ("dK", dK_parts), ("dV", dV_parts))}
    arguments |= {"L": descriptor(rows["L_log2"], (1, 64), (B * H_q * tiles, 64), layout=plain)}
    arguments |= {"D": descriptor(rows["D"], (1, 64), (B * H_q * tiles, 64), layout=plain)}
    arguments |= {"dQ": descriptor(dQ_sum, (d // 4, 256), layout=plain), "table": None, "tiles_of_a_head": tiles}
    # Heads side by side, longest programs first: as many heads as keep Q, dO and dQ in the L2 cache, which all of their
    # programs read and add to. But all heads where an SM has few programs to run: a long one must not come last.
    together = 1
    if causal and not ordered:
        in_L2 = 2**14 * heads // max(1, N_q * H_q // (batch or 1))
        together = B * heads if programs <= 4 * programs_at_a_time(Q, 8) else largest_divisor(B * heads, in_L2)
    # A kernel without turns takes any tensor in their place, and does not look at it.
    turns = temporary(torch.zeros, B * H_q * tiles, dtype=torch.int32, device=Q.device) if ordered else dQ
    arguments |= {"N_q": N_q, "N_k": N_k, "H_kv": heads, "group": H_q // heads, "together": together, "left": left}
    arguments |= {"right": right, "scale": scale, "causal": causal, "turns": turns, "ordered": ordered, "num_warps": 4}
    arguments |= {"parts": parts, "ragged": packed or left is not None or N_q % block + N_k % block > 0} | choice
    before = [first]
    if packed:
        arguments["table"], table_first = table_of_blocks(cu_seqlens_k, cu_seqlens_q, N_k, N_q, block)
        before.append(table_first)
    last = {"dQ_sum": dQ_sum, "dQ": dQ, "N_q": N_q, "tiles_of_a_head": tiles, "H_q": H_q, "cu_seqlens": cu_seqlens_q,
            "batch": batch, "B": block, "d": d, "num_warps": 4}
    return (*before,
            (hopper_backward_kernel, (programs,), arguments),
            (finish_kernel, (B * H_q * tiles,), last), *adding)


def how_many(d, N, causal):
    """Consumers, slots of the ring and registers a thread: the fastest of those tried on an H200."""
    if d == 64 and N >= 8192 and not causal:
        return {"consumers": 3, "stages": 4, "registers": 160}
    return {"consumers": 2, "stages": 4 if d == 64 else 3, "registers": 240}
