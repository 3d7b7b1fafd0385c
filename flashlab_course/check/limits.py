"""What a learner's code may take, and what is kept of its output.

A deadline raises TimeUp at the line that runs too long. In a process of its own (process.py) a second one ends the
process where nothing in Python is heard any more.
"""

import contextlib
import faulthandler
import io
import signal
import threading
import warnings

import torch

TICK = 0.05                    # seconds between two TimeUps: an `except:` in a loop swallows them
GRACE = 1.5                    # seconds beyond a deadline before the process is ended
BETWEEN = 60                   # seconds that the checker itself may take between two runs: a __del__ can hang there
MEMORY = 4 * 2**30             # bytes that code may take beyond what is there when it starts
KEPT = 100_000                 # characters of what is printed

last_words = None              # the file for the stack of a process that is ended: set in a process of its own


class TimeUp(BaseException):
    """Raised inside code that takes too long. Not an Exception: `except Exception` must not catch it."""


def _end_process_after(seconds):
    if last_words is not None:
        with contextlib.suppress(RuntimeError):        # no memory is left for the thread that waits
            faulthandler.dump_traceback_later(seconds, exit=True, file=last_words)


def caught(body, seconds, sink):
    """What body() raised within its limits, whatever that is; None if nothing. What it prints goes to the sink.

    Without an alarm (Windows, other threads) only a process of its own can be ended.
    """
    alarms = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    rings, done, raised = [], [], None

    def ring(*_):
        if not done:
            rings.append(True)
            raise TimeUp

    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        warnings.simplefilter("ignore")
        _end_process_after(seconds + GRACE)
        if alarms:
            old = signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, seconds, TICK)
        try:
            try:
                body()
            finally:
                done.append(True)
        except BaseException as error:
            raised = error
        if alarms:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)
        _end_process_after(BETWEEN)
    torch.set_default_dtype(dtype)                     # with which the checker computes, and the next case
    if torch.get_default_device() != device:           # to set one slows down every operation
        torch.set_default_device(None)
    # it may have caught TimeUp, and raised something else
    return TimeUp() if rings and not isinstance(raised, TimeUp) else raised


def protected(body, seconds):
    """(what body() returned, None), or (None, the exception); what it prints is dropped."""
    box = []
    error = caught(lambda: box.append(body()), seconds, Sink())
    return (box[0], None) if error is None else (None, error)


class Sink(io.StringIO):
    """Stands for sys.stdout: keeps the beginning of what is printed, and cannot be closed."""

    def write(self, text):
        super().write(text[: max(0, KEPT - self.tell())])
        return len(text)

    def close(self):
        pass
