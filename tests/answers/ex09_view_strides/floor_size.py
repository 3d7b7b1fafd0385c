# kind: one mistake
# what: size is (size - start) // step, floor
# shows: step does not divide
"""ex09_view_strides: my answer."""

def view(shape, strides, offset, order, starts, steps):
    """(shape, strides, offset) of the permuted and sliced view."""
    new_shape, new_strides = [], []
    for n in range(len(order)):
        size = shape[order[n]]
        step = steps[n]
        new_shape.append((size - starts[n]) // step)
        new_strides.append(strides[order[n]] * step)
        offset += starts[n] * strides[order[n]]
    return tuple(new_shape), tuple(new_strides), offset
