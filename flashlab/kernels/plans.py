"""One cache for calls that are made again: where the work is small, the GPU waits for Python.

The first call of its kind is checked, a kernel is chosen, tile sizes, descriptors and grids are worked out. All of that
follows from the options and from the tensors' shapes, strides, dtypes and alignment, not from their numbers: these are
the key of the call. A Plan keeps its launches. The next call with that key makes the same ones on its own tensors.
"""

import contextlib
import threading
from typing import NamedTuple

import torch

from flashlab import torch_internals
from flashlab.kernels import driver
from flashlab.triton_mode import import_triton, interpreted

triton = import_triton()
RUN = triton and triton.JITFunction.run                # compiler/watch.py replaces it, to hear of every launch
AT_MOST = 512                                          # plans kept
ORDINARY = {bool, int, float, str, type(None)}         # options of these types are equal only if they mean the same
INTERPRETER = threading.RLock()                        # the interpreter patches Triton's language while a kernel runs


class Plan(NamedTuple):
    """The launches of a call, to be made again."""

    steps: list                    # driver.Packed; None stands for launches that cannot be made again
    made: dict                     # name: (function, sizes, dtype) of each tensor that a call makes anew
    lock: object                   # held while the steps have the addresses of one call


class _UnderWay(threading.local):
    plan = given = None            # of the call under way in this thread: its plan, its tensors by name


_plans: dict[tuple, Plan] = {}
_noting = _UnderWay()


def key(options, *tensors):
    """The cache key of a call: the options, and of each tensor (or None) everything but its numbers."""
    return (*options, *((T.shape, T.stride(), T.dtype, T.device, T.data_ptr() % 16) if T is not None else None
                        for T in tensors))


def key_of_call(options, *tensors):
    """The cache key of a call of the operator as its caller made it; None if PyTorch must see the call."""
    types = tuple(map(type, options))                  # 1 is not True
    if torch.compiler.is_compiling() or not ORDINARY.issuperset(types) or torch_internals.observed():
        return None
    if any(T is not None and type(T) is not torch.Tensor for T in tensors):
        return None
    try:
        return key((recorded(*tensors), types, options), *tensors)
    except (RuntimeError, NotImplementedError):        # a sparse or a nested tensor: the checks refuse it in words
        return None


def recorded(*tensors):
    """Whether a call with these tensors, which may be None, is to have gradients."""
    return torch.is_grad_enabled() and any(T is not None and T.requires_grad for T in tensors)


def call(key, results, tensors, function, *arguments):
    """function(*arguments); from the second call with the same key on, only the launches that it made.

    results: the names of the tensors that function returns
    tensors: by name, those that the call is given. The others in its launches are new in each call
    """
    if key is None or _noting.plan is not None:        # within another call, whose plan has these launches as well
        return function(*arguments)
    plan = _plans.get(key)
    if plan and triton.JITFunction.run is RUN:
        return replay(plan, results, tensors)
    plan = _noting.plan = Plan([], {}, threading.Lock())
    _noting.given = tensors
    try:
        found = function(*arguments)
    finally:
        _noting.plan = _noting.given = None
    if plan.steps and None not in plan.steps:
        if len(_plans) >= AT_MOST:
            _plans.pop(next(iter(_plans)), None)       # the oldest
        _plans[key] = plan
    return found


def run(key, launches, tensors):
    """Make the launches of a kernel: launches(**tensors) -> each as (kernel, grid, arguments by name), in order.

    tensors: by name, all that they read and write except temporaries; None where a call has no such tensor
    """
    call(key, (), tensors, _first_run, launches, tensors)


def temporary(make, *shape, dtype, device):
    """A tensor that one launch fills for the next one, new in each call. make: torch.empty or torch.zeros."""
    T = make(shape, dtype=dtype, device=device)
    T.made_by = make
    return T


def forget():
    """Work everything out anew from here on: a search has found other tiles."""
    _plans.clear()


def launch(launches):
    """Launch each; returns the compiled kernels, None in place of an interpreted one."""
    with INTERPRETER if interpreted() else contextlib.nullcontext():
        return [kernel[grid](**arguments) for kernel, grid, arguments in launches]


def _first_run(launches, tensors):
    """Make the launches, and note them in the plan of the call under way."""
    plan, given = _noting.plan, _noting.given
    tensors = {name: None if T is None else T.detach() for name, T in tensors.items()}     # two objects where K is V
    device = next(iter(tensors.values())).device
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():     # where Triton launches
        launches = list(launches(**tensors))
        compiled = launch(launches)
    tensors = {name: T for name, T in tensors.items() if T is not None}
    for name, T in tensors.items():
        if name not in given:
            plan.made[name] = torch.empty_strided, (T.shape, T.stride()), T.dtype
        elif given[name] is None or given[name].data_ptr() != T.data_ptr():                # a copy of what was given
            plan.steps.append(None)
    plan.steps.append(_packed(launches, compiled, {id(T): name for name, T in tensors.items()}, plan.made))


def _packed(launches, compiled, names, made):
    """These launches with their arguments packed; None if one took a tensor that is neither named nor a temporary."""
    for _, _, arguments in launches:
        for value in arguments.values():
            T = getattr(value, "base", value)          # of a descriptor its tensor
            if id(T) not in names and hasattr(T, "made_by"):
                names[id(T)] = f"temporary {len(made)}"
                made[names[id(T)]] = T.made_by, (T.shape,), T.dtype
    with contextlib.suppress(Exception):               # the call itself has succeeded: only its plan would be missing
        return driver.Packed(launches, compiled, names)


def replay(plan, results, tensors):
    """Make the launches of a plan with these tensors."""
    device = next(iter(tensors.values())).device
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            return replay(plan, results, tensors)
    if plan.made:
        tensors = tensors | {name: make(*sizes, dtype=dtype, device=device)
                             for name, (make, sizes, dtype) in plan.made.items()}
    stream = torch_internals.current_stream(device.index) if device.type == "cuda" else None
    with plan.lock:
        for step in plan.steps:
            step.launch(tensors, stream)
    return tuple(tensors[name] for name in results)
