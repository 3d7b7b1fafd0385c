# kind: point missed
# what: makes a tensor with as_strided, permutes and slices it, and asks it
# shows: numbers are right, but torch computed them
"""ex09_view_strides · strides of a view"""

import torch


def view(shape, strides, offset, order, starts, steps):
    """(shape, strides, offset) of the permuted and sliced view."""
    span = offset + sum((size - 1) * stride for size, stride in zip(shape, strides)) + 1
    T = torch.empty(span, device="meta").as_strided(shape, strides, offset).permute(order)
    T = T[tuple(slice(start, None, step) for start, step in zip(starts, steps))]
    return tuple(T.shape), T.stride(), T.storage_offset()
