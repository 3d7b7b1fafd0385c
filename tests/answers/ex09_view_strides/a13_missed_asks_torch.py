# kind: point missed
# what: a torch tensor is laid over some storage with as_strided, permuted, sliced, and asked for its shape, strides and offset: just what is not allowed
# shows: every input gives the right numbers, but torch worked them out; the stub says "Not allowed: asking a tensor (torch)"
"""ex09_view_strides · strides of a view

Chapter 09 · difficulty 2 of 5 · 20 minutes

Permuting and slicing move no number: they make a new shape, new strides and a new first address over the same memory.
Given those of a tensor, compute those of T.permute(order)[start_0::step_0, start_1::step_1, ...].

    shape, strides, offset    ->    shape, strides, offset of the view        tuples of whole numbers; offset in elements

    order[n]     which of the old dimensions becomes the new dimension n
    starts[n], steps[n]     of the new dimension n; 0 ≤ start < size, step ≥ 1

Element (i, j, ...) lies at offset + i · strides[0] + j · strides[1] + ... Example: a (3, 4) matrix with strides (4, 1),
transposed, then [1::2, 0::1], has shape (2, 3), strides (2, 4), offset 1.

Not allowed: asking a tensor (torch), the finished function from flashlab or solutions/.

Hint: where does the first element of the view lie? And how far is it from there to the next one along each dimension?
"""

import torch


def view(shape, strides, offset, order, starts, steps):
    """(shape, strides, offset) of the permuted and sliced view."""
    room = offset + 1 + sum((n - 1) * stride for n, stride in zip(shape, strides))
    T = torch.empty(room, dtype=torch.int8).as_strided(tuple(shape), tuple(strides), offset)
    T = T.permute(order)[tuple(slice(start, None, step) for start, step in zip(starts, steps))]
    return tuple(T.shape), T.stride(), T.storage_offset()
