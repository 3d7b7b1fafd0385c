# kind: one mistake
# what: the size is what is left divided by the step, rounded down
# shows: steps that do not divide what is left: one element too few (size 4, start 1, step 2 gives 1)
"""ex09_view_strides · strides of a view"""


def view(shape, strides, offset, order, starts, steps):
    """(shape, strides, offset) of the permuted and sliced view."""
    shape = [shape[o] for o in order]
    strides = [strides[o] for o in order]
    offset = offset + sum(a * s for a, s in zip(starts, strides))
    sizes = tuple((size - a) // step for size, a, step in zip(shape, starts, steps))
    return sizes, tuple(s * step for s, step in zip(strides, steps)), offset
