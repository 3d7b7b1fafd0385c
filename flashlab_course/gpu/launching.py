"""Checks shared by the kernels of chapters 02 and 09: an error names the argument, its value and the expectation."""

import torch
import triton

from flashlab.triton_mode import check_device, interpreted
from flashlab.validate import describe

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def check_on(name, T, *, ndim, contiguous=False, dtypes=DTYPES):
    """Raise unless T is a tensor of `ndim` dimensions that a kernel can run on here."""
    if not isinstance(T, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {describe(T)}")
    if T.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension{'s' * (ndim > 1)}, got {describe(T)}")
    if T.dtype not in dtypes:
        names = ", ".join(str(t).removeprefix("torch.") for t in dtypes)
        raise TypeError(f"{name} must be one of {names}, got {describe(T)}")
    if contiguous and not T.is_contiguous():
        raise ValueError(f"{name} must be contiguous, got strides {T.stride()}; this kernel takes no strides")
    check_device(name, T)


def check_same(name_a, A, name_b, B, shape=True):
    """Raise unless A and B agree in dtype and device, and in shape if asked."""
    for name, T in ((name_a, A), (name_b, B)):
        if not isinstance(T, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {describe(T)}")
    if (A.dtype, A.device) != (B.dtype, B.device):
        raise TypeError(f"{name_b} must match {name_a}'s dtype and device, {A.dtype} on {A.device}, got {describe(B)}")
    if shape and A.shape != B.shape:
        raise ValueError(f"{name_b} must have {name_a}'s shape {tuple(A.shape)}, got {describe(B)}")


def check_descriptor(name, T):
    """Raise unless a tensor descriptor can describe the matrix T: rows without gaps, everything in whole 16 bytes."""
    step = T.stride(0) * T.element_size()
    if T.stride(1) != 1 or step % 16 or T.data_ptr() % 16:
        raise ValueError(f"{name} must have last stride 1, and rows that start at multiples of 16 bytes, for a tensor "
                         f"descriptor; got strides {T.stride()} of {T.element_size()} bytes each. The kernels with "
                         "pointers take any strides")


def scratch_for_descriptors(device):
    """A descriptor made inside a kernel lives in a little global memory: tell Triton where to get it."""
    if not interpreted():
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device=device, dtype=torch.int8))
