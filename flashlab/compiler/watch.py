"""A watched run: every kernel that is launched, and, where kernels are interpreted, every load and store on its way.

    with watch(watcher):
        function()

The lint and the checker watch: what a launch was given, which addresses a program touches and with which mask.
"""

import contextlib
import inspect

import numpy as np
import torch

from flashlab.compiler import interpreted


@contextlib.contextmanager
def watch(watcher):
    """Within: `watcher` hears of each launch and, where kernels are interpreted, of each access.

    watcher.launched(kernel, args, kwargs, grid)              kernel[grid](*args, **kwargs) is about to run, kernel.fn its function
    watcher.accessed(kind, addresses, mask, program) -> mask  a "load" or "store" of an array of addresses, uint64, where mask
                                                              holds; it is carried out where the mask returned does
    Compiled runs end in a synchronize, so that an error of a kernel comes out here and not in some later call.
    """
    with _interpreter(watcher) if interpreted() else _compiled(watcher):
        yield watcher


@contextlib.contextmanager
def _interpreter(watcher):
    from triton.runtime import interpreter

    run, real = interpreter.InterpretedFunction.run, interpreter._interpreter

    def launch(kernel, *args, grid, warmup, **kwargs):
        watcher.launched(kernel, args, kwargs, grid)
        return run(kernel, *args, grid=grid, warmup=warmup, **kwargs)

    interpreter._interpreter, interpreter.InterpretedFunction.run = _Between(real, watcher, interpreter.interpreter_builder), launch
    try:
        yield
    finally:
        interpreter._interpreter, interpreter.InterpretedFunction.run = real, run


@contextlib.contextmanager
def _compiled(watcher):
    from triton.runtime.jit import JITFunction

    run = JITFunction.run

    def launch(kernel, *args, grid, warmup, **kwargs):
        watcher.launched(kernel, args, kwargs, grid)
        return run(kernel, *args, grid=grid, warmup=warmup, **kwargs)

    JITFunction.run = launch
    try:
        yield
        torch.cuda.synchronize()
    finally:
        JITFunction.run = run


class _Between:
    """Stands before the interpreter's C module, which does the loads and stores."""

    def __init__(self, real, watcher, builder):
        self._real, self._watcher, self._builder = real, watcher, builder

    def __getattr__(self, name):
        return getattr(self._real, name)

    def load(self, pointers, mask, other, dtype):
        return self._real.load(pointers, self._allowed("load", pointers, mask), other, dtype)

    def store(self, pointers, value, mask):
        return self._real.store(pointers, value, self._allowed("store", pointers, mask))

    def _allowed(self, kind, pointers, mask):
        program = tuple(getattr(self._builder, "grid_idx", None) or ())
        return self._watcher.accessed(kind, np.asarray(pointers).astype(np.uint64), np.asarray(mask).astype(bool), program)


def bind(kernel, args, kwargs):
    """The launch's arguments by parameter name, defaults included; num_warps and num_stages where they were given."""
    signature = inspect.signature(kernel.fn)
    bound = signature.bind(*args, **{key: value for key, value in kwargs.items() if key in signature.parameters})
    bound.apply_defaults()
    return bound.arguments | {key: value for key, value in kwargs.items() if key in ("num_warps", "num_stages")}
