"""Pickle with a learner's functions and classes by value, since another process cannot import a notebook's cell.

The lines of the cell travel with them: tracebacks show them, and Triton compiles them.
"""

import io
import linecache
import os
import pickle
import pydoc
import sys
import types

import cloudpickle


def pack(thing):
    """Bytes for `unpack`. Raises: what pickle raises for things that cannot travel, such as an open file."""
    buffer = io.BytesIO()
    packer = _Packer(buffer)
    packer.dump(thing)
    return pickle.dumps((packer.files, buffer.getvalue()))


def unpack(data):
    """What was packed, in another process of the same Python."""
    files, data = pickle.loads(data)
    for file, lines in files.items():
        linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
    return pickle.loads(data)


class _Packer(cloudpickle.Pickler):
    def __init__(self, buffer):
        super().__init__(buffer)
        self.files = {}                                # {name of a cell: its lines}

    def reducer_override(self, thing):
        if isinstance(thing, types.FunctionType) and not os.path.exists(file := thing.__code__.co_filename):
            self.files[file] = linecache.getlines(file)
        if type(thing).__name__ in ("JITFunction", "InterpretedFunction"):
            return sys.modules["triton"].jit, (thing.fn,)
        if isinstance(thing, types.ModuleType):        # also one that no import finds, such as torch._C._functions
            return pydoc.locate, (thing.__name__,)
        if isinstance(thing, type) and hasattr(thing, "_forward_cls"):       # PyTorch makes it with the Function itself
            return getattr, (thing._forward_cls, "_backward_cls")
        return super().reducer_override(thing)
