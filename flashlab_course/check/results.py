"""What a learner's function returned, made safe to look at: plain tensors and numbers, and for anything else a name and
a text. It is read within the deadline of its case, since asking a foreign object may take for ever."""

import reprlib

import numpy
import torch

from flashlab.torch_internals import without_subclasses

PLAIN = (int, float, bool, str, complex, type(None))
MANY = 100                     # results: beyond that only their number counts
LARGEST = 2**28                # elements of a tensor that are worth a copy; no case has a thousandth of it
LONG = 2000                    # bits of a whole number; Python refuses to print 4300 digits


def plain(result):
    """(values, name of the container's type)."""
    parts = list(result) if isinstance(result, (tuple, list)) else [result]
    values = tuple(map(_plain, parts)) if len(parts) <= MANY else (None,) * len(parts)
    return values, type(result).__name__


def _plain(value, depth=0):
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, numpy.generic):
        value = value.item()
    if isinstance(value, int) and value.bit_length() > LONG:
        return stand_in("int", f"a whole number of {value.bit_length()} bits")
    if type(value) in PLAIN:
        return value
    if isinstance(value, (tuple, list)) and depth < 4 and len(value) <= MANY:      # torch.Size is a tuple as well
        return (tuple if isinstance(value, tuple) else list)(_plain(part, depth + 1) for part in value)
    return stand_in(type(value).__name__, _text(value))


def stand_in(kind, text):
    """An object that has the name of a type and a text, and nothing else."""
    return type(kind, (), {"__repr__": lambda self: text})()


def _text(value):
    try:
        return reprlib.repr(value)
    except Exception as error:
        return f"an object that cannot be printed: its __repr__ raises {type(error).__name__}"


def _tensor(value):
    """A copy, an ordinary torch.Tensor: one that shares its memory with an earlier result would change with the next
    call."""
    try:
        with without_subclasses():
            T = value if type(value) is torch.Tensor else torch.Tensor.as_subclass(value, torch.Tensor)
            T = torch.Tensor.detach(T)
        ordinary = T.layout is torch.strided and T.device.type == "cpu" and not T.is_quantized
        return T.clone() if ordinary and T.numel() <= LARGEST else T
    except Exception as error:
        return stand_in(type(value).__name__, f"a tensor that cannot be read ({type(error).__name__})")


def tensors(value, name=""):
    """(name, tensor) of every tensor in a nest of tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from tensors(part, key if not name else f"{name}[{key!r}]")
    elif isinstance(value, (tuple, list)):
        for n, part in enumerate(value):
            yield from tensors(part, f"{name}[{n}]")
