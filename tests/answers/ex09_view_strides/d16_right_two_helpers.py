# kind: right
# what: two small functions, permute and slice_dim, one dimension after the other
# shows: len(range(start, size, step)) is the number of elements a slice keeps; any number of dimensions
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


def permute(shape, strides, order):
    return [shape[n] for n in order], [strides[n] for n in order]


def slice_dim(shape, strides, offset, dim, start, step):
    """T[..., start::step, ...] in dimension dim, in place on the lists."""
    offset += start * strides[dim]
    shape[dim] = len(range(start, shape[dim], step))
    strides[dim] *= step
    return offset


def view(shape, strides, offset, order, starts, steps):
    """(shape, strides, offset) of the permuted and sliced view."""
    shape, strides = permute(shape, strides, order)
    for dim, (start, step) in enumerate(zip(starts, steps)):
        offset = slice_dim(shape, strides, offset, dim, start, step)
    return tuple(shape), tuple(strides), offset
