"""FA2's backward pass for Hopper, in Gluon: a warp loads, warpgroups compute, taking turns at dQ, a warp adds dQ up.

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

TMA adds a tile to dQ in HBM, in float32, in one instruction, its elements in the order in which threads hold them.
finish_kernel puts them in order. Programs add in any order, which decides a sum's last bits; for the same bits each
time adders take turns: see hopper_backward_pipeline.py. TMA fills query rows past the end with zeros, and zero times a
key of -inf is NaN: where sizes are ragged, S is set to 0 in those rows, which are known by L = +inf.

Every signal is one of a pair, "it is there" and "it may be overwritten". Who waits for whom:

    K_full, V_full, Q_full, dO_full    mbarriers: TMA arrives with the last byte       a consumer waits
    SLOT_FREE + slot                   named barriers: all consumers have read it      the producer waits
    DS_READY + owner                   named barriers: the dS of a tile lies in dS_s   the tile's owner waits
    DQ_READY                           named barrier: a tile of dQ lies in dQ_s        the adder waits
    DQ_FREE                            named barrier: the tile of dQ has left dQ_s     the next tile's owner waits
    K_READ                             named barrier: the last dQ is computed          consumers wait: K_s becomes dK
"""

from functools import partial

import torch
import triton
import triton.language as tl

from flashlab.kernels.gluon_adapter import gl
from flashlab.kernels.hopper_words import described
from flashlab.kernels.launch import (
    checked_backward,
    fit_for_tma,
    how_many_parts,
    in_parts,
    largest_divisor,
    padded,
    programs_at_a_time,
    why_not_hopper,
    why_odd_rows,
)
from flashlab.kernels.plans import temporary
from flashlab.operator.hopper_backward_pipeline import TOGETHER, hopper_backward_kernel
from flashlab.operator.sequences import output_rows, rows_of_part, slots
from flashlab.operator.spans import table_of_blocks, tiles_of
from flashlab.operator.windows_backward import preprocess


@triton.jit
def finish_kernel(dQ_sum, dQ, N_q, tiles_of_a_head, H_q, cu_seqlens, batch, B, d: tl.constexpr, B_d: tl.constexpr):
    """dQ = dQ_sum of one query tile, in dQ's dtype, in the order of rows and columns again: see put_dQ."""
    tile = tl.program_id(0).to(tl.int64)
    head, i = tile // tiles_of_a_head, tile % tiles_of_a_head
    at = tl.arange(0, B_d // 8)[:, None] * 512 + tl.arange(0, 512)                 # 512: four of each of 128 threads
    in_order = tl.load(dQ_sum + tile * (64 * B_d) + at).reshape(2, B_d // 16, 4, 8, 4, 2, 2)
    dQ_i = in_order.permute(2, 0, 3, 1, 5, 4, 6).reshape(64, B_d)                  # (64, B_d)
    row, col = tl.arange(0, 64)[:, None], tl.arange(0, B_d)
    if batch is None:
        tl.store(dQ + (head * N_q + i * 64 + row) * d + col, dQ_i, mask=(row < N_q - i * 64) & (col < d))
    else:
        first, end = rows_of_part(i * 64, cu_seqlens, batch, N_q, B)
        dQ_at = dQ + output_rows(head, first + row, H_q, N_q, batch) * d + col
        tl.store(dQ_at, dQ_i, mask=(row < end - first) & (col < d))


def fa2_hopper_backward(Q, K, V, O, dO, L, *, dL=None, B_r=None, B_c=None, **options):
    """The gradients of attention for every batch and head, in three or four launches, on a Hopper GPU.

    Shapes:  as fa2_triton_backward; d, d_v up to 128, 16 bits: see `why_not`. What TMA cannot read is copied
    Options: as kernels/launch.check_call takes them. Deterministic: dK and dV always; dQ if asked for, without window
             and packed sequences: adders then wait for turns
    Tiles:   64 x 128 or 64 x 192: the division of labour fixes them
    Error:   at most 3x that of naive_backward in the same dtype, both against float64
    Raises:  TypeError or ValueError before anything is launched
    Source:  Dao 2023, arXiv:2307.08691, Algorithm 2; Shah et al. 2024, arXiv:2407.08608: warp specialisation
    New:     against fa2_tma_backward: different warps load, compute and add up, and the consumers take turns at dQ
    """
    run = launch_in_order if options.get("deterministic") else launch
    return checked_backward(run, Q, K, V, O, dO, L, dL, B_r=B_r, B_c=B_c, why_not=why_not, **options)


def why_not(Q, K, V, *, dropout_p=0.0, deterministic=False, B_r=None, B_c=None, **options):
    """Why this rung does not take a call, in words; None where it does."""
    if reason := why_not_hopper(Q, V, 128, dropout_p, B_r, B_c) or why_odd_rows(Q=Q, V=V):
        return reason
    if deterministic and any(options.get(name) is not None for name in ("window", "cu_seqlens_q")):
        return "with a window or packed sequences it adds dQ up in whatever order its programs come"
    if deterministic and programs_at_a_time(Q, 8) < TOGETHER.value:
        return f"the {TOGETHER.value} programs that wait for one another, for the same bits each time, need as many SMs"
    return None


def launch(Q, K, V, O, dO, L, dL, dQ, dK, dV, *, causal, scale, left=None, right=None, cu_seqlens_q=None,
           cu_seqlens_k=None, batch=None, ordered=False, **options):
    """The launches in order, each (kernel, grid, arguments); nothing is checked and nothing runs."""
    (B, H_q, N_q, d), (_, H_kv, N_k, d_v) = Q.shape, V.shape
    width = padded(max(d, d_v))
    packed, N = batch is not None, max(N_q, N_k) // (batch or 1)       # packed: of a sequence of medium length
    choice = how_many(width, N, causal or left is not None)
    block = 64 * choice["consumers"]
    tiles = slots(N_q, block, batch) * choice["consumers"]                         # of a head, in whole rounds
    first, rows = preprocess(O, dO, L, dL, scale, N_out=64 * tiles, batch=batch, cu_seqlens=cu_seqlens_q, block=block)
    programs, at_a_time = B * H_kv * slots(N_k, block, batch), programs_at_a_time(Q, 8)
    parts = 1 if packed or d != d_v else how_many_parts(programs, H_q // H_kv, at_a_time * (8 if causal else 1))
    programs, heads = programs * parts, H_kv * parts                               # heads: of dK_parts, too
    dK_parts, dV_parts, adding = in_parts(dK, dV, parts)
    dQ_sum = temporary(torch.zeros, B * H_q * tiles * 64 * width // 256, 256, dtype=torch.float32, device=Q.device)
    # Heads side by side, longest programs first: as many heads as keep Q, dO and dQ in the L2 cache, which all of their
    # programs read and add to. But all heads where an SM has few programs to run: a long one must not come last.
    together = 1
    if causal and not ordered:
        in_L2 = 2**14 * heads // max(1, N_q * H_q // (batch or 1))
        together = B * heads if programs <= 4 * at_a_time else largest_divisor(B * heads, in_L2)
    tensors = {"Q": Q, "K": K, "V": V, "dO": dO, "dK": dK_parts, "dV": dV_parts}
    arguments = {name: tiles_of(fit_for_tma(T), 64, width, packed) for name, T in tensors.items()}
    plain = gl.NVMMASharedLayout(0, 32, rank=2)
    arguments |= {name: described(rows[of], [B * H_q * tiles, 64], [64, 1], (1, 64), plain)
                  for name, of in (("L", "L_log2"), ("D", "D"))}
    arguments |= {
        "dQ": described(dQ_sum, dQ_sum.shape, dQ_sum.stride(), (width // 4, 256), plain), "scale": scale, "N_q": N_q,
        "N_k": N_k, "H_kv": heads, "group": H_q // heads, "together": together, "left": left, "right": right,
        "table": None, "tiles_of_a_head": tiles, "parts": parts, "causal": causal, "turns": None,
        "ragged": packed or left is not None or N_q % block + N_k % block > 0, "num_warps": 4}
    if ordered:
        arguments["turns"] = temporary(torch.zeros, B * H_q * tiles, dtype=torch.int32, device=Q.device)
    tables = []
    if packed:
        arguments["table"], *tables = table_of_blocks(cu_seqlens_k, cu_seqlens_q, N_k, N_q, block)
    last = {"dQ_sum": dQ_sum, "dQ": dQ, "N_q": N_q, "tiles_of_a_head": tiles, "H_q": H_q, "cu_seqlens": cu_seqlens_q,
            "batch": batch, "B": block, "d": d, "B_d": width, "num_warps": 4}
    return (first, *tables, (hopper_backward_kernel, (programs,), arguments | choice),
            (finish_kernel, (B * H_q * tiles,), last), *adding)


launch_in_order = partial(launch, ordered=True)        # with the same bits in dQ each time


def how_many(d, N, causal):
    """Consumers and slots of the ring: the fastest of those tried on an H200."""
    if d == 64 and N >= 8192 and not causal:
        return {"consumers": 3, "stages": 4}
    return {"consumers": 2, "stages": 4 if d == 64 else 3}
