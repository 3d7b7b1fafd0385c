"""What a learner's function returned, as plain tensors and numbers; anything else is left as it is. It is read within
the deadline of its case, since asking a foreign object may take for ever."""

import numpy
import torch

from flashlab.torch_internals import without_subclasses

LARGEST = 2**28                # elements of a tensor that are worth a copy; no case has a thousandth of it


def plain(result):
    """(values, name of the container's type)."""
    parts = result if isinstance(result, (tuple, list)) else [result]
    return tuple(map(_plain, parts)), type(result).__name__


def _plain(value):
    """A tensor as a copy, an ordinary torch.Tensor: one that shares its memory with an earlier result would change with
    the next call."""
    if isinstance(value, torch.Tensor):
        with without_subclasses():
            T = value if type(value) is torch.Tensor else torch.Tensor.as_subclass(value, torch.Tensor)
            T = torch.Tensor.detach(T)
        ordinary = T.layout is torch.strided and T.device.type == "cpu" and not T.is_quantized
        return T.clone() if ordinary and T.numel() <= LARGEST else T
    if isinstance(value, (tuple, list)):
        return (list if type(value) is list else tuple)(map(_plain, value))      # torch.Size is a tuple as well
    return value.item() if isinstance(value, numpy.generic) else value


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
