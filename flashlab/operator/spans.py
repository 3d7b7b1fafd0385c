"""Which rows a tile of a Hopper kernel has and which keys these see: in a batch or among packed sequences, causal or in a window.

What Triton compiles from flashlab/operator/sequences.py stands here once more in Gluon, whose kernels cannot call Triton's, with two
additions. A small kernel first writes down where the blocks of all sequences lie, in line and none of them empty, so that a warp
finds out by one read. And TMA stops at the end of a sequence, as it stops at the end of a tensor, though neighbours lie behind it:
reads give zeros, writes are left out.

For that a descriptor numbers the rows by three coordinates, whose sum wraps around the end of the 64-bit addresses:

    coordinate           BEYOND          start + N    head         BEYOND - N + row    column
    times                2^34 - apart    apart        as always    apart               1          elements; apart: from row to row
    sum of the row's     BEYOND · 2^34 + (start + row) · apart, where BEYOND · 2^34 elements are 0 modulo 2^64 bytes

The fourth reaches its size, BEYOND, where row reaches N, and TMA takes that for the end. (As triton/tools/ragged_tma.py does.)
"""

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from flashlab.kernels.launch import descriptor, lawful_strides
from flashlab.kernels.plans import temporary
from flashlab.operator.sequences import bounds, slots

BEYOND = gl.constexpr(2**30)                           # more rows than any tensor has


@gluon.jit
def place(tile, sizes, B_r: gl.constexpr):
    """Which query block of which head? `together` heads at a time; of these the last blocks first: causal ones see most keys.

    head << 32 | i, so that one number tells all; -1 where no tile is left. i counts the table's blocks where sequences are packed
    """
    N_q, N_k, H_q, sharing, together, tiles, left, right, table = sizes
    T_r = (N_q + B_r - 1) // B_r if table is None else tiles // H_q
    group = tile // (together * T_r)
    rest = tile - group * together * T_r
    row = rest // together
    head = group * together + rest - row * together
    return gl.where(tile < tiles, gl.cast(head, gl.int64) << 32 | (T_r - 1 - row), -1)


@gluon.jit
def rows_in_table(table, at):
    """(block, start, N, other_start, other_N, sequence) of a block in the table: see `table_of_blocks`."""
    row = table + 1 + at * 6
    return gl.load(row), gl.load(row + 1), gl.load(row + 2), gl.load(row + 3), gl.load(row + 4), gl.load(row + 5)


@gluon.jit
def rows_of(tile, sizes):
    """(block, start_q, N_q, start_k, N_k) of what `place` has found: its block of a sequence, and that sequence's own sizes."""
    N_q, N_k, H_q, sharing, together, tiles, left, right, table = sizes
    at = gl.cast(gl.maximum(tile, 0) & 0xFFFFFFFF, gl.int32)                       # -1: no tile is left, and the rows are anyone's
    if table is None:
        return at, 0, N_q, 0, N_k
    else:
        i, start_q, n_q, start_k, n_k, sequence = rows_in_table(table, at)
        return i, start_q, n_q, start_k, n_k


@gluon.jit
def announce(ticket, board, turn, sizes, B_r: gl.constexpr):
    """The producer: write down for the consumers which tile comes next, and its rows among packed sequences. Returns both."""
    N_q, N_k, H_q, sharing, together, tiles, left, right, table = sizes
    numbers, full, free = board
    one: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    tile = place(gl.num_programs(0) + ticket, sizes, B_r)
    rows = rows_of(tile, sizes)
    mbarrier.wait(free.index(turn & 1), ((turn >> 1) & 1) ^ 1)                     # two places: one is read while one is written
    here = (turn & 1) * 6
    numbers.index(here).store(gl.full([1], tile, gl.int64, one))
    if table is not None:
        for k in gl.static_range(5):
            numbers.index(here + 1 + k).store(gl.full([1], gl.cast(rows[k], gl.int64), gl.int64, one))
    mbarrier.arrive(full.index(turn & 1), count=1)
    return tile, rows


@gluon.jit
def announced(board, turn, sizes):
    """A consumer: the tile that comes next, and its rows."""
    N_q, N_k, H_q, sharing, together, tiles, left, right, table = sizes
    numbers, full, free = board
    one: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    mbarrier.wait(full.index(turn & 1), (turn >> 1) & 1)
    here = (turn & 1) * 6
    tile = gl.max(numbers.index(here).load(one), 0)
    if table is None:
        rows = rows_of(tile, sizes)
    else:
        rows = ()
        for k in gl.static_range(5):
            rows = rows + (gl.cast(gl.max(numbers.index(here + 1 + k).load(one), 0), gl.int32),)
    mbarrier.arrive(free.index(turn & 1), count=1)
    return tile, rows


@gluon.jit
def within(start, N, head, row):
    """The coordinates of a tile of a sequence, as `tiles_of` numbers them."""
    return [BEYOND, start + N, head, BEYOND - N + row, 0]


@gluon.jit
def blocks_seen(first_row, N_q, N_k, left, right, rows: gl.constexpr, keys: gl.constexpr, causal: gl.constexpr,
                    packed: gl.constexpr):
    """The blocks of keys that some of the rows from first_row on see: the first and the end.

    At least one block, so that rows that see nothing need no way of their own; none where a packed sequence has no such rows.
    """
    first, end = 0, N_k
    if causal:
        end = gl.minimum(first_row + rows, N_q) + N_k - N_q
    if left is not None:
        first = gl.maximum(0, first_row + N_k - N_q - left) // keys
        end = gl.minimum(N_k, gl.minimum(first_row + rows, N_q) + N_k - N_q + right)
    end = (end + keys - 1) // keys
    if left is not None or packed:
        end = gl.maximum(end, first + 1)
    if packed:
        end = gl.where(first_row < N_q, end, first)
    return first, end


@gluon.jit
def whole_blocks(first_row, N_q, N_k, left, right, rows: gl.constexpr, keys: gl.constexpr, causal: gl.constexpr):
    """Those of which every row sees every key: the first and the end. There may be none, and the end before the first."""
    first, end = 0, N_k
    if causal:
        end = first_row + N_k - N_q + 1
    if left is not None:
        first = (gl.maximum(0, first_row + rows - 1 + N_k - N_q - left) + keys - 1) // keys
        end = gl.minimum(N_k, first_row + N_k - N_q + right + 1)
    return first, gl.maximum(end, 0) // keys


@gluon.jit
def only_visible(S, span, n, causal: gl.constexpr):
    """S of a span's n-th block of keys with -inf where a key is hidden or past the end."""
    first_row, first, N_q, N_k, left, right = span
    first_key = (first + n) * S.shape[1]
    keys = first_key + gl.arange(0, S.shape[1], gl.SliceLayout(0, S.type.layout))
    if causal or left is not None:
        places = first_row + N_k - N_q + gl.arange(0, S.shape[0], gl.SliceLayout(1, S.type.layout))    # of the rows, among the keys
    if left is not None:
        S = gl.where(keys[None, :] <= gl.minimum(places + right, N_k - 1)[:, None], S, float("-inf"))
        if first_key < first_row + N_k - N_q + S.shape[0] - 1 - left:              # a narrow window's other edge
            S = not_before(S, span, n, causal)
    elif causal:
        S = gl.where(keys[None, :] <= places[:, None], S, float("-inf"))
    elif first_key + S.shape[1] > N_k:                 # sequences may end with a block
        S = gl.where(keys[None, :] < N_k, S, float("-inf"))
    return S


@gluon.jit
def not_before(S, span, n, causal: gl.constexpr):
    """S of a span's n-th block of keys with -inf where a key lies before the row's window."""
    first_row, first, N_q, N_k, left, right = span
    keys = (first + n) * S.shape[1] + gl.arange(0, S.shape[1], gl.SliceLayout(0, S.type.layout))
    firsts = first_row + N_k - N_q - left + gl.arange(0, S.shape[0], gl.SliceLayout(1, S.type.layout))
    return gl.where(keys[None, :] >= firsts[:, None], S, float("-inf"))


@gluon.jit
def without_hidden(P, first_key, first_row, limits, causal: gl.constexpr):
    """Of the backward pass: P^T with 0 where a key is hidden or past the end.

    limits: row i sees keys from i + lower on, and those before i + upper
    """
    lower, upper, N_k = limits
    keys = first_key + gl.arange(0, P.shape[0], gl.SliceLayout(1, P.type.layout))
    if causal or lower is not None:
        rows = first_row + gl.arange(0, P.shape[1], gl.SliceLayout(0, P.type.layout))
    if lower is not None:
        end = gl.minimum(rows + upper, N_k)
        return gl.where((keys[:, None] >= (rows + lower)[None, :]) & (keys[:, None] < end[None, :]), P, 0.0)
    if causal:
        return gl.where(keys[:, None] < rows[None, :] + upper, P, 0.0)
    return gl.where(keys[:, None] < N_k, P, 0.0)


@gluon.jit
def rounds(j, N_q, N_k, left, right, causal: gl.constexpr, B: gl.constexpr):
    """Of the backward pass: query tiles come in rounds of B rows, for a block of B keys. Which round is the first that sees a key
    of block j, which are the first and the end of those without masks, and which the end?
    """
    end = (N_q + B - 1) // B
    if left is not None:
        first = gl.maximum(0, j * B + N_q - N_k - right) // B
        end = gl.maximum(first, (gl.minimum(N_q, gl.minimum(N_k, (j + 1) * B) + N_q - N_k + left) + B - 1) // B)
        whole_from = gl.minimum(end, (gl.maximum(0, (j + 1) * B - 1 + N_q - N_k - right) + B - 1) // B)
        whole_from = gl.where((j + 1) * B <= N_k, whole_from, end)
        whole_to = gl.maximum(whole_from, gl.minimum(end, gl.maximum(0, j * B + N_q - N_k + left + 1) // B))
        return first, whole_from, whole_to, end
    if causal:                                         # no mask: a round's first row sees the block's last key
        first = gl.maximum(0, j * B + N_q - N_k) // B
        whole_from = gl.minimum(end, (gl.maximum(0, (j + 1) * B - 1 + N_q - N_k) + B - 1) // B)
    else:                                              # no mask: all keys exist
        first = 0
        whole_from = gl.where((j + 1) * B <= N_k, 0, end)
    return first, whole_from, end, end


@gluon.jit
def first_tile(head, end, start_q, sequence, sizes, consumers: gl.constexpr, B: gl.constexpr):
    """Where a head's query tiles begin among those of all: in whole rounds, or where the sequence's slots are, see sequences.py."""
    N_q, N_k, H_kv, group, together, left, right, table, tiles_of_a_head, blocks = sizes
    if table is not None:
        return head * tiles_of_a_head + (start_q // B + sequence) * consumers
    elif left is not None:
        return head * tiles_of_a_head
    else:
        return head * end * consumers


def tiles_of(T, rows, packed, shape=None):
    """A descriptor of T (B, H, N, d) for tiles of so many rows; `packed`: one that stops at the end of a sequence, see above.

    shape: how the elements of a contiguous T are to be numbered where sequences are not packed
    """
    _, H, N, d = T.shape
    block = [1] * (3 if packed else len(shape or T.shape) - 2) + [rows, d]
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.float16 if T.dtype == torch.float16 else gl.bfloat16)
    if not packed:
        return descriptor(T, (rows, d), shape, layout=layout)
    _, next_head, apart, _ = lawful_strides(T.shape, T.stride(), T.itemsize)
    return TensorDescriptor(T, [2**30 + 1, N + 1, H, 2**30, d], [2**34 - apart, apart, next_head, apart, 1], block, layout=layout)


def table_of_blocks(cu_seqlens, other_cu_seqlens, N, other_N, B):
    """The table of the blocks of B rows of all sequences, queries or keys of N rows together, and the launch that writes it.

    int32: how many blocks there are, then for each what `rows_in_table` reads, first those of sequence 0, then of sequence 1, ...
    """
    batch = len(cu_seqlens) - 1
    blocks = slots(N, B, batch)                        # at most
    table = temporary(torch.empty, 1 + blocks * 6, dtype=torch.int32, device=cu_seqlens.device)
    arguments = {"cu_seqlens": cu_seqlens, "other_cu_seqlens": other_cu_seqlens, "table": table, "batch": batch}
    return table, (table_kernel, (blocks,), arguments | {"N": N, "other_N": other_N, "B": B, "num_warps": 1})


@triton.jit
def table_kernel(cu_seqlens, other_cu_seqlens, table, batch, N, other_N, B):
    """Write down one block of the table. The rows after the last sequence count as one more, which sees nothing."""
    at, blocks = tl.program_id(0), tl.num_programs(0)
    s, first, before = 0, 0, 0                         # the block's sequence, its first block, and how many blocks are counted
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
    s = tl.minimum(s, batch)                           # no block is left
    start, stop = bounds(s, cu_seqlens, batch, N)
    other_start, other_stop = bounds(s, other_cu_seqlens, batch, other_N)
    nothing = (at >= before) | (s == batch)
    row = table + 1 + at * 6
    tl.store(row, at - first)
    tl.store(row + 1, start)
    tl.store(row + 2, tl.where(at >= before, 0, stop - start))
    tl.store(row + 3, other_start)
    tl.store(row + 4, tl.where(nothing, 0, other_stop - other_start))
    tl.store(row + 5, s)
