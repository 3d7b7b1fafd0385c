"""The one way to run a learner's code: in a process of its own, with a deadline and a limit of memory.

Settings, patches, threads and memory end with that process. It is forked from a server, a Python that has imported
PyTorch, which takes some 2 seconds at the first call. A notebook's kernel is not forked itself, because autograd and
CUDA do not survive a fork once they have been used. Without a GPU the command `flashlab check` is its own server.
Windows has no fork: there the server runs one call and ends with it. Only Linux enforces the limit of memory.

Functions and classes of a learner's travel by value, since another process cannot import a notebook's cell. The lines
of the cell travel with them: tracebacks show them, and Triton compiles them.
"""

import contextlib
import faulthandler
import functools
import importlib
import io
import linecache
import os
import pickle
import pydoc
import re
import signal
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from multiprocessing import connection
from pathlib import Path

import cloudpickle
import torch

from flashlab_course.check import limits

FORK = hasattr(os, "fork")
SERVER = "import sys; sys.path[:] = {path!r}; from flashlab_course.check import process; process.serve()"

inside = False                 # is this a process for a learner's code?
_lock, _server = threading.Lock(), None


class Lost(Exception):
    """The process ended before it was done. kind and text as in a Problem; lines(file) are the last that ran there."""

    def __init__(self, code, trace):
        super().__init__(code, trace)
        self.trace = trace
        if "Timeout (" in trace:
            self.kind = "timeout"
            self.text = "it went on long after its time was over: in a call into C, or catching every exception"
        elif code < 0:
            perhaps = ", perhaps because the machine ran out of memory" if code == -signal.SIGKILL else ""
            self.kind = "crash"
            self.text = f"its process was ended by a signal ({signal.strsignal(-code)}){perhaps}"
        else:
            self.kind = "ended"
            self.text = f"it ended the whole process (os._exit, code {code})"

    def lines(self, file):
        """[(line number, function)], the innermost last."""
        found = re.findall(rf'File "{re.escape(file)}", line (\d+) in (\S+)', self.trace)
        return [(int(line), function) for line, function in found[:6][::-1]]


def apart(work, *args, imports=(), here=False):
    """work(*args), from a process of its own. Raises: Lost, and RuntimeError for what work raised

    imports: modules that take long, which the server imports once. here: this process may be forked itself
    """
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        if here and sys.platform == "linux" and not torch.cuda.is_available():
            load(imports)
            code, reply = _forked(lambda: work(*args), trace)
        else:
            packed = pack((work, args))
            code, reply = _ask((imports, trace, packed, dict(os.environ), os.getcwd(), sys.path))
        if reply is None:
            raise Lost(code, trace.read_text(errors="replace") if trace.exists() else "")
    result, error = pickle.loads(reply)
    if error:
        raise RuntimeError(error)
    return result


# ---- what travels

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


# ---- the server, as seen from the caller

def _ask(request):
    """(exit code, reply) of the server. An interrupt ends the server, and the process that it waits for."""
    global _server
    with _lock:
        if _server is None or _server.poll() is not None:
            _server = subprocess.Popen([sys.executable, "-c", SERVER.format(path=sys.path)], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, start_new_session=True,
                                       env=os.environ | {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"})   # asks without CUDA
        server, _server = _server, None
        try:
            pickle.dump(request, server.stdin)
            server.stdin.flush()
            answer = pickle.load(server.stdout)
        except (EOFError, BrokenPipeError):            # without fork it was the learner's process as well
            return server.wait(), None
        except BaseException:
            server.stdin.close()
            raise
        _server = server if FORK else None
        return answer


# ---- the server itself

def serve():
    """Run requests until the caller is gone."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)                                      # what an import prints is no reply

    def send(code, reply):
        pickle.dump((code, reply), replies)
        replies.flush()

    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            imports, trace, *request = pickle.load(requests)
            load(imports)
            body = functools.partial(_work, *request)
            if not FORK:
                _run(body, trace, lambda reply: send(0, reply))
            send(*_forked(body, trace, [requests]))


def load(modules):
    for module in modules:
        importlib.import_module(module)


def _work(packed, environment, directory, path):
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.path[:] = path
    work, args = unpack(packed)
    return work(*args)


def _forked(body, trace, gone=()):
    """(exit code, what body() returned, pickled; None if its process ended first).

    gone: ends the process once one of these can be read: the caller has closed its end
    """
    receiver, sender = connection.Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)        # of fork in a process with threads
        child = os.fork()
    if child == 0:
        os.setpgrp()
        _run(body, trace, sender.send_bytes)
    sender.close()
    reply = None
    try:
        with contextlib.suppress(EOFError), receiver:
            if receiver in connection.wait([receiver, *gone]):
                reply = receiver.recv_bytes()
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, reply


# ---- the process of the learner's code

def _run(body, trace, send):
    """Send what body() returns, and end the process."""
    global inside
    inside, process, file = True, os.getpid(), open(trace, "w")    # noqa: SIM115    as long as the process lives
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    sys.stdin, sys.stdout, sys.stderr = open(0), limits.Sink(), limits.Sink()      # noqa: SIM115
    sys.breakpointhook = sys.__breakpointhook__
    faulthandler.enable(file)
    limits.last_words = file
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)                           # PyTorch's threads do not survive a fork
    _limit_memory()
    try:
        reply = body(), None
    except BaseException as error:
        reply = None, f"{type(error).__name__}: {error}"
    if os.getpid() == process:                         # not a process that the code has forked
        send(pickle.dumps(reply))
    os._exit(0)


def _limit_memory():
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # not on Windows
        used = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
        resource.setrlimit(resource.RLIMIT_DATA, (int(used[1]) * 1024 + limits.MEMORY,) * 2)
