"""What one PyTorch operation moves and computes if it is a kernel of its own: the counting rules of the memory model.

An operation reads each of its distinct operands once and writes its results. In place it reads and writes its target; copy_,
fill_, zero_ and random fills only write it, as out= does; zeros, full, arange and their kind write. Views move nothing, nor does
memory that is only allocated, nor a tensor copied onto itself: what `A[0:8] += 1` ends with. A dimension of stride 0 (an expanded
tensor) counts once. Arithmetic: 2·m·n·k of a matrix product, that of a matrix with a vector included; of anything else one per
element, also of an operation that has products inside, such as a convolution.
"""

from functools import cache
from typing import NamedTuple

import torch
from torch.overrides import TorchFunctionMode

_MAKES_A_NUMBER = {"scalar_tensor", "lift_fresh"}            # a Python number, or a list of them, becomes a tensor
_ALLOCATES_ONLY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"} | _MAKES_A_NUMBER
_READS_NO_OPERAND = {"zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like",
                     "new_zeros", "new_ones", "new_full", "empty_like", "new_empty", "new_empty_strided"}
_OVERWRITES_TARGET = {"copy_", "fill_", "zero_", "uniform_", "normal_", "bernoulli_", "random_", "exponential_"}
_NO_ARITHMETIC = {"clone", "copy_", "_to_copy", "cat", "stack", "fill_", "zero_", "zeros", "ones", "full", "arange"}
_MATMULS = {"mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot"}


class Rules(NamedTuple):
    """What is the same for all calls of an operation."""

    name: str                  # "add_"
    known: bool                # one of PyTorch's own, whose schema says what it reads and writes
    silent: bool               # the profiler's: touches no tensor
    view: bool                 # moves nothing
    allocates_only: bool
    makes_a_number: bool
    reads_operands: bool       # else it only looks at their sizes
    overwrites: bool           # does not read its targets
    targets: tuple             # (position, name) of the arguments it writes to
    is_matmul: bool
    computes: bool


@cache
def rules(func):
    schema, space = func._schema, func.namespace
    name = schema.name.removeprefix("aten::")
    plain = name.removesuffix("_")                               # mm_ has the arithmetic of mm
    targets = tuple((n, a.name) for n, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write)
    return Rules(
        name=name,
        known=space == "aten",
        silent=space == "profiler",
        view=(func.is_view or torch.Tag.inplace_view in func.tags and name != "resize_") and name not in _MAKES_A_NUMBER,
        allocates_only=name in _ALLOCATES_ONLY or name == "resize_",
        makes_a_number=name in _MAKES_A_NUMBER,
        reads_operands=name not in _READS_NO_OPERAND,
        overwrites=name in _OVERWRITES_TARGET or "out" in func._overloadname,
        targets=targets,
        is_matmul=plain in _MATMULS,
        computes=name not in _NO_ARITHMETIC,
    )


def targets(known, args, kwargs):
    """The operands that a call writes to. known: its rules."""
    if not known.targets:
        return []
    return tensors(args[n] if n < len(args) else kwargs.get(name) for n, name in known.targets)


def sources(known, operands, written):
    """The distinct operands that a call reads, when `written` are its targets."""
    if not known.reads_operands or known.allocates_only:
        return []
    left_out = {id(T) for T in written} if known.overwrites else ()
    return list({_elements(T): T for T in operands if id(T) not in left_out}.values())


def flops(known, args, operands, results):
    """(of matrix products, of anything else)."""
    if known.allocates_only or not known.computes:
        return 0, 0
    if known.is_matmul:
        A, B = tensors(args)[-2:]                                # addmm's bias comes first, out= is a keyword
        return 2 * A.numel() * (B.shape[-1] if B.ndim > 1 else 1), 0
    return 0, max([T.numel() for T in (*results, *operands)], default=0)        # a reduction counts its input


def same_elements(A, B):
    """Are they views of the same elements, in the same order? A copy_ of such does nothing: `x[0:8] += 1` ends with one."""
    return _elements(A) == _elements(B)


def _elements(T):
    return key(T), T.storage_offset(), T.shape, T.stride(), T.dtype


def key(T):
    """Which storage a tensor lies in: views share it."""
    return T.untyped_storage()._cdata


def nbytes(T):
    """Bytes of T's distinct elements: a dimension of stride 0 repeats the same ones."""
    n = T.element_size()
    for size, stride in zip(T.shape, T.stride(), strict=True):
        n *= size if stride != 0 or size == 0 else 1
    return n


def is_number(T):
    """A tensor that holds one number and is no element of a larger one: it goes to a kernel by value, as an argument."""
    return T.ndim == 0 and T.untyped_storage().nbytes() <= T.element_size()


def what(T):
    """(64, 64) float32"""
    return f"{tuple(T.shape)} {str(T.dtype).removeprefix('torch.')}"


def tensors(values):
    """The tensors among values, and in the lists among them."""
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += tensors(value)
    return found


class Peeking(TorchFunctionMode):
    """Within: `check` hears of each tensor whose memory is read past PyTorch's operations, as (name of the call, 0, tensor)."""

    READ_PAST_OPERATIONS = {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__}
    READ_LISTS = {torch.tensor, torch.as_tensor}               # of tensors with one element

    def __init__(self, check):
        super().__init__()
        self.check = check

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in self.READ_PAST_OPERATIONS:
            self.check(func.__name__.strip("_"), 0, args[0])
        if func in self.READ_LISTS and args and isinstance(args[0], (list, tuple)):
            for n, T in enumerate(tensors(args[0])):
                self.check(func.__name__, n, T)
        return func(*args, **(kwargs or {}))
