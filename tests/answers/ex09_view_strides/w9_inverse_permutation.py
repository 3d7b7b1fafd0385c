# kind: one mistake
# what: reads order the other way round: puts old dimension n at place order[n]; it should be new dimension n = old dimension order[n]
# shows: three dimensions or more with an order that is not its own inverse, such as (1, 2, 0)
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
    size = [0] * len(shape)
    stride = [0] * len(shape)
    for n, target in enumerate(order):
        size[target] = shape[n]
        stride[target] = strides[n]

    # slice, in the new order of the dimensions
    for n in range(len(size)):
        offset += starts[n] * stride[n]
        size[n] = (size[n] - starts[n] + steps[n] - 1) // steps[n]
        stride[n] *= steps[n]
    return tuple(size), tuple(stride), offset
