# kind: right
# what: a beginner's loop; the new size is the length of a range
"""ex09_view_strides · strides of a view"""


def view(shape, strides, offset, order, starts, steps):
    """(shape, strides, offset) of the permuted and sliced view."""
    new_shape = []
    new_strides = []
    first = offset
    for n in range(len(order)):
        old = order[n]
        new_shape.append(len(range(starts[n], shape[old], steps[n])))
        new_strides.append(strides[old] * steps[n])
        first += starts[n] * strides[old]
    return tuple(new_shape), tuple(new_strides), first
