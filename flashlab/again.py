"""A call of flash_attention like one before: nothing is checked or chosen again, and it goes straight to its launches.

Where the work is small, the GPU waits for Python. What flash_attention checks, and which kernel it picks, follows from the options
and from the tensors' shapes, strides, dtypes and alignment: from the call's `signature`. But PyTorch has many who want to hear of
an operation on its way (autograd, autocast, a compiler, a profiler, torch.func, modes of every kind): with any of them listening a
call has no signature, and takes the long way.
"""

from itertools import product

import torch
from torch.autograd import forward_ad, profiler

AT_MOST = 512                          # calls remembered
ORDINARY = set(product((bool,), (float, type(None)), (float,), (bool,), (str,), (bool, type(None))))       # types of options

_made: dict[tuple, tuple] = {}         # by signature: how to make the launches of its plan, and the plan


def signature(Q, K, V, causal, scale, dropout_p, return_lse, backend, deterministic):
    """All that the way of a call follows from, hashable; None for a call that must be looked at."""
    if torch.compiler.is_compiling() or not type(Q) is type(K) is type(V) is torch.Tensor:
        return None
    types = (type(causal), type(scale), type(dropout_p), type(return_lse), type(backend), type(deterministic))
    if types not in ORDINARY or dropout_p != 0.0 or _somebody_listens():
        return None
    if torch.is_grad_enabled() and (Q.requires_grad or K.requires_grad or V.requires_grad):
        return None
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        return (causal, scale, backend, deterministic,
                Q.shape, Q.stride(), Q.dtype, Q.device, Q.data_ptr() % 16,
                K.shape, K.stride(), K.dtype, K.device, K.data_ptr() % 16,
                V.shape, V.stride(), V.dtype, V.device, V.data_ptr() % 16)
    except (RuntimeError, NotImplementedError):        # sparse, nested, ...: refused in words on the long way
        return None


def _somebody_listens():
    """Private names of PyTorch's among these: there are no others for the same, or only slow ones."""
    return (torch._C._is_any_autocast_enabled() or torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack()
            or torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0 or profiler._is_profiler_enabled
            or torch._C._get_tracing_state())


def remember(call, replay, plan):
    """replay(plan, tensors by name, device) -> whether it made the launches of this plan, which a call of that signature made."""
    if len(_made) >= AT_MOST:
        _made.pop(next(iter(_made)), None)                                         # the oldest
    _made[call] = replay, plan


def made(call, Q, K, V):
    """(O, L) of the launches that a call of this signature made before; None where there was none, or it no longer counts."""
    replay, plan = _made.get(call, (None, None))
    if replay is None:
        return None
    B, H, N, _ = Q.shape
    O = torch.empty((B, H, N, V.shape[3]), dtype=Q.dtype, device=Q.device)
    L = torch.empty((B, H, N), dtype=torch.float32, device=Q.device)
    return (O, L) if replay(plan, {"Q": Q, "K": K, "V": V, "O": O, "L": L}, Q.device) else None
