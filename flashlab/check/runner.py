"""Running a learner's code so that the checker survives it: time limit, captured output, inputs and global state verified."""

import contextlib
import ctypes
import io
import linecache
import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from dataclasses import dataclass, field

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from flashlab import memory

COMPILING = 5                  # a kernel that is compiled for a GPU may take this many times the limit: the first launch builds it
TICK = 0.05                    # seconds between attempts to stop code that swallows the first one


class TimeUp(BaseException):
    """Raised inside code that takes too long. Not an Exception: `except Exception` must not catch it."""


class Breach(Exception):
    """For an exercise's `call`: what the function did is against the rules. kind as in Problem."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


@dataclass
class Problem:
    """What went wrong before there was a result to compare: one of KINDS, a sentence, and the learner's lines."""

    kind: str                  # not_implemented, timeout, raised, signature, wrong_type, wrong_shape, wrong_dtype, ...
    text: str
    lines: list = field(default_factory=list)    # (where, function, code), outermost first
    error: str = ""            # the exception's class


@dataclass
class Outcome:
    """What a function did on one case."""

    values: tuple = ()
    problem: Problem | None = None
    facts: dict = field(default_factory=dict)    # what was moved and made: traffic of modelled memory, stray accesses
    printed: str = ""
    left: list = field(default_factory=list)     # global settings it changed
    seconds: float = 0.0


def run(exercise, fn, inputs, *, limit=None, own_file=None):
    """fn on one case's inputs, protected. own_file: the file whose lines are the learner's."""
    given = {name: value for name, value in inputs.items()}
    keep = _copies(given)
    guard = _guard(exercise, given)
    outcome, printed = Outcome(), io.StringIO()
    box = {}

    def body():
        with _measured(exercise, given, outcome.facts), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            box["result"] = exercise.invoke(fn, guard.inputs if guard else given)

    started = time.perf_counter()
    limit = limit or exercise.seconds * (1 if guard is None or guard.interpreted else COMPILING)
    with _GlobalState(outcome), memory.restored(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            with _watched(guard, outcome.facts):
                _limited(body, limit)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and _interrupted_by_user(error):
                raise
            outcome.problem = describe(error, exercise, own_file, limit)
    outcome.seconds = time.perf_counter() - started
    outcome.printed = printed.getvalue()
    if outcome.problem is None:
        result = guard.results() if guard else box.get("result")
        outcome.values = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        outcome.facts["container"] = type(result).__name__ if not guard or len(result) > 1 else "Tensor"
        outcome.values = tuple(v.detach() if isinstance(v, torch.Tensor) else v for v in outcome.values)
        outcome.problem = _changed(guard.plain() if guard else given, keep)
        outcome.facts["aliases"] = {} if guard else _aliases(outcome.values, given)
    return outcome


def _guard(exercise, inputs):
    if not exercise.triton:
        return None
    from flashlab.check.guard import Guard  # here: it imports Triton

    return Guard(inputs, exercise.reads, exercise.writes)


@contextlib.contextmanager
def _watched(guard, facts):
    """Hold a Triton exercise's loads and stores against its tensors; what was seen ends up in facts, also after an error."""
    if guard is None:
        yield
        return
    from flashlab.compiler.watch import watch

    try:
        with watch(guard):
            yield
    finally:
        facts |= guard.facts()


def protected(body, seconds):
    """(what body() returned, None), or (None, Problem-like exception) with its output swallowed: for loading a learner's file."""
    box, outcome = {}, Outcome()
    sink = io.StringIO()
    with _GlobalState(outcome), memory.restored(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        try:
            _limited(lambda: box.update(result=body()), seconds)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and _interrupted_by_user(error):
                raise
            return None, error
    return box["result"], None


# ---- inputs

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


def _copies(inputs):
    return {name: T.clone() for name, T in tensors(inputs)}


def _changed(inputs, keep):
    for name, T in tensors(inputs):
        if name not in keep:
            continue
        before = keep[name]
        if T.shape != before.shape or T.dtype != before.dtype:
            return Problem("changed_inputs", f"it changed its input {name} into another shape or dtype")
        if not torch.equal(T.detach().nan_to_num(0.125), before.nan_to_num(0.125)):
            return Problem("changed_inputs", f"it changed its input {name} in place: whoever called it still needs {name}. "
                                             "Assign to a new name (`x = x * a`), not into the tensor (`x *= a`, `x[...] = a`)")
    return None


def _aliases(values, inputs):
    """{number of a result: the input whose memory it shares}."""
    places = {T.untyped_storage().data_ptr(): name for name, T in tensors(inputs) if T.numel()}
    return {n: places[place] for n, value in enumerate(values) if (place := _place(value)) in places}


def _place(value):
    if isinstance(value, torch.Tensor) and value.layout == torch.strided and value.device.type != "meta" and value.numel():
        return value.untyped_storage().data_ptr()
    return None


# ---- modelled memory

@contextlib.contextmanager
def _measured(exercise, inputs, facts):
    """Count traffic where the exercise stands on modelled memory; the counts end up in facts, also after an error."""
    if exercise.sram_bytes is None:
        with _Watch(exercise.forbid, inputs, facts) if exercise.forbid else contextlib.nullcontext():
            yield
        return
    mem = memory.Memory(exercise.sram_bytes(**inputs))
    try:
        with mem:
            yield
    finally:
        facts["sram_peak"] = mem.sram_peak
        moved, eager = {}, 0
        for event in mem.log:
            if event.kind in ("load", "store"):
                read, written = moved.get(event.name, (0, 0))
                moved[event.name] = (read + event.read, written + event.written)
            elif event.kind == "eager":
                eager += event.read + event.written
        facts["moved"], facts["eager"] = moved, eager


class _Watch(TorchDispatchMode):
    """Looks at the shape of every tensor that is made."""

    def __init__(self, forbid, inputs, facts):
        super().__init__()
        self.forbid, self.inputs, self.facts = forbid, inputs, facts

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for _, T in tensors(out):
            if "forbidden" not in self.facts and (said := self.forbid(tuple(T.shape), **self.inputs)):
                self.facts["forbidden"] = [said]
        return out


# ---- time

def _limited(body, seconds):
    """body(), stopped by TimeUp after `seconds`. A signal in the main thread; a thread of its own elsewhere, and on Windows."""
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
        _limited_by_signal(body, seconds)
    else:
        _limited_by_thread(body, seconds)


def _limited_by_signal(body, seconds):
    rings = []

    def ring(signum, frame):
        rings.append(frame)
        if len(rings) > 3:                     # an `except:` in a loop swallows it each time: raise at every further line
            _raise_at_every_line(frame)
        raise TimeUp

    old = signal.signal(signal.SIGALRM, ring)
    tracing = sys.gettrace()
    signal.setitimer(signal.ITIMER_REAL, seconds, TICK)
    try:
        body()
        if rings:
            raise TimeUp
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        sys.settrace(tracing)


def _raise_at_every_line(frame):
    """Also inside an except clause, where a loop that swallows everything cannot catch it."""
    def trace(frame, event, arg):
        if event == "line":
            raise TimeUp
        return trace

    while frame is not None and frame.f_code.co_filename != __file__:
        frame.f_trace = trace
        frame = frame.f_back
    sys.settrace(trace)


def _limited_by_thread(body, seconds):
    failure = []
    grad = torch.is_grad_enabled()

    def target():
        try:
            with torch.set_grad_enabled(grad):
                body()
        except BaseException as error:
            failure.append(error)

    worker = threading.Thread(target=target, daemon=True)
    worker.start()
    worker.join(seconds)
    attempts = 0
    while worker.is_alive() and attempts < 20:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(worker.ident), ctypes.py_object(TimeUp))
        worker.join(TICK)
        attempts += 1
    if attempts and not failure:
        raise TimeUp                           # it could not be stopped: the thread is left behind
    if failure:
        raise failure[0]


# ---- errors

def _interrupted_by_user(error):
    """Ctrl-C or the stop button, not a `raise KeyboardInterrupt` in the learner's code: that has its own line on top."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return "raise KeyboardInterrupt" not in (last.line or "")


def describe(error, exercise, own_file, seconds):
    """The Problem that an exception stands for."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__                # Triton's interpreter wraps what the kernel raised
    lines = learner_lines(error, own_file)
    name = type(error).__name__
    if isinstance(error, TimeUp):
        return Problem("timeout", f"it was stopped after {seconds:g} seconds; is there a loop that never ends?", lines)
    if isinstance(error, NotImplementedError) and str(error).startswith(f"{exercise.name}:"):
        return Problem("not_implemented", str(error).partition(": ")[2], lines)
    if isinstance(error, Breach):
        return Problem(error.kind, str(error))
    if isinstance(error, RecursionError):
        return Problem("raised", "it called itself until Python gave up (RecursionError)", lines[:2], name)
    text = " ".join(str(error).split()) or "no message"
    if isinstance(error, memory.MemoryModelError):
        text = str(error)                      # written for a learner, line by line
    return Problem("raised", f"it raised {name}: {text}" if not isinstance(error, SystemExit)
                   else "it called exit(): a function returns its result instead", lines, name)


def learner_lines(error, own_file):
    """(where, function, code) of the traceback's frames in the learner's file or cell, outermost first."""
    found = []
    for frame in traceback.extract_tb(error.__traceback__):
        if own_file is None or frame.filename == own_file:
            code = linecache.getline(frame.filename, frame.lineno).strip()
            found.append((f"line {frame.lineno}", frame.name, code))
    return found[-6:] if own_file is not None else []


# ---- global state

def _settings():
    """name -> (value now, function that puts a value back) of what a careless function leaves changed."""
    state = {
        "the default dtype": (torch.get_default_dtype(), torch.set_default_dtype),
        "the default device": (torch.get_default_device(), _set_device),
        "grad mode": (torch.is_grad_enabled(), torch._C._set_grad_enabled),
        "the number of threads": (torch.get_num_threads(), torch.set_num_threads),
        "the float32 matmul precision": (torch.get_float32_matmul_precision(), torch.set_float32_matmul_precision),
        "the deterministic-algorithms flag": (
            (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
            lambda value: _set_deterministic(*value)),
        "the recursion limit": (sys.getrecursionlimit(), sys.setrecursionlimit),
        "the working directory": (os.getcwd(), os.chdir),
        "the environment variables": (dict(os.environ), _set_environment),
    }
    return state


def _set_device(device):
    torch.set_default_device(None if device.type == "cpu" else device)    # None takes the mode away that a device installs


def _set_deterministic(on, warn_only):
    """torch.use_deterministic_algorithms without its import of the whole compiler, which takes seconds."""
    torch._C._set_deterministic_algorithms(on, warn_only=warn_only)


def _set_environment(values):
    for key in set(os.environ) - set(values):
        del os.environ[key]
    os.environ.update(values)


class _GlobalState:
    """Restore settings and random generators afterwards; name the settings that were changed in outcome.left."""

    def __init__(self, outcome):
        self.outcome = outcome

    def __enter__(self):
        self.deterministic = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        self.fill = torch.utils.deterministic.fill_uninitialized_memory
        # torch.empty then holds NaN: what is never written cannot look right by accident
        _set_deterministic(True, True)
        torch.utils.deterministic.fill_uninitialized_memory = True
        self.before = _settings()
        self.random = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
        return self

    def __exit__(self, *exc):
        after = _settings()
        for name, (value, restore) in self.before.items():
            if after[name][0] != value:
                self.outcome.left.append(name)
                restore(value)
        _set_deterministic(*self.deterministic)
        torch.utils.deterministic.fill_uninitialized_memory = self.fill
        random.setstate(self.random[0])
        numpy.random.set_state(self.random[1])
        torch.set_rng_state(self.random[2])
