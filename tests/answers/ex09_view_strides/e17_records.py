# kind: right
# what: each dimension a small record, permuted as a list of records, then sliced one by one with a range's length
# shows: len(range(start, size, step)) is the number of elements of a slice; the offset adds to the one that came in
"""ex09_view_strides · strides of a view

Chapter 09 · difficulty 2 of 5 · 20 minutes

Permuting and slicing move no number: they make a new shape, new strides and a new first address over the same memory.
Given those of a tensor, compute those of T.permute(order)[start_0::step_0, start_1::step_1, ...].

    shape, strides, offset    ->    shape, strides, offset of the view        tuples of whole numbers; offset in elements

    order[n]     which of the old dimensions becomes the new dimension n
    starts[n], steps[n]     of the new dimension n; 0 ≤ start < size, step ≥ 1

Element (i, j, ...) lies at offset + i · strides[0] + j · strides[1] + ... Example: a (3, 4) matrix with strides (4, 1),
transposed, then [1::2, 0::1], has shape (2, 3), strides (2, 4), offset 1.

Not allowed: asking a tensor (torch), the finished function from flashlab or solutions/.

Hint: where does the first element of the view lie? And how far is it from there to the next one along each dimension?
"""

from typing import NamedTuple


class Axis(NamedTuple):
    size: int
    stride: int


def _slice(axis: Axis, start: int, step: int) -> Axis:
    return Axis(size=len(range(start, axis.size, step)), stride=axis.stride * step)


def view(shape, strides, offset, order, starts, steps):
    """(shape, strides, offset) of the permuted and sliced view."""
    old = [Axis(size, stride) for size, stride in zip(shape, strides)]
    permuted = [old[n] for n in order]
    for axis, start in zip(permuted, starts):
        offset += axis.stride * start
    new = [_slice(*args) for args in zip(permuted, starts, steps)]
    return tuple(a.size for a in new), tuple(a.stride for a in new), offset
