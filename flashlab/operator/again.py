"""A call of flash_attention or flash_attention_decode like one before: nothing is checked or chosen again, and it goes straight to
its launches.

Where the work is small, the GPU waits for Python. What such a call checks, and which kernel it picks, follows from the options
and from the tensors' shapes, strides, dtypes and alignment: from the call's `signature`. But PyTorch has many who want to hear of
an operation on its way (autograd, autocast, a compiler, a profiler, torch.func, modes of every kind): with any of them listening a
call has no signature, and takes the long way.
"""

import torch
from torch.autograd import forward_ad, profiler

AT_MOST = 512                          # calls remembered
ORDINARY = {bool, int, float, str, type(None)}         # types of options: their values say all there is to say

_made: dict[tuple, tuple] = {}         # by signature: how to make the launches of its plan, and the plan


def signature(options, *tensors):
    """All that the way of a call follows from, hashable; None for a call that must be looked at. Tensors may be None."""
    types = tuple(map(type, options))                  # 1 is no True
    if torch.compiler.is_compiling() or not ORDINARY.issuperset(types) or _somebody_listens():
        return None
    gradients, parts = torch.is_grad_enabled(), [types, options]
    try:
        for T in tensors:
            if T is None:
                parts.append(None)
            elif type(T) is not torch.Tensor or gradients and T.requires_grad:
                return None
            else:
                parts += T.shape, T.stride(), T.dtype, T.device, T.data_ptr() % 16
    except (RuntimeError, NotImplementedError):        # sparse, nested, ...: refused in words on the long way
        return None
    return tuple(parts)


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


def made(call, **tensors):
    """(O, L) of the launches that a call of this signature made before; None where there was none, or it no longer counts."""
    replay, plan = _made.get(call, (None, None))
    if replay is None:
        return None
    Q, V = tensors["Q"], tensors["V"]
    B, H, N, _ = Q.shape
    O = torch.empty((B, H, N, V.shape[3]), dtype=Q.dtype, device=Q.device)
    L = torch.empty((B, H, N), dtype=torch.float32, device=Q.device)
    return (O, L) if replay(plan, tensors | {"O": O, "L": L}, Q.device) else None
