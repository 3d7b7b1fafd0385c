"""An exercise in a process of its own: what ends the process, or never returns, costs that exercise alone.

The limits inside (limits.py) come first and know the line. Here is what is left: a crash, an exit, a call into C that
holds on.
"""

import faulthandler
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import warnings
from multiprocessing import connection
from pathlib import Path

import torch

from flashlab.memory import format_bytes
from flashlab_course.check import checker, form, limits, runner, source
from flashlab_course.check.report import Report

GRACE = 1.5                    # seconds beyond a limit before the process is ended
# seconds that the checker itself may take from one run to the next: a __del__ can end up there
BETWEEN = 60
FACTOR = 1.25                  # of memory beyond the limit inside
POLL = 0.1                     # seconds between two looks at the memory


def checked_apart(name, hint=False):
    """checker.checked(name, hint=hint, terminal=True), in a process of its own."""
    started = context()
    if started.get_start_method() == "fork":
        runner.import_for(form.exercise(name))           # once, and shared by all processes that fork from this one
    receiver, sender = started.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        with warnings.catch_warnings():
            # of fork in a process with threads: see context()
            warnings.simplefilter("ignore", DeprecationWarning)
            process = started.Process(target=_child, args=(sender, name, hint, str(trace), sys.path), daemon=False)
            process.start()
        sender.close()
        try:
            report, too_much = _wait(process, receiver)
        finally:
            process.kill()
            process.join()
        if report is None:
            report = _lost(name, process.exitcode, too_much,
                           trace.read_text(errors="replace") if trace.exists() else "")
    return report


def context():
    """fork shares what is imported, and takes no time. But CUDA does not survive it, nor do macOS's libraries."""
    if sys.platform == "linux" and not torch.cuda.is_available():
        return multiprocessing.get_context("fork")
    methods = multiprocessing.get_all_start_methods()
    server = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        server.set_forkserver_preload(["torch"])
    return server


def _child(sender, name, hint, trace, path):
    """Runs there. PyTorch's threads do not live on after a fork, and one is enough: the cases are tiny."""
    sys.path[:] = path
    torch.set_num_threads(1)
    file = open(trace, "w")                            # noqa: SIM115    as long as the process lives
    for stream in (1, 2):                              # what C code prints goes where Python's last words go
        os.dup2(file.fileno(), stream)
    faulthandler.enable(file)
    limits.Last.arm = staticmethod(lambda seconds: faulthandler.dump_traceback_later(seconds + GRACE, exit=True,
                                                                                     file=file))
    limits.Last.disarm = staticmethod(lambda: limits.Last.arm(BETWEEN))
    try:
        sender.send(checker.checked(name, hint=hint, terminal=True))
    except KeyboardInterrupt:                          # Ctrl-C reaches both processes; the other one says so
        pass


def _wait(process, receiver):
    """(the Report, whether memory ran over); None for a Report that never came."""
    floor = resident_of(process.pid)
    while not connection.wait([receiver, process.sentinel], POLL):
        if resident_of(process.pid) - floor > FACTOR * limits.MEMORY:
            return None, True
    try:
        return (receiver.recv() if receiver.poll() else None), False
    except (EOFError, OSError):
        return None, False


def resident_of(pid):
    """Bytes of memory of a process, 0 where Linux does not tell."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


# ---- a process that did not answer

def _lost(name, code, too_much, trace):
    path = source.exercise_path(name)
    mistake, said = _why(code, too_much, trace)
    lines = re.findall(rf'File "{re.escape(str(path))}", line (\d+) in (\S+)', trace)
    own = [f"exercises/{path.name}, line {n}, in {function}: {_code(path, n)}" for n, function in lines]
    return Report(False, name, mistake=mistake, trace="\n".join(own[:6][::-1]),
                  message=f"Your code could not be judged: {said}. It ran in a process of its own, so nothing else is "
                          "lost.")


def _why(code, too_much, trace):
    if too_much:
        return "memory", f"it needed more than {format_bytes(limits.MEMORY)}"
    if "Timeout (" in trace:
        return "timeout", "it did not come back from a call into C, long after its time was over"
    if code < 0:
        words = signal.strsignal(-code) or signal.Signals(-code).name
        known = {signal.SIGSEGV: "it crashed the process (segmentation fault)",
                 signal.SIGABRT: "it aborted the process",
                 signal.SIGKILL: "its process was killed, perhaps because the machine ran out of memory"}
        return "crash", known.get(-code, f"its process was ended by a signal ({words.lower()})")
    return "ended", f"it ended the whole process (os._exit, code {code})"


def _code(path, number):
    try:
        return path.read_text(encoding="utf-8").splitlines()[int(number) - 1].strip()
    except (OSError, ValueError, IndexError):
        return ""
