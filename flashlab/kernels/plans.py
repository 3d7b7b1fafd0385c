"""One cache for calls that are made again: where the work is small, the GPU waits for Python.

The first call of its kind is checked, a kernel is chosen, tile sizes, descriptors and grids are worked out, and Triton
finds the compiled kernel that fits. All of that follows from the options and from the tensors' shapes, strides, dtypes
and alignment, not from their numbers: together they are the key of the call. A Plan keeps the launches that a key led
to, and the next call with this key makes the same launches, with its own tensors in the places of the first one's.

Launchers `run` their launches under a key. The operator `remember`s all that one call runs under a key of its own.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable
from typing import NamedTuple

import torch

from flashlab import torch_internals
from flashlab.triton_mode import import_triton, interpreted

triton = import_triton()
RUN = triton and triton.JITFunction.run                # compiler/watch.py replaces it, to hear of every launch
AT_MOST = 512                                          # keys remembered
ORDINARY = {bool, int, float, str, type(None)}         # options of these types are equal only if they mean the same
INTERPRETER = threading.RLock()                        # the interpreter patches Triton's language while a kernel runs


class Step(NamedTuple):
    """One launch."""

    run: Callable                  # Triton's compiled kernel on its grid
    values: list                   # the kernel's arguments in order, None in the places of tensors
    tensors: list                  # (place in values, name of the tensor)
    descriptors: list              # (place in values, name of the tensor that TMA copies, the rest of its descriptor)


class Plan(NamedTuple):
    """The launches of a call, to be made again."""

    steps: list
    temporaries: dict              # name: (torch.empty or torch.zeros, shape, dtype)
    outputs: dict                  # name: (shape, strides, dtype) of what the launches write and the call returns


class _Call(threading.local):
    made = None                    # within `remember`: (plan or None, tensors) of each `run` so far


_plans: dict[tuple, Plan] = {}
_call = _Call()
_numbers = itertools.count()


def temporary(make, *shape, dtype, device):
    """A tensor that one launch fills for the next one, new in each call. make: torch.empty or torch.zeros."""
    T = make(shape, dtype=dtype, device=device)
    T.made_by = make
    return T


def key(options, *tensors):
    """The cache key of launches: the options, and of each tensor, which may be None, all but its numbers."""
    return (*options, *((T.shape, T.stride(), T.dtype, T.device, T.data_ptr() % 16) if T is not None else None
                        for T in tensors))


def key_of_call(options, *tensors):
    """The cache key of a call of the operator as its caller made it; None if the call must be checked."""
    types = tuple(map(type, options))                  # 1 is not True
    if torch.compiler.is_compiling() or not ORDINARY.issuperset(types) or torch_internals.observed():
        return None
    gradients = torch.is_grad_enabled()
    for T in tensors:
        if T is not None and (type(T) is not torch.Tensor or gradients and T.requires_grad):
            return None
    try:
        return key((types, options), *tensors)
    except (RuntimeError, NotImplementedError):        # a sparse or a nested tensor: the checks refuse it in words
        return None


# ---- the cache

def run(key, launches, tensors):
    """Make the launches of a call, those of a plan if there is one for this key.

    launches: launches(**tensors) -> each launch as (kernel, grid, arguments by name), in order
    tensors:  by name, all that the launches read and write but for temporaries; None where a call has no such tensor
    """
    device = next(iter(tensors.values())).device
    plan = _known(key)
    if plan:
        replay(plan, tensors, device)
    else:
        with _current(device):
            plan = record(launches, tensors)
        _keep(key, plan)
    _note(plan, tensors)


def again(key, results, tensors):
    """The results, by name, of the launches that a call with this key made before; None if they are not known.

    tensors: by name, as `remember` was given them
    """
    plan = _known(key)
    if plan is None:
        return None
    device = tensors["Q"].device
    made = {name: torch.empty_strided(shape, strides, dtype=dtype, device=device)
            for name, (shape, strides, dtype) in plan.outputs.items()}
    tensors = tensors | made
    replay(plan, tensors, device)
    _note(plan, tensors)
    return tuple(made[name] for name in results)


def remember(key, tensors, function, *arguments):
    """function(*arguments), and from now on `again` knows the launches that it makes.

    tensors: by name, those that the call is given; the others in its launches are its outputs, new in each call
    """
    outer, _call.made = _call.made, []
    try:
        results = function(*arguments)
        made = _call.made
    finally:
        _call.made = outer
    if outer is not None:
        outer.extend(made)
    _keep(key, _together(made, tensors))
    return results


def forget():
    """Work everything out anew from here on: a search has found other tiles."""
    _plans.clear()


def _known(key):
    """The plan of a key; None if there is none, or somebody wants to hear of every launch."""
    plan = _plans.get(key)
    return plan if plan and triton.JITFunction.run is RUN else None


def _keep(key, plan):
    if plan is not None:
        if len(_plans) >= AT_MOST:
            _plans.pop(next(iter(_plans)), None)       # the oldest
        _plans[key] = plan


def _note(plan, tensors):
    if _call.made is not None:
        _call.made.append((plan, tensors))


def _together(made, given):
    """One Plan of several; None if a launch has no plan, or took a copy of a tensor that was given."""
    whole = Plan([], {}, {})
    for plan, tensors in made:
        if plan is None:
            return None
        for name, T in tensors.items():
            if T is not None and name not in given:
                whole.outputs[name] = T.shape, T.stride(), T.dtype
            elif T is not None and (given[name] is None or given[name].data_ptr() != T.data_ptr()):
                return None
        whole.steps.extend(plan.steps)
        whole.temporaries.update(plan.temporaries)
    return whole if whole.steps else None


def _current(device):
    """Makes the device the current one, on which Triton launches."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


# ---- launches

def launch(launches):
    """Launch each; the compiled kernels, None where the interpreter ran one."""
    with INTERPRETER if interpreted() else contextlib.nullcontext():
        return [kernel[grid](**arguments) for kernel, grid, arguments in launches]


def record(launches, tensors):
    """Make the launches, and return the Plan to make them again; None where there is no such plan.

    There is none where kernels are interpreted, and where a launch takes a copy of a tensor and not the tensor itself.
    """
    tensors = {name: None if T is None else T.detach() for name, T in tensors.items()}     # apart, where K is V
    names = {id(T): name for name, T in tensors.items() if T is not None}
    launches, temporaries, steps = list(launches(**tensors)), {}, []
    for (kernel, grid, arguments), compiled in zip(launches, launch(launches), strict=True):
        if compiled is None:
            return None
        step = Step(compiled[(*grid, 1, 1)[:3]], [arguments[name] for name in kernel.arg_names], [], [])
        for place, value in enumerate(step.values):
            T = getattr(value, "base", value)
            if not isinstance(T, torch.Tensor):
                continue
            if id(T) not in names and hasattr(T, "made_by"):
                names[id(T)] = f"temporary {next(_numbers)}"
                temporaries[names[id(T)]] = (T.made_by, T.shape, T.dtype)
            if id(T) not in names:
                return None
            step.values[place] = None
            if T is value:
                step.tensors.append((place, names[id(T)]))
            else:
                step.descriptors.append((place, names[id(T)], _of(None, value)))
        steps.append(step)
    return Plan(steps, temporaries, {})


def _of(T, descriptor):
    """The descriptor, of another tensor with the same key: its checks have been made."""
    other = object.__new__(type(descriptor))
    other.__dict__.update(descriptor.__dict__, base=T)
    return other


def replay(plan, tensors, device):
    """Make the launches of a plan with these tensors."""
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with _current(device):
            return replay(plan, tensors, device)
    if plan.temporaries:
        made = plan.temporaries.items()
        tensors = tensors | {name: make(shape, dtype=dtype, device=device) for name, (make, shape, dtype) in made}
    for run, values, places, descriptors in plan.steps:
        values = values.copy()
        for place, name in places:
            values[place] = tensors[name].data_ptr()   # of a tensor Triton would ask for it, and the driver, too
        for place, name, descriptor in descriptors:
            values[place] = _of(tensors[name], descriptor)
        run(*values)
