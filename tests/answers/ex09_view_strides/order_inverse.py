# kind: one mistake
# what: order is used the other way round: old dimension n becomes dimension order[n]
# shows: three dimensions, cyclic order
"""ex09_view_strides: my answer."""

def view(shape, strides, offset, order, starts, steps):
    """(shape, strides, offset) of the permuted and sliced view."""
    k = len(order)
    inv = [list(order).index(n) for n in range(k)]
    sh = tuple(-(-(shape[inv[n]] - starts[n]) // steps[n]) for n in range(k))
    st = tuple(strides[inv[n]] * steps[n] for n in range(k))
    return sh, st, offset + sum(starts[n] * strides[inv[n]] for n in range(k))
