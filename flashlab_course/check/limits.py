"""What a learner's code may take, time and memory, and what it may not do while it is checked: ask, wait, end the
process."""

import builtins
import contextlib
import ctypes
import io
import os
import re
import signal
import sys
import threading
import time
from time import monotonic, sleep  # by name: a learner's function may replace what is in the module

import torch

from flashlab_course.check import state

TICK = 0.05                    # seconds between two looks at the clock and at the memory
MEMORY = 4 * 2**30             # bytes that code may take beyond what is there when it starts


class TimeUp(BaseException):
    """Raised inside code that takes too long. Not an Exception: `except Exception` must not catch it."""


class MemoryUp(BaseException):
    """Raised inside code that takes too much memory."""


class Halt(BaseException):
    """Raised in the place of what would ask, wait for ever, or end the process: kind and text as in a Problem."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind, self.text = kind, text


class Last:
    """Where a process of its own can be lost (process.py): `arm(seconds)` ends it if nothing else has, `disarm()` does
    not."""

    arm = disarm = staticmethod(lambda *_: None)


_running = []                  # the deadlines of learners' code that runs now
_threads = []                  # and the threads in which it runs


def running():
    """Is it a learner's code, run by a check, that asks? Another thread may check meanwhile, and waits for its turn."""
    return threading.get_ident() in _threads


def limited(body, seconds):
    """body(), stopped by TimeUp or MemoryUp. A signal in the main thread; a thread of its own elsewhere, and on
    Windows."""
    in_main = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
    _running.append(monotonic() + seconds)
    outside = len(_threads)
    Last.arm(seconds)
    process = os.getpid()
    try:
        with _forbidden():
            (_limited_by_signal if in_main else _limited_by_thread)(lambda: _with_builtins(body), seconds)
    finally:
        if os.getpid() != process:             # code that called os.fork() ends here, the second time
            _really["_exit"](0)
        Last.disarm()
        _running.pop()
        del _threads[outside:]


def _with_builtins(body):
    _threads.append(threading.get_ident())
    try:
        body()
    finally:
        state.mend_builtins()


class _Watch:
    """What is over: time, or memory."""

    def __init__(self, seconds):
        self.deadline, self.floor, self.over = monotonic() + seconds, resident(), None

    def look(self):
        """The exception to raise now, or None."""
        if self.over is None and monotonic() >= self.deadline:
            self.over = TimeUp
        if self.over is None and resident() - self.floor > MEMORY:
            self.over = MemoryUp
        return self.over


def resident():
    """Bytes of memory that this process has; where that cannot be asked, the most it has had, or 0."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    try:
        import resource  # not on Windows
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _limited_by_signal(body, seconds):
    watch, rings, done = _Watch(seconds), [], []

    def ring(signum, frame):
        if done or not watch.look():
            return
        rings.append(frame)
        # an `except:` in a loop swallows it each time: raise at every further line
        if len(rings) > 3:
            _raise_at_every_line(frame, watch.over)
        raise watch.over

    old, tracing = signal.signal(signal.SIGALRM, ring), sys.gettrace()
    signal.setitimer(signal.ITIMER_REAL, min(TICK, seconds), TICK)
    try:
        body()
        done.append(True)
    except BaseException as error:
        done.append(True)
        if rings and not isinstance(error, watch.over):        # it caught the one and raised another
            raise watch.over from error
        raise
    finally:
        done.append(True)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        sys.settrace(tracing)
    if rings:
        raise watch.over


# Python itself, what is installed beside torch, and this package: an exception in a finalizer of theirs is lost.
LIBRARIES = tuple(os.path.dirname(path)
                  for path in (os.__file__, os.path.dirname(torch.__file__), os.path.dirname(__file__)))


def _raise_at_every_line(frame, over):
    """Of the learner's frames: also inside an except clause, where a loop that swallows everything cannot catch it."""
    def trace(frame, event, arg):
        if event == "line":
            raise over
        return trace

    while frame is not None and frame.f_code is not _limited_by_signal.__code__:
        if not frame.f_code.co_filename.startswith(LIBRARIES):
            frame.f_trace = trace
        frame = frame.f_back
    sys.settrace(lambda *_: None)                              # frames that are entered from now on are left alone


def _limited_by_thread(body, seconds):
    failure, watch, grad = [], _Watch(seconds), torch.is_grad_enabled()

    def target():
        try:
            with torch.set_grad_enabled(grad):
                body()
        except BaseException as error:
            failure.append(error)

    worker = threading.Thread(target=target, daemon=True)
    worker.start()
    attempts = 0
    while worker.is_alive() and attempts < 20:
        if watch.look():
            _raise_in(worker.ident, ctypes.py_object(watch.over))
            attempts += 1
        worker.join(TICK)
    if attempts:
        _withdraw(worker.ident)
    if watch.over and not (failure and isinstance(failure[0], watch.over)):
        raise watch.over                       # it was swallowed, or the thread could not be stopped and is left behind
    if failure:
        raise failure[0]


def _raise_in(thread, exception):
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)


class _Served(BaseException):
    """Raised and caught in _withdraw."""


def _withdraw(thread):
    """What was to be raised in a thread that waits for ever, or that has ended, must not stay to be raised.

    Python 3.11 tells all threads that it is pending until some thread has raised one, and a thread with a profile
    function asks again and again at its next call, and in each signal's handler once more: until a RecursionError, or
    for ever.
    """
    _raise_in(thread, None)
    try:
        _raise_in(threading.get_ident(), ctypes.py_object(_Served))
        while True:                            # it is raised here at the latest
            pass
    except _Served:
        pass


# ---- what would wait, or end the process

_really = {"_exit": os._exit, "abort": os.abort, "input": builtins.input}    # a notebook has an input() of its own


def _halted(kind, text):
    def instead(*args, **kwargs):
        if not _running:                       # kept from an earlier check
            return None
        raise Halt(kind, text)
    return instead


def _sleep(seconds):
    """time.sleep, as long as the time that is left allows; a long one is named instead of waited for."""
    if _running and seconds >= 1 and seconds > _running[-1] - monotonic():
        raise Halt("timeout", f"it called time.sleep({seconds:g}): longer than it may take")
    sleep(seconds)


def _ended(name):
    def instead(code=None):
        if not _running:
            _really[name](*(() if code is None else (code,)))
        raise Halt("ended", f"it ended the whole process (os.{name}{'' if code is None else f', code {code}'}): "
                            "a function returns its result instead")
    return instead


def _input(prompt=""):
    if not _running:
        return _really["input"](prompt)
    if _in_debugger():
        raise Halt("debugger", DEBUGGER)
    raise Halt("asked", "it asked for input (`input()`), and nobody is there to answer: its arguments are all it gets")


DEBUGGER = ("it stopped for a debugger (`breakpoint()` or pdb), which a check cannot wait for: take that line out, "
            "or step through with debug=True")
_breakpoint = _halted("debugger", DEBUGGER)


def _in_debugger():
    frame = sys._getframe(1)
    while frame is not None:
        if re.search(r"[/\\](pdb|bdb|debugger)\.py$", frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


class NoInput(io.TextIOBase):
    """Stands for sys.stdin."""

    def readable(self):
        return True

    def _refuse(self, *_):
        if _in_debugger():
            raise Halt("debugger", DEBUGGER)
        raise Halt("asked",
                   "it reads from the keyboard (sys.stdin), and nobody is there to type: its arguments are all it gets")

    read = readline = readlines = __next__ = _refuse

    def __iter__(self):
        return self


PATCHES = [(builtins, "input", _input), (time, "sleep", _sleep), (sys, "breakpointhook", _breakpoint),
           (sys, "stdin", NoInput()), (os, "_exit", _ended("_exit")), (os, "abort", _ended("abort"))]


@contextlib.contextmanager
def _forbidden():
    before = [(thing, name, getattr(thing, name)) for thing, name, _ in PATCHES]
    if builtins.input is not _input:
        _really["input"] = builtins.input
    for thing, name, other in PATCHES:
        setattr(thing, name, other)
    try:
        yield
    finally:
        for thing, name, value in before:
            setattr(thing, name, value)


class Sink(io.TextIOBase):
    """Stands for sys.stdout: keeps the beginning of what is printed, and cannot be closed."""

    KEPT = 100_000             # characters

    def __init__(self):
        self.parts, self.room = [], self.KEPT

    def writable(self):
        return True

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self.room > 0:
            self.parts.append(text[: self.room])
            self.room -= len(text)
        return len(text)

    def text(self):
        return "".join(self.parts) + ("\n... (and more)" if self.room < 0 else "")

    def close(self):
        pass
