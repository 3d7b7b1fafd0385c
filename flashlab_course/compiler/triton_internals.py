"""All uses of Triton's internals, which may change with any release. `KNOWN`: the versions this was tested with."""

import contextlib

import numpy as np
import torch

KNOWN = ("3.6", "3.7", "3.8", "3.9")


@contextlib.contextmanager
def heard_launches(launched):
    """Call launched(kernel, args, kwargs, grid) before every launch of a compiled kernel."""
    from triton.runtime.jit import JITFunction

    run = JITFunction.run

    def launch(kernel, *args, grid, warmup, **kwargs):
        launched(kernel, args, kwargs, grid)
        return run(kernel, *args, grid=grid, warmup=warmup, **kwargs)

    JITFunction.run = launch
    try:
        yield
        torch.cuda.synchronize()                       # a kernel's error is raised here, not in some later call
    finally:
        JITFunction.run = run


@contextlib.contextmanager
def heard_interpreter(launched, accessed):
    """Call launched(...) as above, and accessed(kind, addresses, mask, program) -> mask for every access."""
    from triton.runtime import interpreter

    function, real = interpreter.InterpretedFunction, interpreter._interpreter
    run, call = function.run, function.__call__
    patched = set()                                    # files of functions whose language this launch has patched

    def launch(kernel, *args, grid, warmup, **kwargs):
        launched(kernel, args, kwargs, grid)
        patched.clear()
        return run(kernel, *args, grid=grid, warmup=warmup, **kwargs)

    def call_once_patched(called, *args, **kwargs):
        # Triton patches its language for each call of a function in a kernel, tl.zeros for example: 10 ms every time.
        # Once a launch is enough for the functions of one file.
        file = called.fn.__code__.co_filename
        if file not in patched:
            interpreter._patch_lang(called.fn)
            patched.add(file)
        try:
            return called.rewrite()(*args, **kwargs)
        except Exception as error:
            raise interpreter.InterpreterError(repr(error)) from error

    interpreter._interpreter = _Listener(real, accessed)
    function.run, function.__call__ = launch, call_once_patched
    try:
        yield
    finally:
        interpreter._interpreter = real
        function.run, function.__call__ = run, call


class _Listener:
    """Stands in front of the interpreter's C module, which does the loads, the stores and the atomic updates."""

    def __init__(self, real, accessed):
        self._real, self._accessed = real, accessed

    def __getattr__(self, name):
        return getattr(self._real, name)

    def load(self, pointers, mask, other, dtype):
        return self._real.load(pointers, self._allowed("load", pointers, mask), other, dtype)

    def store(self, pointers, value, mask):
        return self._real.store(pointers, value, self._allowed("store", pointers, mask))

    def atomic_rmw(self, operation, pointers, value, mask, order):
        return self._real.atomic_rmw(operation, pointers, value, self._allowed("atomic", pointers, mask), order)

    def atomic_cas(self, pointers, expected, value, order):
        if not self._allowed("atomic", pointers, np.ones(np.shape(pointers), dtype=bool)).all():
            raise IndexError("tl.atomic_cas outside every tensor")     # it has no mask to leave the address out
        return self._real.atomic_cas(pointers, expected, value, order)

    def _allowed(self, kind, pointers, mask):
        return self._accessed(kind, np.asarray(pointers).astype(np.uint64), np.asarray(mask).astype(bool), program())


def program():
    """The place in the grid, (x, y, z), of the interpreted program that runs."""
    from triton.runtime import interpreter

    return tuple(interpreter.interpreter_builder.grid_idx or ())
