# kind: right
# what: numpy vectors: all dimensions at once, fancy indexing for the permutation, one dot product for the offset
# shows: the same integer arithmetic as the loop; .tolist() gives plain ints, and also zero dimensions work
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

import numpy as np


def view(shape, strides, offset, order, starts, steps):
    """(shape, strides, offset) of the permuted and sliced view."""
    order = np.array(order, dtype=np.int64)
    starts = np.array(starts, dtype=np.int64)
    steps = np.array(steps, dtype=np.int64)

    size = np.array(shape, dtype=np.int64)[order]
    stride = np.array(strides, dtype=np.int64)[order]

    # elements start, start + step, ... below size
    new_size = (size - 1 - starts) // steps + 1
    new_stride = stride * steps
    new_offset = offset + np.dot(starts, stride)
    return tuple(new_size.tolist()), tuple(new_stride.tolist()), int(new_offset)
