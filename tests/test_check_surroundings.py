"""A check neither depends on the state it is called in nor changes it, whatever the learner's function does to it."""

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

import numpy
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from flashlab.memory import Memory, active, kernel
from flashlab_course.check import check, checker, form, judge, limits

NAME = "ex03_safe_softmax"
MODELLED = "ex06_fa2_inner_loop"         # on modelled memory, with a kernel of its own


@pytest.fixture(autouse=True)
def here(sandbox):
    pass


def right(S):
    E = torch.exp(S - S.amax(-1, keepdim=True))
    return (E / E.sum(-1, keepdim=True)).nan_to_num(0)


def wrong(S):
    return right(S) * 2


class Refusing(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise RuntimeError("a function mode of the learner's")


class RefusingDispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise RuntimeError("a dispatch mode of the learner's")


@contextlib.contextmanager
def setting(put, value, normal):
    put(value)
    try:
        yield
    finally:
        put(normal)


@contextlib.contextmanager
def replaced(thing, name, value):
    before = getattr(thing, name)
    setattr(thing, name, value)
    try:
        yield
        assert getattr(thing, name) is value, f"the learner's {name} was not put back"
    finally:
        setattr(thing, name, before)


@contextlib.contextmanager
def a_directory_that_is_gone(path):
    before = os.getcwd()
    (path / "gone").mkdir()
    os.chdir(path / "gone")
    (path / "gone").rmdir()
    try:
        yield
    finally:
        os.chdir(before)


def as_errors():
    context = warnings.catch_warnings()
    context.__enter__()
    warnings.simplefilter("error")
    return contextlib.closing(type("", (), {"close": lambda self: context.__exit__(None, None, None)})())


def patched_everywhere():
    stack = contextlib.ExitStack()
    for thing, name in ((torch, "exp"), (torch, "zeros"), (torch.Tensor, "clone"), (torch.nn.functional, "softmax"),
                        (math, "sqrt"),
                        (time, "perf_counter"), (judge, "error_of"), (numpy, "asarray")):
        stack.enter_context(replaced(thing, name, lambda *_, **__: 1 / 0))
    return stack


AMBIENT = {
    "default device": lambda path: setting(torch.set_default_device, "meta", None),
    "device as a mode": lambda path: torch.device("meta"),
    "default float64": lambda path: setting(torch.set_default_dtype, torch.float64, torch.float32),
    "default float16": lambda path: setting(torch.set_default_dtype, torch.float16, torch.float32),
    "default bfloat16": lambda path: setting(torch.set_default_dtype, torch.bfloat16, torch.float32),
    "anomaly detection": lambda path: torch.autograd.detect_anomaly(check_nan=True),
    "no_grad": lambda path: torch.no_grad(),
    "inference mode": lambda path: torch.inference_mode(),
    "autocast": lambda path: torch.autocast("cpu", torch.bfloat16),
    "low precision": lambda path: setting(torch.set_float32_matmul_precision, "medium", "highest"),
    "NumPy raises": lambda path: numpy.errstate(all="raise"),
    "warnings are errors": lambda path: as_errors(),
    "an open Memory": lambda path: Memory(),
    "an open kernel": lambda path: opened_kernel(),
    "deterministic": lambda path: setting(torch.use_deterministic_algorithms, True, False),
    "a function mode": lambda path: Refusing(),
    "a dispatch mode": lambda path: RefusingDispatch(),
    "a directory that is gone": a_directory_that_is_gone,
    "no stdout": lambda path: replaced(sys, "stdout", None),
    "a closed stdin": lambda path: replaced(sys, "stdin", None),
    "replaced functions": lambda path: patched_everywhere(),
    "a replaced method": lambda path: added_method(),
    "no garbage collection": lambda path: setting(lambda on: gc.enable() if on else gc.disable(), False, True),
    "another locale": lambda path: setting(lambda name: locale.setlocale(locale.LC_ALL, name), "C.UTF-8",
                                           locale.setlocale(locale.LC_ALL)),
}


@contextlib.contextmanager
def opened_kernel():
    with Memory() as mem, kernel("the learner's"):
        yield
        assert active() is mem, "the learner's Memory is not in force any more"


@contextlib.contextmanager
def added_method():
    torch.Tensor.amax = lambda *_: 1 / 0                    # hides the one that a Tensor inherits
    try:
        yield
        assert "amax" in vars(torch.Tensor), "the learner's method was not put back"
    finally:
        del torch.Tensor.amax


def snapshot():
    """What a learner would notice if it were different afterwards."""
    return (torch.get_default_dtype(), torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack(),
            torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled(),
            torch.get_num_threads(),
            torch.is_autocast_enabled("cpu"), torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
            torch.utils.deterministic.fill_uninitialized_memory, numpy.geterr(), list(warnings.filters), active(),
            gc.isenabled(),
            sys.stdout, sys.stdin, sys.stderr, sys.getrecursionlimit(), locale.setlocale(locale.LC_ALL),
            dict(os.environ),
            signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL),
            random.getstate(), numpy.random.get_state()[1].tolist(), sys.gettrace(), torch.exp, default_device(),
            id(sys.path), list(sys.path), sys.modules["torch"], sys.modules.get("numpy"))


def default_device():
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return context and context.device


@pytest.mark.parametrize("ambient", AMBIENT)
def test_the_state_around_a_check_neither_breaks_it_nor_is_broken(ambient, tmp_path):
    solution, exercise = form.exercise(MODELLED).solution(), form.exercise(MODELLED)
    mistaken = exercise.wrong(*exercise.mistakes[:1])
    judge.expect.__defaults__[0].clear()                    # the truth too has to be computed in this state
    with AMBIENT[ambient](tmp_path):
        before = snapshot()
        reports = [check(NAME, right), check(NAME, wrong), check(MODELLED, solution), check(MODELLED, mistaken),
                   check(NAME), check("no_such_exercise"), check()]
        after = snapshot()
    assert reports[0].passed and reports[2].passed, "\n".join(map(str, reports))
    assert not reports[1].passed and "Every entry of P is 2 times" in reports[1].message, str(reports[1])
    assert reports[3].mistake == exercise.mistakes[0].name, str(reports[3])
    assert reports[4].mistake == "not_implemented" and reports[5].mistake == "unknown_exercise"
    assert [a for a, b in zip(before, after, strict=True) if a != b] == []
    assert check(NAME, right).passed


# ---- what the function itself leaves behind

def leaves_modes():
    torch.set_default_device("meta")
    Refusing().__enter__()


def leaves_open_memory():
    Memory().__enter__()
    RefusingDispatch().__enter__()


def leaves_nothing_of_torch():
    torch.exp = torch.sin
    torch.nn.functional.softmax = None
    torch.Tensor.sum = lambda *_: 0
    torch.Tensor.amax = None
    del torch.softmax


def leaves_no_builtins():
    builtins.max = min
    del builtins.len, builtins.isinstance, builtins.zip


def leaves_another_checker():
    judge.error_of = lambda *_: 0.0
    checker.examine = None
    limits.limited = None


def leaves_streams():
    sys.stdout.close()
    sys.stdout = sys.stderr = None


def leaves_no_directory():
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir(os.getcwd())


LEFT = {
    "modes": (leaves_modes, "the default device"),
    "an open Memory": (leaves_open_memory, "the stack of PyTorch's modes"),
    "torch": (leaves_nothing_of_torch, "torch.exp"),
    "F": (leaves_nothing_of_torch, "F.softmax"),
    "a Tensor's methods": (leaves_nothing_of_torch, "Tensor.amax"),
    "builtins": (leaves_no_builtins, "builtins.len"),
    "math": (lambda: setattr(math, "pi", 3), "math.pi"),
    "another checker": (leaves_another_checker, "flashlab_course.check.judge.error_of"),
    "streams": (leaves_streams, None),
    "a directory": (leaves_no_directory, "the working directory"),
    "no grad": (lambda: torch.set_grad_enabled(False), "grad mode"),
    "the default dtype": (lambda: torch.set_default_dtype(torch.float64), "the default dtype"),
    "the recursion limit": (lambda: sys.setrecursionlimit(777), "the recursion limit"),
    "inference mode": (lambda: KEPT.append(torch.inference_mode().__enter__()), None),
    "anomaly detection": (lambda: torch.set_anomaly_enabled(True), "anomaly detection"),
    "NumPy": (lambda: numpy.seterr(all="raise"), "NumPy's handling of errors"),
    "autocast": (lambda: KEPT.append(torch.autocast("cpu").__enter__()), "autocast"),
    "the interrupt": (lambda: signal.signal(signal.SIGINT, signal.SIG_IGN), None),
    "a module": (lambda: sys.modules.update(torch=None), "sys.modules['torch']"),
    "a module that is gone": (lambda: sys.modules.pop("numpy"), "sys.modules['numpy']"),
    "where imports look": (lambda: sys.path.clear(), "sys.path"),
    "another list of where imports look": (lambda: setattr(sys, "path", list(sys.path)), "sys.path"),
    "a trace": (lambda: sys.settrace(lambda *_: None), None),
    "warnings": (lambda: warnings.simplefilter("error"), None),
    "the environment": (os.environ.clear, "the environment variables"),
}
KEPT = []


@pytest.mark.parametrize("what", LEFT)
def test_what_a_function_changes_is_put_back_and_named(what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    change, name = LEFT[what]

    def careless(S):
        P = right(S)
        change()
        return P

    before = snapshot(), math.pi, os.getcwd(), vars(torch.Tensor).get("amax")
    report = check(NAME, careless)
    assert before == (snapshot(), math.pi, os.getcwd(), vars(torch.Tensor).get("amax"))
    assert report.passed == (name is None) and (name or "") in report.message, str(report)
    assert name is None or report.mistake == "global_state"
    assert check(NAME, right).passed and not check(NAME, wrong).passed, "the next check goes by what was left"


def test_a_learners_patch_stays_theirs_and_does_not_become_the_truth(monkeypatch):
    """torch.exp is counted from a cell: the check runs without it, and it is there again afterwards."""
    calls = []

    def counted(x):
        calls.append(1)
        return x * 0

    monkeypatch.setattr(torch, "exp", counted)
    report = check("ex03_merge", form.exercise("ex03_merge").solution())
    assert report.passed and not calls and torch.exp is counted, str(report)


def test_figures_of_the_function_are_closed_and_others_stay():
    plt = pytest.importorskip("matplotlib.pyplot")
    mine = plt.figure().number

    def draws(S):
        plt.figure()
        return right(S)

    assert check(NAME, draws).passed
    assert plt.get_fignums() == [mine], "a notebook would show a figure for every case below the verdict"
    plt.close(mine)


def test_two_threads_take_turns(monkeypatch):
    monkeypatch.setattr(form.exercise(NAME), "seconds", 20)    # a busy machine is no fault of theirs
    runs, reports = threading.Event(), []

    def slow(S):
        runs.set()
        time.sleep(0.05)                               # the others come while a learner's code runs
        return right(S)

    threads = [threading.Thread(target=lambda fn=fn: reports.append(check(NAME, fn)))
               for fn in (slow, wrong, right, wrong)]
    threads[0].start()
    assert runs.wait(60)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(report.passed for report in reports) == [False, False, True, True], "\n".join(map(str, reports))


def test_a_check_inside_a_check_says_so_and_the_outer_one_goes_on():
    """The usual last line of a cell, left in the file."""
    inner = []

    def checks_itself(S):
        inner.append(check(NAME, right))
        return right(S)

    assert check(NAME, checks_itself).passed
    assert inner[0].mistake == "nested" and not inner[0].passed


def test_imports_that_wrap_torch_are_no_fault():
    """torch's compiler wraps torch.manual_seed as it is loaded."""
    def compiles(S):
        import torch._dynamo  # noqa: F401
        return right(S)

    assert check(NAME, compiles).passed, str(check(NAME, compiles))
