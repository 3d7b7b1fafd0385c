# kind: one mistake
# what: the offset adds starts[n] times the OLD dimension n's stride (before the permutation); starts belong to the new dimensions
# shows: an order that moves something and a start > 0: (3, 4) with strides (4, 1), transposed, [1::2, 0::1] has offset 1, this says 4
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


def view(shape, strides, offset, order, starts, steps):
    """(shape, strides, offset) of the permuted and sliced view."""
    # the first element of the view
    start_at = offset
    for n in range(len(starts)):
        start_at = start_at + starts[n] * strides[n]
    # permute
    shape = tuple(map(shape.__getitem__, order))
    strides = tuple(map(strides.__getitem__, order))
    # slice
    shape = tuple(1 + (shape[n] - 1 - starts[n]) // steps[n] for n in range(len(shape)))
    strides = tuple(strides[n] * steps[n] for n in range(len(strides)))
    return shape, strides, start_at
