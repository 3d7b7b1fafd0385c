"""The rows of a Hopper kernel's tiles and the keys that they see: dense or packed, causal or in a window.

sequences.py has this for Triton's kernels, which Gluon's cannot call. Here are two additions. A table: a small kernel
first lists the blocks of all packed sequences, none of them empty. A warp then finds its tile's rows with one read.

And TMA that stops at the end of a sequence, although its neighbour's rows follow: reads give zeros there, and writes
are left out. For that a descriptor numbers the rows by three coordinates, whose sum wraps around the end of the 64-bit
addresses:

    coordinate           BEYOND          start + N    head         BEYOND - N + row    column
    times                2^34 - apart    apart        as always    apart               1      (apart: elements a row)
    sum of the row's     BEYOND · 2^34 + (start + row) · apart, where BEYOND · 2^34 elements are 0 modulo 2^64 bytes

The fourth coordinate reaches its size, BEYOND, where row reaches N: for TMA the tensor ends there, as in
triton/tools/ragged_tma.py.
"""

import torch
import triton
import triton.language as tl

from flashlab.kernels.gluon_adapter import gl, jit
from flashlab.kernels.hopper_words import described, hide_future
from flashlab.kernels.launch import lawful_strides
from flashlab.kernels.plans import temporary
from flashlab.operator.sequences import bounds, slots

BEYOND = gl.constexpr(2**30)                           # more rows than any tensor has


@jit
def where_rows(b, head, row, start, N, table):
    """The TMA coordinates of a tile; with a table, of a sequence of N rows from `start` on."""
    if table is None:
        return [b, head, row, 0]
    else:
        return [BEYOND, start + N, head, BEYOND - N + row, 0]


@jit
def read_table(table, block):
    """(block, start, N, other_start, other_N, sequence): a block, its sequence's rows, its rows in the other tensor."""
    row = table + 1 + block * 6
    return gl.load(row), gl.load(row + 1), gl.load(row + 2), gl.load(row + 3), gl.load(row + 4), gl.load(row + 5)


@jit
def blocks_seen(tile, first_row, rows: gl.constexpr, sizes):
    """The blocks of keys that some of these rows see: the first and the end.

    At least one, so that rows that see no key need no path of their own; none where a packed sequence has no such rows.
    """
    first, end = 0, tile.N_k
    if sizes.left is not None:
        first = gl.maximum(0, first_row + tile.N_k - tile.N_q - sizes.left) // sizes.keys
    if sizes.causal or sizes.left is not None:         # the key after the one that the last of the rows stands at
        end = gl.minimum(first_row + rows, tile.N_q) + tile.N_k - tile.N_q
    if sizes.left is not None:
        end = gl.minimum(tile.N_k, end + sizes.right)
    end = (end + sizes.keys - 1) // sizes.keys
    if sizes.left is not None or sizes.table is not None:
        end = gl.maximum(end, first + 1)
    if sizes.table is not None:
        end = gl.where(first_row < tile.N_q, end, first)
    return first, end


@jit
def only_visible(S, task, first_key, sizes):
    """S of a block of keys, with -inf where a key is hidden or past the end."""
    N_k, place = task.tile.N_k, task.first_row + task.tile.N_k - task.tile.N_q     # the first row's, among the keys
    keys = first_key + gl.arange(0, S.shape[1], gl.SliceLayout(0, S.type.layout))
    if sizes.left is not None:
        lasts = gl.minimum(place + gl.arange(0, S.shape[0], gl.SliceLayout(1, S.type.layout)) + sizes.right, N_k - 1)
        S = gl.where(keys[None, :] <= lasts[:, None], S, float("-inf"))
        if first_key < place + S.shape[0] - 1 - sizes.left:
            S = not_before(S, task, first_key, sizes)  # a narrow window's other edge
    elif sizes.causal:
        S = hide_future(S, place, first_key)
    elif first_key + S.shape[1] > N_k:                 # sequences may end with a block
        S = gl.where(keys[None, :] < N_k, S, float("-inf"))
    return S


@jit
def not_before(S, task, first_key, sizes):
    """S of a block of keys, with -inf where a key lies before its row's window."""
    keys = first_key + gl.arange(0, S.shape[1], gl.SliceLayout(0, S.type.layout))
    place = task.first_row + task.tile.N_k - task.tile.N_q
    firsts = place - sizes.left + gl.arange(0, S.shape[0], gl.SliceLayout(1, S.type.layout))
    return gl.where(keys[None, :] >= firsts[:, None], S, float("-inf"))


@jit
def without_hidden(P, first_key, first_row, block, sizes):
    """P^T with 0 where a key is hidden or past the end."""
    keys = first_key + gl.arange(0, P.shape[0], gl.SliceLayout(1, P.type.layout))
    rows = first_row + gl.arange(0, P.shape[1], gl.SliceLayout(0, P.type.layout))
    offset = block.N_k - block.N_q                     # row i stands at key i + offset
    if sizes.left is not None:
        firsts, ends = rows + (offset - sizes.left), gl.minimum(rows + (offset + sizes.right + 1), block.N_k)
        return gl.where((keys[:, None] >= firsts[None, :]) & (keys[:, None] < ends[None, :]), P, 0.0)
    if sizes.causal:
        return gl.where(keys[:, None] < rows[None, :] + (offset + 1), P, 0.0)
    return gl.where(keys[:, None] < block.N_k, P, 0.0)


def tiles_of(T, rows, width, packed=False):
    """A TMA descriptor of T (B, H, N, d) for tiles of so many rows; packed: one that stops at a sequence's end.

    width: of a tile, at least d. TMA reads zeros past the last column, and writes nothing there
    """
    (_, H, N, d), strides = T.shape, lawful_strides(T.shape, T.stride(), T.itemsize)
    if not packed:
        return described(T, T.shape, strides, (rows, width))
    _, next_head, apart, _ = strides
    return described(T, [2**30 + 1, N + 1, H, 2**30, d], [2**34 - apart, apart, next_head, apart, 1], (rows, width))


def tiles_of_output(O, rows, width, packed=False):
    """The same of a contiguous output, its heads one below the other: no kernel divides by their number."""
    if packed:
        return tiles_of(O, rows, width, packed)
    B, H, N, d = O.shape
    return described(O, [1, B * H, N, d], [B * H * N * d, N * d, d, 1], (rows, width))


def table_of_blocks(cu_seqlens, other_cu_seqlens, N, other_N, B):
    """The table of the blocks of B rows of all sequences, and the launch that writes it. It holds, in int32, how many
    blocks there are, then what read_table returns for each, sequence after sequence."""
    batch = len(cu_seqlens) - 1
    blocks = slots(N, B, batch)                        # at most
    table = temporary(torch.empty, 1 + blocks * 6, dtype=torch.int32, device=cu_seqlens.device)
    arguments = {"cu_seqlens": cu_seqlens, "other_cu_seqlens": other_cu_seqlens, "table": table, "batch": batch}
    return table, (table_kernel, (blocks,), arguments | {"N": N, "other_N": other_N, "B": B, "num_warps": 1})


@triton.jit
def table_kernel(cu_seqlens, other_cu_seqlens, table, batch, N, other_N, B):
    """Write one row of the table. Rows after the last sequence count as one more sequence, which sees nothing."""
    at, blocks = tl.program_id(0), tl.num_programs(0)
    s, first, before = 0, 0, 0  # the block's sequence, its first block, the blocks counted so far
    for n in range(0, batch + 1, 128):
        sequences = n + tl.arange(0, 128)
        start, stop = bounds(sequences, cu_seqlens, batch, N)
        ends = before + tl.cumsum(tl.where(sequences <= batch, tl.cdiv(stop - start, B), 0), 0)
        passed = (ends <= at) & (sequences <= batch)
        s += tl.sum(passed.to(tl.int32), 0)
        first = tl.maximum(first, tl.max(tl.where(passed, ends, 0), 0))
        before = tl.max(ends, 0)
    if at == 0:
        tl.store(table, tl.minimum(before, blocks))    # more only if sequences overlap, as they must not
    s = tl.minimum(s, batch)                           # past the last block
    start, stop = bounds(s, cu_seqlens, batch, N)
    other_start, other_stop = bounds(s, other_cu_seqlens, batch, other_N)
    row = table + 1 + at * 6
    tl.store(row, at - first)
    tl.store(row + 1, start)
    tl.store(row + 2, tl.where(at >= before, 0, stop - start))
    tl.store(row + 3, other_start)
    tl.store(row + 4, tl.where((at >= before) | (s == batch), 0, other_stop - other_start))
    tl.store(row + 5, s)
