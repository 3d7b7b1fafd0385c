"""What a window and packed sequences ask of a kernel: which keys a query sees, and where a program's own sequence lies.

Packed sequences lie one after the other along N, and sequence s has the rows cu_seqlens[s] to cu_seqlens[s + 1]. The
grid has slots for blocks of B rows: those of sequence s begin at slot cu_seqlens[s] // B + s. That leaves each sequence
as many slots as it has blocks, or one more, wherever it begins and ends. So the number of programs follows from the
sizes of tensors alone, and the host need not wait for the GPU to learn how long the longest sequence is.
"""

import triton
import triton.language as tl

# What a call has that asks for none of the options: absent from the compiled kernel
ORDINARY = {"left": None, "right": None, "cu_seqlens_q": None, "cu_seqlens_k": None, "batch": None, "dropout_p": 0.0,
            "seed": None}


def slots(N, B, batch):
    """How many programs walk N rows in blocks of B: ceil(N / B), or with packed sequences the slots of them all.

    The rows after the last sequence, if there are any, count as one more: they see no key, and no query sees them.
    """
    return triton.cdiv(N, B) if batch is None else N // B + batch + 1


@triton.jit
def visible(queries, keys, N_q, N_k, causal: tl.constexpr, left, right):
    """Whether each query sees each key. The last query stands at the last key."""
    if left is not None:
        place = queries + (N_k - N_q)
        seen = (keys >= place - left) & (keys <= place + right) & (keys < N_k)
    elif causal:
        seen = keys <= queries + (N_k - N_q)
    else:
        seen = keys < N_k
    return seen


@triton.jit
def key_blocks_seen(i, B_r, B_c, N_q, N_k, causal: tl.constexpr, left, right):
    """The key blocks that query block i sees, as range takes them: its first row's first key to its last row's last."""
    start, end = 0, N_k
    if causal:
        end = tl.minimum(N_q, (i + 1) * B_r) + N_k - N_q
    if left is not None:
        start = tl.maximum(0, i * B_r + N_k - N_q - left)
        end = tl.minimum(N_k, tl.minimum(N_q, (i + 1) * B_r) + N_k - N_q + right)
    return start // B_c, tl.cdiv(end, B_c)


@triton.jit
def query_blocks_that_see(j, B_r, B_c, N_q, N_k, causal: tl.constexpr, left, right):
    """The first query block that sees key block j, and how many do."""
    start, end = 0, N_q
    if causal:
        start = tl.maximum(0, j * B_c + N_q - N_k)
    if left is not None:
        start = tl.maximum(0, j * B_c + N_q - N_k - right)
        end = tl.minimum(N_q, tl.minimum(N_k, (j + 1) * B_c) + N_q - N_k + left)
    first = start // B_r
    return first, tl.maximum(0, tl.cdiv(end, B_r) - first)


@triton.jit
def output_rows(head, rows, H, N, batch):
    """Where rows lie in a contiguous output: (B, H, N, d), or (N, H, d) with packed sequences."""
    return head * N + rows if batch is None else rows * H + head


@triton.jit
def sequence_at(slot, cu_seqlens, other_cu_seqlens, batch, N, other_N, B):
    """The sequence that owns the block of B rows at a slot, its rows, and its rows in the other tensor (keys for
    queries, queries for keys).

    Returns (block, start, length, other_start, other_length), other_length 0 where the slot has no rows. Without packed
    sequences they are the whole. No cu_seqlens, however wrong, leads outside of N and other_N rows.
    """
    if batch is None:
        found = slot, 0, N, 0, other_N
    else:
        s = -1
        for first in range(0, batch + 1, 128):         # count the sequences that begin at this slot or before it
            n = first + tl.arange(0, 128)
            begins = tl.load(cu_seqlens + n, mask=n <= batch, other=0) // B + n
            s += tl.sum(((begins <= slot) & (n <= batch)).to(tl.int32), 0)
        s = tl.maximum(s, 0)
        start, stop = bounds(s, cu_seqlens, batch, N)
        other_start, other_stop = bounds(s, other_cu_seqlens, batch, other_N)
        block = tl.maximum(slot - (start // B + s), 0)
        nothing = (s == batch) | (block * B >= stop - start)
        other_length = tl.where(nothing, 0, other_stop - other_start)
        found = block, start.to(tl.int64), stop - start, other_start.to(tl.int64), other_length
    return found


@triton.jit
def rows_of_part(at, cu_seqlens, batch, N, B):
    """Where a part of a slot begins among the N rows, and where its sequence ends. at: its place, slots end to end."""
    block, start, length, _, _ = sequence_at(at // B, cu_seqlens, cu_seqlens, batch, N, N, B)
    return start + block * B + at % B, start + length


@triton.jit
def bounds(s, cu_seqlens, batch, N):
    """Where sequence s begins and ends. After the last one comes what is left of the N rows."""
    start = tl.minimum(tl.maximum(tl.load(cu_seqlens + s, mask=s <= batch, other=N), 0), N)
    stop = tl.minimum(tl.load(cu_seqlens + s + 1, mask=s < batch, other=N), N)
    return start, tl.maximum(start, stop)
