# kind: right
# what: generators over zip, len(range()) for the sizes
"""ex09_view_strides: my answer."""

def view(shape, strides, offset, order, starts, steps):
    """(shape, strides, offset) of the permuted and sliced view."""
    dims = [(shape[o], strides[o], a, s) for o, a, s in zip(order, starts, steps)]
    return (tuple(len(range(a, n, s)) for n, _, a, s in dims),
            tuple(t * s for _, t, _, s in dims),
            offset + sum(a * t for _, t, a, _ in dims))
