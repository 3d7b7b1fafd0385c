# kind: two mistakes
# what: starts go with the old dimensions' strides, and the tensor's own offset is forgotten
# shows: offset: wherever order changes the strides and a start is not 0; wherever the given offset is not 0
"""ex09_view_strides · strides of a view"""


def view(shape, strides, offset, order, starts, steps):
    """(shape, strides, offset) of the permuted and sliced view."""
    offset = sum(start * stride for start, stride in zip(starts, strides))
    shape = tuple(shape[o] for o in order)
    strides = tuple(strides[o] for o in order)
    shape = tuple((n - 1 - start) // step + 1 for n, start, step in zip(shape, starts, steps))
    strides = tuple(stride * step for stride, step in zip(strides, steps))
    return shape, strides, offset
