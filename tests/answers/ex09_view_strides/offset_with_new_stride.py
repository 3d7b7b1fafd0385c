# kind: one mistake
# what: offset is moved by start times the new stride (already times step)
# shows: start > 0 and step > 1
"""ex09_view_strides: my answer."""

def view(shape, strides, offset, order, starts, steps):
    """(shape, strides, offset) of the permuted and sliced view."""
    new_shape, new_strides = [], []
    for n in range(len(order)):
        size = shape[order[n]]
        step = steps[n]
        new_shape.append((size - starts[n] + step - 1) // step)
        new_strides.append(strides[order[n]] * step)
        offset += starts[n] * new_strides[n]
    return tuple(new_shape), tuple(new_strides), offset
