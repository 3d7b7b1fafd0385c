"""Launches that are worked out once and made again: where the work is small, the GPU waits for Python.

The first call of its kind works out tile sizes, strides, descriptors and grids, and Triton finds the compiled kernel that fits
them. All of that follows from the options and from the tensors' shapes, strides, dtypes and alignment, not from their numbers. So
the next call of the same kind makes the same launches, with its own tensors in the places of the first one's.
"""

import contextlib
import threading
from collections.abc import Callable
from typing import NamedTuple

import torch
import triton

from flashlab.triton_mode import interpreted

RUN = triton.JITFunction.run       # who has put another in its place wants to hear of every launch: see compiler/watch.py
AT_MOST = 512                      # kinds of calls remembered
INTERPRETER = threading.RLock()    # while it runs a kernel, it has put functions of its own in Triton's language: one at a time


class Step(NamedTuple):
    """One launch."""

    run: Callable                  # Triton's compiled kernel on its grid
    values: list                   # the kernel's arguments in order, None in the places of tensors
    tensors: list                  # (place in values, name of the tensor)
    descriptors: list              # (place in values, name of the tensor that TMA copies, the rest of its descriptor)


class Plan(NamedTuple):
    steps: list
    temporaries: dict              # name: (torch.empty or torch.zeros, shape, dtype)


_plans: dict[tuple, Plan] = {}


def temporary(make, *shape, dtype, device):
    """A tensor that one launch fills for the next one. make: torch.empty or torch.zeros, and each call makes its own."""
    T = make(shape, dtype=dtype, device=device)
    T.made_by = make
    return T


def kind(options, *tensors):
    """All that a call's launches follow from: its options, a seed not among them, and of its tensors all but the numbers."""
    return (*options, *((T.shape, T.stride(), T.dtype, T.device, T.data_ptr() % 16) if T is not None else None for T in tensors))


def run(kind, launches, tensors):
    """Make the launches of a call, those of a plan if a call of this kind has been made before.

    kind:     hashable: see `kind`, and what else decides
    launches: launches(**tensors) -> each launch as (kernel, grid, arguments by name), in order
    tensors:  by name, all that the launches read and write but for temporaries; None where a call has no such tensor
    """
    device = next(iter(tensors.values())).device
    if device.index == torch.cuda.current_device() if device.type == "cuda" else True:
        return _run(kind, launches, tensors, device)
    with torch.cuda.device(device):                    # Triton launches on the current one
        return _run(kind, launches, tensors, device)


def _run(kind, launches, tensors, device):
    if triton.JITFunction.run is not RUN:
        launch(launches(**tensors))
    elif plan := _plans.get(kind):
        replay(plan, tensors, device)
    elif plan := record(launches, tensors):
        if len(_plans) >= AT_MOST:
            _plans.pop(next(iter(_plans)), None)                                   # the oldest
        _plans[kind] = plan


def known(kind):
    """The Plan of a kind of call that has been made, or None."""
    return _plans.get(kind)


def again(plan, tensors, device):
    """Make the launches of a plan, if it still counts, nobody wants to hear of each, and its device is current: whether so."""
    if not plan.steps or triton.JITFunction.run is not RUN or device.index != torch.cuda.current_device():
        return False
    replay(plan, tensors, device)
    return True


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
                names[id(T)] = f"temporary {len(temporaries)}"
                temporaries[names[id(T)]] = (T.made_by, T.shape, T.dtype)
            if id(T) not in names:
                return None
            step.values[place] = None
            if T is value:
                step.tensors.append((place, names[id(T)]))
            else:
                step.descriptors.append((place, names[id(T)], _of(None, value)))
        steps.append(step)
    return Plan(steps, temporaries)


def _of(T, descriptor):
    """The descriptor, of another tensor of the same kind: its checks have been made."""
    other = object.__new__(type(descriptor))
    other.__dict__.update(descriptor.__dict__, base=T)
    return other


def replay(plan, tensors, device):
    """Make the launches of a plan with these tensors."""
    made = {name: make(shape, dtype=dtype, device=device) for name, (make, shape, dtype) in plan.temporaries.items()}
    tensors = tensors | made if made else tensors
    for run, values, places, descriptors in plan.steps:
        values = values.copy()
        for place, name in places:
            values[place] = tensors[name].data_ptr()   # of a tensor Triton would ask for it, and the driver, too
        for place, name, descriptor in descriptors:
            values[place] = _of(tensors[name], descriptor)
        run(*values)


def forget():
    """Work everything out anew from here on: what a search has found may decide otherwise. A plan without steps counts no more."""
    for plan in _plans.values():
        plan.steps.clear()
    _plans.clear()
