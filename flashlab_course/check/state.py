"""What code may find changed around it, and leave changed behind it: PyTorch's settings and modes, the process, patched
functions.

    with normal():                 # a check runs in the same surroundings wherever it is called, and restores them
        with unchanged(left):      # what is changed inside is put back; its name is added to left
            ...
"""

import builtins
import contextlib
import gc
import locale
import math
import os
import random
import signal
import sys
import threading
import time
import warnings
from typing import NamedTuple

import numpy
import torch
import torch.utils._device
import torch.utils.deterministic
from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils import _python_dispatch as dispatch

_Fill = torch.utils.deterministic
AS_FOUND = object()            # a setting that a check does not need otherwise


class Setting(NamedTuple):
    get: object
    put: object
    normal: object = AS_FOUND


def _put_deterministic(on, warn_only):
    """torch.use_deterministic_algorithms without its import of the whole compiler, which takes seconds."""
    torch._C._set_deterministic_algorithms(on, warn_only=warn_only)


def _put_environment(values):
    for key in set(os.environ) - set(values):
        del os.environ[key]
    os.environ.update(values)


def _put_path(path, *folders):
    """The same list again, not only the same folders: others hold on to it."""
    path[:] = folders
    sys.path = path


def _directory():
    try:
        return os.getcwd()
    except OSError:                                    # it was deleted
        return None


def _autocast():
    return torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")


def _put_autocast(cpu, cuda):
    torch.set_autocast_enabled("cpu", cpu)
    torch.set_autocast_enabled("cuda", cuda)


def _put_streams(*streams):
    sys.stdout, sys.stderr, sys.stdin = streams


class _Device:
    """The default device is a function mode that PyTorch also remembers. Both are taken away together, and put back."""

    @staticmethod
    def get():
        return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)

    @staticmethod
    def put(context):
        torch._GLOBAL_DEVICE_CONTEXT.device_context = context
        torch.utils._device.CURRENT_DEVICE = context.device if context else None


def _function_modes():
    return list(_get_current_function_mode_stack())


def _put_function_modes(modes):
    for _ in _get_current_function_mode_stack():
        _pop_mode()
    for mode in modes:
        _push_mode(mode)


def _dispatch_modes():
    return list(dispatch._get_current_dispatch_mode_stack())


def _put_dispatch_modes(modes):
    for _ in dispatch._get_current_dispatch_mode_stack():
        dispatch._pop_mode()
    for mode in modes:
        dispatch._push_mode(mode)


# Modes first: the settings after them are read and set by PyTorch's own functions.
SETTINGS = {
    "the stack of PyTorch's modes": Setting(_dispatch_modes, _put_dispatch_modes, []),
    "the stack of PyTorch's function modes": Setting(_function_modes, _put_function_modes, []),
    "the default device": Setting(_Device.get, _Device.put, None),
    "the default dtype": Setting(torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    "grad mode": Setting(torch.is_grad_enabled, torch._C._set_grad_enabled, True),
    "anomaly detection": Setting(lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
                                 lambda both: torch.set_anomaly_enabled(*both), (False, True)),
    "autocast": Setting(_autocast, lambda both: _put_autocast(*both), (False, False)),
    "the number of threads": Setting(torch.get_num_threads, torch.set_num_threads),
    "the float32 matmul precision": Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision,
                                            "highest"),
    "the deterministic-algorithms flag": Setting(
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda both: _put_deterministic(*both), (True, True)),
    # torch.empty then holds NaN: what is never written cannot look right by accident
    "what torch.empty is filled with": Setting(lambda: _Fill.fill_uninitialized_memory,
                                               lambda on: setattr(_Fill, "fill_uninitialized_memory", on), True),
    "NumPy's handling of errors": Setting(numpy.geterr, lambda kinds: numpy.seterr(**kinds),
                                          {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}),
    "the recursion limit": Setting(sys.getrecursionlimit, sys.setrecursionlimit),
    "the working directory": Setting(_directory, lambda path: path and os.chdir(path)),
    "sys.path": Setting(lambda: [sys.path, *sys.path], lambda kept: _put_path(*kept)),
    "the environment variables": Setting(lambda: dict(os.environ), _put_environment),
    "the locale": Setting(lambda: locale.setlocale(locale.LC_ALL), lambda name: locale.setlocale(locale.LC_ALL, name)),
    "sys.stdout": Setting(lambda: (sys.stdout, sys.stderr, sys.stdin), lambda three: _put_streams(*three)),
    "the garbage collector": Setting(gc.isenabled, lambda on: gc.enable() if on else gc.disable(), True),
}


def _read():
    return {name: setting.get() for name, setting in SETTINGS.items()}


def _restore(before):
    """Put back what differs. Returns the names of what did."""
    changed = []
    for name, value in before.items():
        if not _equal(SETTINGS[name].get(), value):
            changed.append(name)
            with contextlib.suppress(Exception):       # a directory that was deleted meanwhile, for instance
                SETTINGS[name].put(value)
    return changed


def _equal(a, b):
    # of modes, of streams: the same ones, whatever they say of themselves
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(x is y or type(x) is type(y) and type(x) in (bool, int) and x == y
                                        for x, y in zip(a, b, strict=True))
    return a is b or type(a) is type(b) and a == b


# ---- patched functions

WATCHED = (torch, torch.Tensor, torch.nn.functional, torch.linalg, math, builtins, numpy, time, random)
LIBRARY = os.path.dirname(torch.__file__)
_originals = {}                # what is watched, by name -> (it, its attributes as they were first seen)


def _look():
    """Take in what has been loaded since. The package's own modules are among it."""
    for thing in [*WATCHED, *(module for name, module in list(sys.modules.items()) if name.startswith("flashlab"))]:
        if thing.__name__ not in _originals:
            _originals[thing.__name__] = (thing, dict(vars(thing)))


def _patched():
    """[(name to say, thing, attribute, value now, value that belongs there)] of what was replaced."""
    found = []
    for name, (thing, known) in _originals.items():
        now = vars(thing)
        with contextlib.suppress(Exception):           # comparing may fail, or lie: then each is looked at
            if now == known:
                continue
        for key in [key for key in known if key not in now or now[key] is not known[key]]:
            value = now.get(key, AS_FOUND)
            if _is_patch(thing, key, value, known[key]):
                found.append((f"{name.replace('torch.nn.functional', 'F')}.{key}", thing, key, value, known[key]))
            else:
                known[key] = value
        for key in set(now) - set(known):
            # it hides the method that was inherited
            if thing is torch.Tensor and hasattr(torch._C.TensorBase, key):
                found.append((f"{name}.{key}", thing, key, now[key], AS_FOUND))
            else:
                known[key] = now[key]
    return found


def _is_patch(thing, key, value, original):
    if thing.__name__.startswith("flashlab"):
        return callable(original)                      # its constants are for tests to change
    if key.startswith("_") and not key.startswith("__") or key == "input":       # notebooks put their own input() there
        return False
    code = getattr(value, "__code__", None)            # torch wraps some of its own once its compiler is loaded
    return not (getattr(value, "__wrapped__", None) is original and code and code.co_filename.startswith(LIBRARY))


def mend_builtins():
    """Put len, max and their kind back, at once: hardly anything works without them, this does."""
    for key in _builtins:
        if key not in _now or _now[key] is not _builtins[key]:
            if key != "input" and key[:1] != "_":
                _now[key], _mended[key] = _builtins[key], True


def _set(thing, key, value):
    with contextlib.suppress(Exception):
        if value is AS_FOUND:
            delattr(thing, key)
        else:
            setattr(thing, key, value)


_look()
_now, _builtins, _mended = vars(builtins), dict(vars(builtins)), {}


# ---- the two

_lock, _depth = threading.RLock(), 0


@contextlib.contextmanager
def normal():
    """The surroundings of a check, and afterwards those of before, also the random generators. Within itself it does
    nothing; two threads take turns."""
    global _depth
    with _lock:
        if _depth:
            yield
            return
        _depth += 1
        try:
            with _surroundings():
                yield
        finally:
            _depth -= 1


@contextlib.contextmanager
def _surroundings():
    before, generators = _read(), _generators()
    _look()
    patches = _patched()
    with warnings.catch_warnings(), torch.inference_mode(False):
        warnings.simplefilter("ignore")
        for _, thing, key, _, original in patches:
            _set(thing, key, original)
        try:
            for name, setting in SETTINGS.items():
                if setting.normal is not AS_FOUND and not _equal(before[name], setting.normal):
                    setting.put(setting.normal)
            yield
        finally:
            _restore(before)
            _put_generators(generators)
            for _, thing, key, value, _ in patches:
                _set(thing, key, value)


@contextlib.contextmanager
def unchanged(left):
    """Afterwards everything is as before; what had to be put back is named in the list `left`."""
    handlers, figures, modules = _handlers(), _figures(), dict(sys.modules)
    with torch.inference_mode(False):
        before = _read()
        try:
            yield
        finally:
            left += [f"builtins.{key}" for key in _mended]
            _mended.clear()
            for name, thing, key, _, original in _patched():
                left.append(name)
                _set(thing, key, original)
            for name in [name for name, module in modules.items() if module is not None
                         and sys.modules.get(name) is None]:
                # removed: whoever imports it next gets a second one, or none
                left.append(f"sys.modules[{name!r}]")
                sys.modules[name] = modules[name]
            left += _restore(before)
            _put_handlers(handlers)
            _close(set(_figures()) - set(figures))


def _generators():
    return random.getstate(), numpy.random.get_state(), torch.get_rng_state()


def _put_generators(states):
    random.setstate(states[0])
    numpy.random.set_state(states[1])
    torch.set_rng_state(states[2])


def _handlers():
    return {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}


def _put_handlers(handlers):
    for number, handler in handlers.items():
        if signal.getsignal(number) is not handler:
            with contextlib.suppress(ValueError, TypeError):       # not in the main thread; not one of Python's
                signal.signal(number, handler)


def _figures():
    """Numbers of matplotlib's open figures: a notebook would show those of the learner's function below the verdict."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    return pyplot.get_fignums() if pyplot else []


def _close(numbers):
    for number in numbers:
        sys.modules["matplotlib.pyplot"].close(number)
