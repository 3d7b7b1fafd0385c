"""Pickle with a learner's functions and classes by value, since another process cannot import a notebook's cell.

Whatever of the learner's a function names (helpers, constants, modules, classes, Triton kernels) travels with it, and
so do the lines of its cell: tracebacks show them, and Triton compiles them.
"""

import dis
import io
import linecache
import marshal
import os
import pickle
import pydoc
import sys
import types

import torch

import flashlab
import flashlab_course

# What the other process imports by itself: Python, what is installed beside torch, this package.
LIBRARIES = tuple(f"{os.path.dirname(path)}{os.sep}" for path in (os.__file__, os.path.dirname(torch.__file__),
                                                                flashlab.__file__, flashlab_course.__file__))
_namespaces = {}               # the globals of functions that came here, by the number they had there


def pack(thing):
    """Bytes for `unpack`. Raises: what pickle raises for things that cannot travel, such as an open file."""
    buffer = io.BytesIO()
    packer = _Packer(buffer, protocol=5)
    packer.dump(thing)
    return pickle.dumps((packer.files, buffer.getvalue()))


def unpack(data):
    """What was packed, in another process of the same Python."""
    files, data = pickle.loads(data)
    for file, lines in files.items():
        linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
    return pickle.loads(data)


class _Packer(pickle.Pickler):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.files = {}                                # {name of a file or cell: its lines}

    def reducer_override(self, thing):
        if isinstance(thing, types.ModuleType):
            return pydoc.locate, (thing.__name__,)
        if isinstance(thing, (staticmethod, classmethod)):
            return type(thing), (thing.__func__,)
        if isinstance(thing, property):
            return property, (thing.fget, thing.fset, thing.fdel)
        if isinstance(thing, types.FunctionType) and _is_learners(thing):
            return self._function(thing)
        if isinstance(thing, type) and _is_learners(thing):
            names = [name for name in vars(thing) if name not in ("__dict__", "__weakref__", "_backward_cls")]
            return (types.new_class, (thing.__name__, thing.__bases__, {"metaclass": type(thing)}),
                    {name: vars(thing)[name] for name in names}, None, None, _fill_class)
        if type(thing).__name__ in ("JITFunction", "InterpretedFunction"):
            return sys.modules["triton"].jit, (thing.fn,)
        return NotImplemented

    def _function(self, fn):
        code = fn.__code__
        self.files[code.co_filename] = linecache.getlines(code.co_filename)
        cells = [_content(cell) for cell in fn.__closure__ or ()]
        used = {name: fn.__globals__[name] for name in _globals_of(code) if name in fn.__globals__}
        state = {"cells": cells, "globals": {name: value for name, value in used.items() if _travels(value)},
                 "own": {"__defaults__": fn.__defaults__, "__kwdefaults__": fn.__kwdefaults__,
                         "__annotations__": {}, "__module__": fn.__module__, "__doc__": fn.__doc__,
                         "__qualname__": fn.__qualname__, **vars(fn)}}
        made = marshal.dumps(code), fn.__name__, id(fn.__globals__), len(cells)
        return _make_function, made, state, None, None, _fill_function


def _is_learners(thing):
    file = getattr(sys.modules.get(thing.__module__), "__file__", None)
    return thing.__module__ == "__main__" or file is not None and not file.startswith(LIBRARIES)


def _globals_of(code):
    """Names that the code, and the functions in it, look up outside of themselves."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names.union(*(_globals_of(part) for part in code.co_consts if isinstance(part, types.CodeType)))


def _travels(value):
    """Can it be packed? What cannot is left out: the other process then says that it does not know the name."""
    if isinstance(value, (types.FunctionType, type, types.ModuleType)) or hasattr(value, "fn"):
        return True                                    # and may name itself: not tried, which would never end
    try:
        pack(value)
    except Exception:
        return False
    return True


def _content(cell):
    try:
        return (cell.cell_contents,)
    except ValueError:                                 # nothing in it yet
        return ()


def _make_function(code, name, namespace, cells):
    shared = _namespaces.setdefault(namespace, {"__builtins__": __builtins__, "__name__": "__main__"})
    return types.FunctionType(marshal.loads(code), shared, name, None, tuple(types.CellType() for _ in range(cells)))


def _fill_function(fn, state):
    fn.__globals__.update(state["globals"])
    for cell, content in zip(fn.__closure__ or (), state["cells"], strict=True):
        if content:
            cell.cell_contents = content[0]
    for name, value in state["own"].items():
        setattr(fn, name, value)


def _fill_class(made, state):
    for name, value in state.items():
        setattr(made, name, value)
