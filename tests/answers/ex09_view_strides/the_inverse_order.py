# kind: one mistake
# what: order is read the other way round: as where each old dimension goes
# shows: three dimensions and more with a cyclic order, (1, 2, 0): swaps are their own inverse and come out right
"""ex09_view_strides · strides of a view"""


def view(shape, strides, offset, order, starts, steps):
    """(shape, strides, offset) of the permuted and sliced view."""
    dims = len(shape)
    sizes, jumps = [0] * dims, [0] * dims
    for old, new in enumerate(order):
        sizes[new], jumps[new] = shape[old], strides[old]
    first = offset + sum(start * jump for start, jump in zip(starts, jumps))
    sizes = [-(-(size - start) // step) for size, start, step in zip(sizes, starts, steps)]
    return tuple(sizes), tuple(jump * step for jump, step in zip(jumps, steps)), first
