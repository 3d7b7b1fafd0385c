"""Flash-Decoding: few queries before many keys, as when a model generates text one token at a time.

The other kernels have one program for each query block, and one new query is one block: a GPU of 132 SMs runs as many
programs as there are heads. Here the keys are shared out as well. A program walks one chunk of them and leaves a
partial O and L; a second kernel merges the chunks of each row by their L, as chapter 03 merges two states.

There is little to compute and much to read: K and V once, at the speed of HBM. So all rows that read the same key head,
those of H_q / H_kv query heads times N_q queries, lie in one tile.

The cache has room for N_k keys, and `lengths` on the GPU says how many are there. The number of chunks follows from the
room, and each program cuts its own sequence's tiles into that many: no call waits for the GPU, and a CUDA graph can
capture it. A paged cache holds page_size keys a page, and block_table names the pages of each sequence.
"""

import torch
import triton
import triton.language as tl

from flashlab.kernels import plans
from flashlab.kernels.launch import (
    LOG2_E,
    capability,
    check_call,
    forward,
    little_shared_memory,
    only_wanted,
    padded,
    positive_scale,
    programs_at_a_time,
    refuse,
    shared_arguments,
)
from flashlab.operator.sequences import key_blocks_seen, visible
from flashlab.operator.splits import choose_splits

MOST_ROWS = {torch.float16: 64, torch.bfloat16: 64, torch.float32: 16}         # of a tile: more read K, V again from L2
MERGED = 16                                            # partial results that the merge takes at a time


@triton.jit(do_not_specialize=["splits", "added", "pages", "all_rows"])            # one kernel for any of them
def decode_kernel(
    Q, K, V, O, L, lengths, block_table,               # O, L: one for each chunk; lengths, block_table may be None
    stride_Qb, stride_Qh, stride_Qn, stride_Qd,        # elements to step over for the next batch, head, row, column
    stride_Kb, stride_Kh, stride_Kn, stride_Kd,        # in a paged cache b is the page, and n a row of it
    stride_Vb, stride_Vh, stride_Vn, stride_Vd, stride_lengths, stride_table_b, stride_table_n,
    scale, H_q, H_kv, N_q, N_k, added, pages, splits, all_rows, left, right,
    page_size: tl.constexpr, d: tl.constexpr, d_v: tl.constexpr, causal: tl.constexpr,
    B_r: tl.constexpr, B_c: tl.constexpr, B_d: tl.constexpr, B_dv: tl.constexpr,
):
    heads_rows = H_q // H_kv * N_q                     # rows that share a key head, query after query, head after head
    T_r = tl.cdiv(heads_rows, B_r)
    i, split = tl.program_id(0) % T_r, tl.program_id(0) // T_r % splits            # neighbours find the same keys in L2
    head = (tl.program_id(0) // T_r // splits).to(tl.int64)                        # int64 in every offset
    b, h = head // H_kv, head % H_kv
    rows = i * B_r + tl.arange(0, B_r)                 # (B_r,)
    col, col_v = tl.arange(0, B_d).to(tl.int64), tl.arange(0, B_dv).to(tl.int64)
    row_ok = rows[:, None] < heads_rows                # (B_r, 1)
    Q_at = Q + b * stride_Qb + (h * (H_q // H_kv) + rows // N_q) * stride_Qh + (rows % N_q).to(tl.int64) * stride_Qn
    Q_i = tl.load(Q_at[:, None] + col * stride_Qd, mask=row_ok & (col < d), other=0.0)         # (B_r, B_d)
    room = N_k
    if lengths is not None:                            # clamped: a wrong number must not lead outside of the cache
        N_k = tl.minimum(tl.maximum(tl.load(lengths + b * stride_lengths) + added, 0), room)
    start, stop = key_blocks_seen(0, N_q, B_c, N_q, N_k, causal, left, right)
    tiles = tl.maximum(stop - start, 0)                # of the sequence; chunks differ by a tile at most
    first, end = start + tiles * split // splits, start + tiles * (split + 1) // splits
    page = page_of(first, b, room, block_table, stride_table_b, stride_table_n, pages, page_size, B_c)
    K, V = K + h * stride_Kh, V + h * stride_Vh
    m_i = tl.full((B_r,), -float("inf"), tl.float32)                               # (B_r,)       in base 2
    l_i = tl.zeros((B_r,), tl.float32)                                             # (B_r,)
    O_i = tl.zeros((B_r, B_dv), tl.float32)                                        # (B_r, B_dv)
    for j in range(first, end):
        keys = j * B_c + tl.arange(0, B_c)             # (B_c,)
        key_ok = keys[:, None] < N_k                   # (B_c, 1)     behind the last key may be NaN: 0 · NaN is NaN
        slots = (keys if block_table is None else keys % page_size).to(tl.int64)   # (B_c,)       rows of a page
        K_at = K + (page * stride_Kb + slots * stride_Kn)[:, None] + col * stride_Kd           # (B_c, B_d)
        K_j = tl.load(K_at, mask=key_ok & (col < d), other=0.0)                    # (B_c, B_d)
        V_at = V + (page * stride_Vb + slots * stride_Vn)[:, None] + col_v * stride_Vd         # (B_c, B_dv)
        V_j = tl.load(V_at, mask=key_ok & (col_v < d_v), other=0.0)                # (B_c, B_dv)
        page = page_of(j + 1, b, room, block_table, stride_table_b, stride_table_n, pages, page_size, B_c)     # early
        S_ij = tl.dot(Q_i, K_j.T, input_precision="ieee")                          # (B_r, B_c)
        seen = visible((rows % N_q)[:, None], keys, N_q, N_k, causal, left, right) # (B_r or 1, B_c)
        S_ij = tl.where(seen, S_ij, -float("inf"))                                 # (B_r, B_c)
        m_i, l_i, O_i = with_tile(m_i, l_i, O_i, S_ij, V_j, scale * LOG2_E)        # scale > 0
    l_safe = tl.where(l_i == 0, 1.0, l_i)                                          # (B_r,)       no key: O = 0
    at = split.to(tl.int64) * all_rows + head * heads_rows + rows        # (B_r,)       a group's rows are neighbours
    tl.store(O + at[:, None] * d_v + col_v, O_i / l_safe[:, None], mask=row_ok & (col_v < d_v))
    tl.store(L + at, (m_i + tl.log2(l_safe)) / LOG2_E, mask=rows < heads_rows)     # -inf + 0: weight 0 in the merge


@triton.jit
def with_tile(m_i, l_i, O_i, S_ij, V_j, scale_log2):
    """The state of a chunk after one more tile of keys."""
    m_new = tl.maximum(m_i, tl.max(S_ij, 1) * scale_log2)                          # (B_r,)
    m_safe = tl.where(m_new == -float("inf"), 0.0, m_new)                          # (B_r,)       -inf minus -inf is NaN
    alpha = tl.exp2(m_i - m_safe)                                                  # (B_r,)       0 at first: m_i = -inf
    P_ij = tl.exp2(S_ij * scale_log2 - m_safe[:, None])                            # (B_r, B_c)
    PV = tl.dot(P_ij.to(V_j.dtype), V_j, input_precision="ieee")                   # (B_r, B_dv)
    return m_new, alpha * l_i + tl.sum(P_ij, 1), alpha[:, None] * O_i + PV


@triton.jit
def page_of(j, b, room, block_table, stride_b, stride_n, pages, page_size: tl.constexpr, B_c: tl.constexpr):
    """The page of tile j, or of each of its keys where it lies in several; the batch if there are no pages."""
    if block_table is None:
        page = b
    else:
        key = j * B_c if page_size % B_c == 0 else j * B_c + tl.arange(0, B_c)
        page = tl.load(block_table + b * stride_b + key // page_size * stride_n, mask=key < room, other=0)
        page = tl.minimum(tl.maximum(page, 0), pages - 1).to(tl.int64)   # a wrong number: a wrong page, but not outside
    return page


@triton.jit(do_not_specialize=["splits", "all_rows"])
def merge_kernel(O_split, L_split, O, L, all_rows, splits, d_v: tl.constexpr, B_s: tl.constexpr, B_dv: tl.constexpr):
    """One row's O and L from those of its chunks: each O weighs as much as its sum of exponentials, exp(L)."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, B_dv)
    m_i, l_i, O_i = -float("inf"), 0.0, tl.zeros((B_dv,), tl.float32)
    for first in range(0, splits, B_s):
        s = first + tl.arange(0, B_s)                                              # (B_s,)
        L_s = tl.load(L_split + s * all_rows + row, mask=s < splits, other=-float("inf"))               # (B_s,)
        at = (s * all_rows + row)[:, None] * d_v + col                             # (B_s, B_dv)
        O_s = tl.load(O_split + at, mask=(s < splits)[:, None] & (col < d_v), other=0.0)            # (B_s, B_dv)
        m_new = tl.maximum(m_i, tl.max(L_s, 0))
        m_safe = tl.where(m_new == -float("inf"), 0.0, m_new)                      # no visible key so far
        alpha, weight = tl.exp(m_i - m_safe), tl.exp(L_s - m_safe)                 # number, (B_s,)
        l_i = alpha * l_i + tl.sum(weight, 0)
        O_i = alpha * O_i + tl.sum(weight[:, None] * O_s, 0)                       # (B_dv,)
        m_i = m_new
    l_safe = tl.where(l_i == 0, 1.0, l_i)
    tl.store(O + row * d_v + col, O_i / l_safe, mask=col < d_v)
    tl.store(L + row, m_i + tl.log(l_safe))


@triton.jit
def append_kernel(
    K_new, V_new, K, V, lengths, block_table,
    stride_K_newb, stride_K_newh, stride_K_newn, stride_K_newd,
    stride_V_newb, stride_V_newh, stride_V_newn, stride_V_newd,
    stride_Kb, stride_Kh, stride_Kn, stride_Kd,
    stride_Vb, stride_Vh, stride_Vn, stride_Vd,
    stride_lengths, stride_table_b, stride_table_n,
    H_kv, N_q, room, pages, page_size: tl.constexpr, d: tl.constexpr, d_v: tl.constexpr, B_d: tl.constexpr,
    B_dv: tl.constexpr,
):
    """Write one new key and its value where the sequence ends. Where there is no room, nothing is written."""
    n, head = tl.program_id(0) % N_q, (tl.program_id(0) // N_q).to(tl.int64)
    b, h = head // H_kv, head % H_kv
    key = tl.load(lengths + b * stride_lengths).to(tl.int64) + n
    ok = (key >= 0) & (key < room)
    page, slot = b, key
    if block_table is not None:
        page = tl.load(block_table + b * stride_table_b + key // page_size * stride_table_n, mask=ok,
                       other=-1).to(tl.int64)
        ok = (page >= 0) & (page < pages)
        slot = key % page_size
    col, col_v = tl.arange(0, B_d).to(tl.int64), tl.arange(0, B_dv).to(tl.int64)
    K_n = tl.load(K_new + b * stride_K_newb + h * stride_K_newh + n * stride_K_newn + col * stride_K_newd, mask=col < d)
    V_n = tl.load(V_new + b * stride_V_newb + h * stride_V_newh + n * stride_V_newn + col_v * stride_V_newd,
                  mask=col_v < d_v)
    tl.store(K + page * stride_Kb + h * stride_Kh + slot * stride_Kn + col * stride_Kd, K_n, mask=ok & (col < d))
    tl.store(V + page * stride_Vb + h * stride_Vh + slot * stride_Vn + col_v * stride_Vd, V_n, mask=ok & (col_v < d_v))


KERNEL = None                          # `launch` says which kernels, one or two


def fa2_decode_forward(Q, K, V, **options):
    """Exact attention for few queries and many keys, in two launches; in one where the heads fill the GPU.

    Options: causal, scale and window, as flash_attention
    Shapes:  as fa2_triton_forward. Many queries are taken, too, but slowly
    Error:   at most 2x that of naive in the same dtype, both against float64
    Raises:  TypeError or ValueError before anything is launched
    Source:  Dao, Haziza, Massa, Sizov 2023, "Flash-Decoding for long-context inference"
    New:     against fa2_exp2_forward: the keys are shared out as well, and one tile holds all rows that read the same
             key head
    """
    options = check_call(Q, K, V, **options)
    refuse("it has no dropout" if "seed" in options else "it takes no packed sequences" if "batch" in options else None)
    return forward(KERNEL, launch, Q, K, V, **options)


def launch(Q, K, V, O, L, lengths=None, block_table=None, *, scale, causal=True, left=None, right=None, added=0,
           splits=None, tiles=None):
    """The launches in order, each (kernel, grid, arguments); nothing is checked and nothing runs.

    lengths: how many keys each sequence has, without the `added` new ones; if None, all rows of K are keys
    tiles:   (B_c, num_warps, num_stages), by default `best_tiles`
    """
    Q, scale = positive_scale(Q, scale)
    (B, H_q, N_q, _), (_, H_kv, page_size, d_v) = Q.shape, V.shape
    room = page_size * (1 if block_table is None else block_table.shape[1])
    group_rows = H_q // H_kv * N_q
    B_r = min(MOST_ROWS[Q.dtype], padded(group_rows))
    programs = B * H_kv * triton.cdiv(group_rows, B_r)
    looked_up = block_table is not None and programs < programs_at_a_time(Q, 8)    # and not a program for each SM
    B_c, num_warps, num_stages = tiles or best_tiles(Q, V, B_r, looked_up)
    longest = room if left is None else min(room, left + N_q + right)
    tile = num_stages * B_c * (padded(Q.shape[-1]) + padded(d_v)) * Q.itemsize     # bytes of shared memory, about
    splits = splits or choose_splits(programs, triton.cdiv(longest, B_c), programs_at_a_time(Q, num_warps, tile))
    options = {"scale": scale, "causal": causal, "left": left, "right": right, "added": added, "splits": splits,
               "all_rows": L.numel()}
    arguments = shared_arguments(Q, K, V, options) | of_cache(K, lengths, block_table) | {"N_k": room}
    arguments |= {"B_r": B_r, "B_c": B_c, "num_warps": num_warps, "num_stages": num_stages}
    if splits == 1:
        return [(decode_kernel, (programs,), arguments | {"O": O, "L": L})]
    O_split, L_split = (plans.temporary(torch.empty, splits, *T.shape, dtype=torch.float32, device=Q.device)
                        for T in (O, L))
    merge = {"O_split": O_split, "L_split": L_split, "O": O, "L": L, "all_rows": L.numel(), "splits": splits,
             "d_v": d_v, "B_s": MERGED, "B_dv": padded(d_v)}
    return [(decode_kernel, (programs * splits,), arguments | {"O": O_split, "L": L_split}),
            (merge_kernel, (L.numel(),), merge)]


def best_tiles(Q, V, B_r, looked_up=False):
    """(B_c, num_warps, num_stages): 32 KiB of K and V a stage.

    On a Hopper, one program an SM with four stages reads a full card's caches fastest (results/decode_h200.json,
    "sweep"); elsewhere there is room for two. Four stages took up to a quarter longer where programs look up each
    tile's page and are fewer than SMs ("four stages" there).
    """
    wide = max(Q.shape[-1], V.shape[-1])
    if Q.dtype == torch.float32:
        return (32, 8, 2)
    num_warps = 8 if B_r > 32 and capability(Q) != (9, 0) else 4           # four are enough for Hopper's products
    num_stages = 2 if little_shared_memory(Q) else 4 if capability(Q) == (9, 0) and not looked_up else 3
    return (128 if wide <= 64 else 64 if wide <= 128 else 32, num_warps, num_stages)


def append(K_new, V_new, K, V, lengths, block_table):
    """Write K_new and V_new into the cache behind the keys that are there; nothing is checked."""
    tensors = {"K_new": K_new, "V_new": V_new, "K": K, "V": V, "lengths": lengths, "block_table": block_table}
    if K_new.numel() > 0:
        plans.run(plans.key((append,), *tensors.values()), append_launches, tensors)


def append_launches(K_new, V_new, K, V, lengths, block_table):
    """The one launch of `append`: a program for each new key of each head."""
    B, H_kv, N_q, _ = K_new.shape
    options = {"room": K.shape[2] * (1 if block_table is None else block_table.shape[1]), "num_warps": 1}
    arguments = shared_arguments(K_new, K, V, options, K_new=K_new, V_new=V_new) | of_cache(K, lengths, block_table)
    return [(append_kernel, (B * H_kv * N_q,), only_wanted(append_kernel, arguments))]


def of_cache(K, lengths, block_table):
    """The arguments that say where the keys lie; strides of absent tensors are 0."""
    steps = (0, 0) if block_table is None else block_table.stride()
    return {"lengths": lengths, "block_table": block_table, "stride_table_b": steps[0], "stride_table_n": steps[1],
            "stride_lengths": 0 if lengths is None else lengths.stride(0), "pages": K.shape[0],
            "page_size": K.shape[2]}
