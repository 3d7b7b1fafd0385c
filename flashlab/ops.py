"""The counting rules of the memory model: the traffic and FLOPs of one PyTorch operation as a kernel of its own.

Reads   each distinct operand once. A dimension of stride 0, as in an expanded tensor, counts once. A table that an
        operation picks elements from counts by what is picked, `A[[0, 2]]` and an embedding, beside the indices.
Writes  its results. An operation in place also reads its target, except copy_, fill_, zero_, random fills and out=.
        `A[[0, 2]] = x`, index_add_ and scatter_ count by the elements that they reach.
Free    views, memory that is only allocated, and copying a tensor onto itself: `A[0:8] += 1` ends with such a copy.
FLOPs   2·m·n·k for a product of matrices, or of a matrix and a vector. Everything else counts one per element, even an
        operation with products inside, such as a convolution.
"""

import math
from functools import cache

import torch

_OVERWRITES = {"copy_", "fill_", "zero_", "uniform_", "normal_", "bernoulli_", "random_", "exponential_"}
_NO_ARITHMETIC = {"clone", "copy_", "_to_copy", "cat", "stack", "fill_", "zero_", "zeros", "ones", "full", "arange"}
_GATHERS = {"index", "index_select", "gather", "take", "embedding", "masked_select"}
_SCATTERS = {"index_put_", "_index_put_impl_", "index_add_", "index_copy_", "index_fill_", "scatter_", "scatter_add_",
             "scatter_reduce_", "put_"}
_MATMULS = {"mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot"}


class Operation:
    """One of PyTorch's operations, such as add_: the memory that a call reads and writes, and its FLOPs."""

    def __init__(self, func):
        self.name = func._schema.name.removeprefix("aten::")
        self.known = func.namespace == "aten"                # PyTorch's own: its schema says what it reads and writes
        self.makes_a_number = self.name in ("scalar_tensor", "lift_fresh")    # from a Python number or a list of them
        self.allocates = "empty" in self.name or self.makes_a_number
        self.reads_shapes = self.name.startswith("new_") or self.name.endswith("_like") or self.makes_a_number
        self.overwrites = self.name in _OVERWRITES or "out" in func._overloadname
        self.writes_to = [(n, argument.name) for n, argument in enumerate(func._schema.arguments)
                          if argument.alias_info is not None and argument.alias_info.is_write]
        view = func.is_view or torch.Tag.inplace_view in func.tags
        self.free = view and not self.makes_a_number or func.namespace == "profiler"

    def operands(self, args, kwargs):
        """The tensors whose elements a call reads or writes: zeros_like and its kind only look at a shape."""
        return [] if self.reads_shapes else tensors((*args, *kwargs.values()))

    def targets(self, args, kwargs):
        """The operands that a call writes to."""
        return tensors(args[n] if n < len(args) else kwargs.get(name) for n, name in self.writes_to)

    def moved(self, args, operands, results, targets):
        """(tensors read, tensors written) by a call. results: the new ones."""
        if self.allocates:
            return [], []
        if self.name in _GATHERS:
            return [*results, *operands[1:]], results
        if self.name in _SCATTERS:
            reached = _reached(self.name, args)
            adds = "add" in self.name or "reduce" in self.name or args[-1] is True
            return [*operands[1:], *[reached] * adds], [reached]
        overwritten = {id(T) for T in targets} if self.overwrites else ()
        distinct = {_elements(T): T for T in operands if id(T) not in overwritten}
        return list(distinct.values()), [*results, *targets]

    def flops(self, args, operands, results):
        """(of matrix products, of anything else)."""
        if self.allocates or self.name.removeprefix("new_") in _NO_ARITHMETIC:
            return 0, 0
        if self.name.removesuffix("_") in _MATMULS:          # mm_ has the arithmetic of mm
            A, B = tensors(args)[-2:]                        # addmm's bias comes first, out= is a keyword
            return 2 * A.numel() * (B.shape[-1] if B.ndim > 1 else 1), 0
        return 0, max([T.numel() for T in (*results, *operands)], default=0)    # a reduction counts its input


operation = cache(Operation)


def _reached(name, args):
    """A tensor without memory, of as many elements as a scattering operation reaches in its target."""
    T, (where, index, *_) = args[0], (*args[1:], None)
    if "index_put" in name:                                  # T[where] = ...
        count = T[tuple(slice(None) if one is None else one for one in where)].numel()
    elif name.startswith("index"):                           # rows, say: (dimension, their numbers)
        count = T.numel() // T.shape[where] * index.numel()
    else:
        count = (index if name.startswith("scatter") else where).numel()
    return torch.empty(count, dtype=T.dtype, device="meta")


def key(T):
    """The storage that a tensor lies in: views share it."""
    return T.untyped_storage()._cdata


def same_elements(A, B):
    """True if they are views of the same elements in the same order."""
    return _elements(A) == _elements(B)


def _elements(T):
    return key(T), T.storage_offset(), T.shape, T.stride(), T.dtype


def nbytes(T):
    """Bytes of T's distinct elements: a dimension of stride 0 repeats the same ones."""
    sizes = [size for size, step in zip(T.shape, T.stride(), strict=True) if step or not size]
    return T.element_size() * math.prod(sizes)


def what(T):
    """(64, 64) float32"""
    return f"{tuple(T.shape)} {str(T.dtype).removeprefix('torch.')}"


def tensors(values):
    """The tensors among values, and in the lists among them."""
    parts = [tensors(value) if isinstance(value, (list, tuple)) else [value] for value in values]
    return [one for part in parts for one in part if isinstance(one, torch.Tensor)]
