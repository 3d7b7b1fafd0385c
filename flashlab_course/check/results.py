"""What a learner's function returned, as plain tensors and numbers; anything else is left as it is."""

import numpy
import torch


def plain(result):
    """(values, name of the container's type)."""
    parts = result if isinstance(result, (tuple, list)) else [result]
    return tuple(map(_plain, parts)), type(result).__name__


def _plain(value):
    """A tensor as a copy: one that shares its memory with an earlier result would change with the next call."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
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
