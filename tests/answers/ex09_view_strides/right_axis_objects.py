# kind: right
# what: one small object per dimension, permuted and sliced one by one
# shows: all contracts kept; size is rounded up after the start is taken off, any number of dimensions, no torch
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

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Axis:
    """One dimension of a strided array."""

    size: int
    stride: int

    def sliced(self, start: int, step: int) -> "Axis":
        return replace(self, size=self.count(start, step), stride=self.stride * step)

    def count(self, start: int, step: int) -> int:
        return len(range(start, self.size, step))

    def address_of(self, index: int) -> int:
        return index * self.stride


@dataclass(frozen=True)
class Layout:
    """Where the numbers lie."""

    axes: tuple
    offset: int

    def permuted(self, order) -> "Layout":
        return Layout(tuple(self.axes[old] for old in order), self.offset)

    def sliced(self, starts, steps) -> "Layout":
        axes, offset = [], self.offset
        for axis, start, step in zip(self.axes, starts, steps):
            axes.append(axis.sliced(start, step))
            offset += axis.address_of(start)
        return Layout(tuple(axes), offset)

    def as_tuples(self):
        return tuple(axis.size for axis in self.axes), tuple(axis.stride for axis in self.axes), self.offset


def view(shape, strides, offset, order, starts, steps):
    """(shape, strides, offset) of the permuted and sliced view."""
    layout = Layout(tuple(Axis(size, stride) for size, stride in zip(shape, strides)), offset)
    return layout.permuted(order).sliced(starts, steps).as_tuples()
