"""Checks shared by the kernels of chapters 02 and 09: an error names the argument, its value and the expectation."""

import torch
import triton

from flashlab.triton_mode import check_device, interpreted
from flashlab.validate import describe


def check_tensors(*dtypes, ndim, **tensors):
    """Raise unless all are tensors of `ndim` dimensions, alike in dtype and device, that a kernel can run on here."""
    (first, A), *_ = tensors.items()
    for name, T in tensors.items():
        if not isinstance(T, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {describe(T)}")
        if T.ndim != ndim:
            raise ValueError(f"{name} must have {ndim} dimension{'s' * (ndim > 1)}, got {describe(T)}")
        if ndim == 1 and not T.is_contiguous():
            raise ValueError(f"{name} must be contiguous, got strides {T.stride()}; this kernel takes no strides")
        if T.dtype not in dtypes:
            raise TypeError(f"{name} must be one of {', '.join(map(str, dtypes))}, got {describe(T)}")
        if (T.dtype, T.device) != (A.dtype, A.device):
            raise TypeError(f"{name} must match {first}'s dtype and device, {A.dtype} on {A.device}, "
                            f"got {describe(T)}")
        check_device(name, T)


def check_same_shape(X, Y):
    """Raise unless Y has X's shape."""
    if X.shape != Y.shape:
        raise ValueError(f"Y must have X's shape {tuple(X.shape)}, got {describe(Y)}")


def prepare_descriptors(**matrices):
    """Raise unless tensor descriptors can describe the matrices: rows without gaps, everything in whole 16 bytes."""
    for name, T in matrices.items():
        step = T.stride(0) * T.element_size()
        if T.stride(1) != 1 or step % 16 or T.data_ptr() % 16:
            raise ValueError(f"{name} must have last stride 1, and rows that start at multiples of 16 bytes, for a "
                             f"tensor descriptor; got strides {T.stride()} of {T.element_size()} bytes each, "
                             f"and a start {T.data_ptr() % 16} bytes beyond such a multiple. The kernels with "
                             "pointers take any strides")
    if not interpreted():                                  # a kernel's descriptors live in a little global memory
        device = T.device
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device=device, dtype=torch.int8))
