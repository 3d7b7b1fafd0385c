# kind: one mistake
# what: start is multiplied by the stride that already has the step in it
# shows: offset wherever a start > 0 meets a step > 1 (and stride != 0)
"""ex09_view_strides · strides of a view"""


def view(shape, strides, offset, order, starts, steps):
    """(shape, strides, offset) of the permuted and sliced view."""
    out_shape, out_strides = (), ()
    for old, start, step in zip(order, starts, steps):
        out_shape += ((shape[old] - start + step - 1) // step,)
        out_strides += (strides[old] * step,)
    for start, stride in zip(starts, out_strides):
        offset += start * stride
    return out_shape, out_strides, offset
