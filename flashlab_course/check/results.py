"""What a learner's function returned, made safe to look at: plain tensors and numbers, and for anything else a name and
a text.

Whatever is asked of a foreign object may raise, lie, or never end: it is asked here, under the time limit, once.
"""

import reprlib
import types

import numpy
import torch

PLAIN = (int, float, bool, str, complex, type(None))
MANY = 100                     # results: beyond that only their number counts
LARGEST = 2**28                # elements of a tensor that are worth a copy; no case has a thousandth of it
LONG = 2000                    # bits of a whole number; Python refuses to print 4300 digits


def plain(result):
    """(values, name of the container's type)."""
    parts = [result]
    if isinstance(result, (tuple, list)):
        kind = tuple if isinstance(result, tuple) else list    # its own __len__ and __iter__, whatever a subclass says
        if kind.__len__(result) > MANY:
            return (None,) * kind.__len__(result), _kind(result)
        parts = list(kind.__iter__(result))
    return tuple(_plain(part) for part in parts), _kind(result)


def is_plain(result):
    """Nothing foreign in it: to look at it runs none of the learner's code."""
    parts = result if type(result) in (tuple, list) else (result,)
    return len(parts) <= MANY and all(type(part) is torch.Tensor or type(part) in PLAIN for part in parts)


def _plain(value, depth=0):
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, numpy.generic):
        value = value.item()                           # a NumPy number is a number
    if isinstance(value, int) and type(value) is not bool:
        value = int.__int__(value)
        return value if value.bit_length() <= LONG else stand_in("int", f"a whole number of {value.bit_length()} bits")
    if isinstance(value, float):
        value = float.__float__(value)
    if type(value) in PLAIN:
        return value
    if isinstance(value, (tuple, list)) and depth < 4:         # torch.Size is a tuple as well
        kind = tuple if isinstance(value, tuple) else list
        if kind.__len__(value) <= MANY:
            return kind(_plain(part, depth + 1) for part in kind.__iter__(value))
    if type(value) is types.CoroutineType:
        value.close()                                  # a coroutine complains if it is dropped without having run
    return stand_in(_kind(value), _text(value))


def stand_in(kind, text):
    """An object that has the name of a type and a text, and nothing else."""
    return type(kind, (), {"__repr__": lambda self: text})()


def _kind(value):
    try:
        name = type(value).__name__
    except Exception:                                  # a metaclass answers
        name = None
    return name if type(name) is str else "object"


def _text(value):
    try:
        text = reprlib.repr(value)
    except Exception as error:
        return f"an object that cannot be printed: its __repr__ raises {type(error).__name__}"
    return text if type(text) is str else "an object that cannot be printed"


def _tensor(value):
    """A copy, an ordinary torch.Tensor: one that shares its memory with an earlier result would change with the next
    call."""
    try:
        with torch._C.DisableTorchFunctionSubclass():
            T = value if type(value) is torch.Tensor else torch.Tensor.as_subclass(value, torch.Tensor)
            T = torch.Tensor.detach(T)
        if not readable(T):
            return stand_in(_kind(value), "a tensor whose memory was given back")
        ordinary = T.layout is torch.strided and T.device.type == "cpu" and not T.is_quantized
        return T.clone() if ordinary and T.numel() <= LARGEST else T
    except Exception as error:
        return stand_in(_kind(value), f"a tensor that cannot be read ({type(error).__name__})")


def readable(T):
    """Is the memory that T's shape and strides speak of really there? To read what is not can end the process."""
    if T.layout is not torch.strided or T.device.type == "meta" or not T.numel():
        return True
    last = T.storage_offset() + sum((n - 1) * stride for n, stride in zip(T.shape, T.stride(), strict=True))
    return (last + 1) * T.element_size() <= T.untyped_storage().nbytes()


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

