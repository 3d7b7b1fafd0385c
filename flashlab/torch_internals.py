"""The private names of PyTorch that flashlab uses, each behind a name that says its purpose.

Nothing public does the same, except at ten times the cost, and a small call waits for each microsecond of it.
tests/test_torch_internals.py names the versions of PyTorch that these names are known to work with.
"""

import contextlib

import torch
from torch._C import _TorchDispatchModeKey
from torch._functorch.utils import enable_single_level_autograd_function
from torch._subclasses.fake_tensor import is_fake
from torch.autograd import forward_ad, profiler
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

# torch.autograd.Function without its support for torch.func, which takes longer than an attention kernel: see `apply`
Function = torch.autograd.function._SingleLevelFunction
not_compiled = torch._compile._disable_dynamo          # torch.compiler.disable imports the compiler, for seconds
current_stream = torch._C._cuda_getCurrentRawStream if torch.cuda._is_compiled() else None     # of a device's index
autocast_is_on = torch._C._is_any_autocast_enabled     # for any device; torch.is_autocast_enabled asks about one

# Contexts: neither torch_function modes nor tensor subclasses see what PyTorch is asked to do; dispatch modes do not
# see PyTorch's operations.
without_torch_function = torch._C.DisableTorchFunction
without_dispatch = torch._C._DisableTorchDispatch


def observed():
    """Whether a mode, torch.func, forward-mode, a profiler or a tracer takes part in each operation."""
    return (torch._C._len_torch_dispatch_stack()
            or torch._C._len_torch_function_stack() or torch._C._are_functorch_transforms_active()
            or forward_ad._current_level >= 0 or profiler._is_profiler_enabled or torch._C._get_tracing_state())


@contextlib.contextmanager
def filled_with_nan():
    """Within, torch.empty holds NaN. torch.use_deterministic_algorithms would import the whole compiler first."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch._C._set_deterministic_algorithms(before[0], warn_only=before[1])


class DispatchMode(TorchDispatchMode):
    """A dispatch mode whose first operation does not import the compiler, which takes seconds."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False


def has_numbers(T):
    """Whether a tensor has numbers to look at: not on the meta device, nor while PyTorch traces or maps over it."""
    return not (torch.compiler.is_compiling() or T.is_meta or is_fake(T) or torch._C._functorch.is_batchedtensor(T)
                or torch._C._get_dispatch_mode(_TorchDispatchModeKey.PROXY))


def has_tangent(*tensors):
    """Whether forward-mode differentiation is under way in one of these tensors, which may be None."""
    return forward_ad._current_level >= 0 and any(T is not None and forward_ad.unpack_dual(T).tangent is not None
                                                  for T in tensors)


def apply(function, *arguments):
    """function.apply inside an operator's autograd kernel, which torch.func calls once for each of its levels."""
    if not torch._C._are_functorch_transforms_active():
        return function.apply(*arguments)
    with enable_single_level_autograd_function():
        return function.apply(*arguments)


def below_autograd():
    """For an operator's autograd kernel: calls inside go to the kernel below, and to torch.func's outer levels."""
    below = torch._C._AutoDispatchBelowAutograd()
    return _with_gradients(below) if torch._C._are_functorch_transforms_active() else below


@contextlib.contextmanager
def _with_gradients(below):
    """Function.apply turns gradients off while it runs forward(): torch.func's outer levels want them."""
    with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True), below:
        yield


@contextlib.contextmanager
def without_modes():
    """Within: no mode hears of the operations. A Memory does not count them."""
    with _disable_current_modes(), without_torch_function():
        yield
