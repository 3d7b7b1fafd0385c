"""What a window and packed sequences ask of a kernel: which keys a query sees, and where a program's own sequence lies.

Packed sequences lie one after the other along N, and sequence s has the rows cu_seqlens[s] to cu_seqlens[s + 1]. The grid has
slots for blocks of B rows: those of sequence s begin at slot cu_seqlens[s] // B + s. That leaves each sequence as many slots as it
has blocks, or one more, wherever it begins and ends. So the number of programs follows from the sizes of tensors alone, and the
host need not wait for the GPU to learn how long the longest sequence is.
"""

import triton
import triton.language as tl

# What a call has that asks for neither: absent from the compiled kernel
ORDINARY = {"left": None, "right": None, "cu_seqlens_q": None, "cu_seqlens_k": None, "batch": None}


def slots(N, B, batch):
    """How many programs walk N rows in blocks of B: ceil(N / B), or with packed sequences the slots of them all.

    The rows after the last sequence, if there are any, count as one more: they see no key, and no query sees them.
    """
    return triton.cdiv(N, B) if batch is None else N // B + batch + 1


@triton.jit
def in_window(queries, keys, shift, left, right):
    """Whether each query sees each key. shift = N_k - N_q lines the last query up with the last key."""
    return (keys >= queries + (shift - left)) & (keys <= queries + (shift + right))


@triton.jit
def sequence_at(slot, cu_seqlens, other_cu_seqlens, batch, N, other_N, B):
    """The sequence whose block of B rows stands at a slot, and its rows in the other tensor: keys for queries, queries for keys.

    Returns (block, start, length, other_start, other_length), other_length 0 where the slot has no rows. No cu_seqlens, however
    wrong, leads outside of N and other_N rows.
    """
    s = -1
    for first in range(0, batch + 1, 128):             # count the sequences that begin at this slot or before it
        n = first + tl.arange(0, 128)
        begins = tl.load(cu_seqlens + n, mask=n <= batch, other=0) // B + n
        s += tl.sum(((begins <= slot) & (n <= batch)).to(tl.int32), 0)
    s = tl.maximum(s, 0)
    start, stop = bounds(s, cu_seqlens, batch, N)
    other_start, other_stop = bounds(s, other_cu_seqlens, batch, other_N)
    block = tl.maximum(slot - (start // B + s), 0)
    nothing = (s == batch) | (block * B >= stop - start)
    other_length = tl.where(nothing, 0, other_stop - other_start)
    return block, start.to(tl.int64), stop - start, other_start.to(tl.int64), other_length


@triton.jit
def bounds(s, cu_seqlens, batch, N):
    """Where sequence s begins and ends. After the last one comes what is left of the N rows."""
    start = tl.minimum(tl.maximum(tl.load(cu_seqlens + s), 0), N)
    stop = tl.minimum(tl.load(cu_seqlens + s + 1, mask=s < batch, other=N), N)
    return start, tl.maximum(start, stop)
