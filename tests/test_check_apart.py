"""A learner's code runs in a process of its own: it cannot harm the one that asks, nor is it harmed by that one."""

import functools
import os
import random
import signal
import sys
import threading
import time

import pytest
import torch
from torch.overrides import TorchFunctionMode

from flashlab import __main__
from flashlab.memory import Memory, active
from flashlab_course.check import check, checker, form, limits, process, progress, source

NAME = "ex03_safe_softmax"
MODELLED = "ex06_fa2_inner_loop"         # on modelled memory, with a kernel of its own
SECONDS = 0.4                            # the deadline in these tests, where it can be shortened
FACTOR = 2


@pytest.fixture(autouse=True)
def impatient(sandbox, monkeypatch):
    monkeypatch.setattr(form.exercise(NAME), "seconds", SECONDS)
    monkeypatch.setattr(limits, "GRACE", 0.3)


def right(S):
    E = torch.exp(S - S.amax(-1, keepdim=True))
    return (E / E.sum(-1, keepdim=True)).nan_to_num(0)


def wrong(S):
    return right(S) * FACTOR


def deadline(fn):
    """The Report on fn from a fork of this process, where the short deadline is known."""
    return checker.answer(form.exercise(NAME), fn, here=True)


# ---- what ends the process, or holds it

def forever(S):
    while True:
        pass


def deaf(S):
    while True:
        try:
            time.sleep(0.001)
        except:  # noqa: E722    just what a learner may write
            pass


def hides_the_time(S):
    try:
        forever(S)
    except BaseException:
        raise ValueError("something else") from None


def grows(S):
    kept = []
    while True:
        kept.append(bytearray(2**24))


def prints(S):
    while True:
        print("x" * 1000)


def breaks(S):
    breakpoint()
    return S


def waits(S):
    threading.Event().wait()


linux = pytest.mark.skipif(sys.platform != "linux", reason="signals and their names")


@linux
@pytest.mark.parametrize("fn, mistake, words", [
    (lambda S: os._exit(0), "ended", "it ended the whole process (os._exit, code 0)"),
    (lambda S: __import__("ctypes").string_at(0), "crash", "its process was ended by a signal (Segmentation fault)"),
    (lambda S: os.kill(os.getpid(), 9), "crash", "its process was ended by a signal (Killed), perhaps because"),
    (lambda S: sum(__import__("itertools").repeat(0)), "timeout", "it went on long after its time was over"),
    (deaf, "timeout", "it went on long after its time was over"),
    (forever, "timeout", "stopped after 0.4 seconds; is there a loop that never ends?"),
    (hides_the_time, "timeout", "stopped after 0.4 seconds"),
    (prints, "timeout", "stopped after 0.4 seconds"),
    (waits, "timeout", "stopped after 0.4 seconds"),
    (lambda S: torch.zeros(2**30), "memory", "it needed more than 256.0 MiB of memory"),
    (grows, "memory", "it needed more than 256.0 MiB of memory"),
    (lambda S: input("P? "), "raised", "A check has no keyboard"),
    (breaks, "raised", "A check has no keyboard"),
    (lambda S: sys.exit(3), "raised", "it raised SystemExit: 3"),
])
def test_it_costs_this_answer_alone(fn, mistake, words, monkeypatch):
    monkeypatch.setattr(form.exercise(NAME), "seconds", 20 if fn is grows else SECONDS)
    monkeypatch.setattr(limits, "MEMORY", 2**28)
    started = time.perf_counter()
    report = deadline(fn)
    assert (report.mistake, report.passed) == (mistake, False) and words in report.message, str(report)
    assert len(report.printed) < 5000 and time.perf_counter() - started < 15


def test_the_line_that_was_lost_is_shown():
    write("import ctypes\n" + GOOD.replace("    return", "    ctypes.string_at(0)\n    return"))
    trace = checker.answer(form.exercise(NAME), here=True).trace
    assert f"my/exercises/{NAME}.py, line 6, in safe_softmax: ctypes.string_at(0)" in trace
    assert "your cell, line" in deadline(deaf).trace


def test_a_fork_of_the_process_does_not_answer_twice():
    def forks(S):
        os.fork()
        return right(S)

    assert deadline(forks).passed


def test_a_deadline_is_not_lost_in_the_memory_models_own_code(monkeypatch):
    """Most of this loop is spent in finalizers, where Python drops an exception."""
    monkeypatch.setattr(form.exercise(MODELLED), "seconds", SECONDS)
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: None)         # the alarm may ring in pytest's own hook

    def loops(*given):
        while True: torch.zeros(1)  # noqa: E701

    assert checker.examine(form.exercise(MODELLED), loops).mistake == "timeout"


# ---- what the server's process does not reach

class Refusing(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise RuntimeError("a function mode of the learner's")


def leaves_a_mess(S):
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    random.seed(0)
    torch.exp, torch.Tensor.amax = torch.sin, None
    sys.setrecursionlimit(777)
    os.environ.clear()
    os.chdir("/")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path.clear()
    threading.Thread(target=time.sleep, args=(99,)).start()
    sys.stdout.close()
    return S


def state():
    return (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_rng_state().tolist(), random.getstate(),
            torch.exp, torch.Tensor.amax, sys.getrecursionlimit(), dict(os.environ), os.getcwd(), list(sys.path),
            signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM), threading.active_count(), sys.stdout,
            active(), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())


def test_nothing_it_does_reaches_the_caller():
    before = state()
    assert not check(NAME, leaves_a_mess).passed
    assert state() == before and check(NAME, right).passed


@pytest.mark.parametrize("name, setting", [(NAME, 'device("meta")'), ("ex07_traffic_naive", "dtype(torch.float64)")])
def test_a_setting_that_a_file_leaves_changed_spoils_no_verdict(name, setting):
    text = source.solution_text(name) + f"\nimport torch\ntorch.set_default_{setting}\n"
    source.put(source.exercise_path(name), text)
    report = check(name)
    assert report.passed, str(report)


@pytest.mark.parametrize("mode", [Refusing, Memory, torch.inference_mode, lambda: torch.device("meta"),
                                  lambda: torch.autocast("cpu", torch.bfloat16)])
def test_the_callers_state_does_not_matter(mode, monkeypatch):
    mistaken = form.exercise(MODELLED).wrong(*form.exercise(MODELLED).mistakes[:1])
    monkeypatch.setattr(torch, "softmax", lambda *_: 1 / 0)
    torch.set_default_dtype(torch.float64)
    try:
        with mode():
            reports = [check(NAME, right), check(NAME, wrong), check(MODELLED, mistaken)]
    finally:
        torch.set_default_dtype(torch.float32)
    assert reports[0].passed and "P[0, 0] is " in reports[1].message, str(reports[1])
    assert reports[2].mistake == form.exercise(MODELLED).mistakes[0].name


def test_autograd_that_was_used_before_does_not_matter():
    """A fork of a process that has used it cannot use it again."""
    torch.ones(1, requires_grad=True).sum().backward()
    name = "ex08_autograd_function"
    assert check(name, form.exercise(name).wrong()).passed


def test_in_threads_at_once_and_within_itself():
    reports = []
    threads = [threading.Thread(target=lambda fn=fn: reports.append(check(NAME, fn))) for fn in (right, wrong, right)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(report.passed for report in reports) == [False, True, True]

    itself = f"assert check('{NAME}', safe_softmax).mistake == 'nested'"
    write(f"from flashlab_course.check import check\n{GOOD}\n{itself}\n")
    assert check(NAME).passed, "the usual last line of a cell, left in the file"


def test_an_interrupt_ends_the_check_and_its_process(tmp_path):
    """Ctrl-C, or the notebook's stop button."""
    def slow(S):
        (tmp_path / "pid").write_text(str(os.getpid()))
        time.sleep(60)

    assert check(NAME, right).passed
    main = threading.get_ident()

    def stop():
        while not (tmp_path / "pid").exists():
            time.sleep(0.01)
        time.sleep(0.1)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=stop).start()
    with pytest.raises(KeyboardInterrupt):
        check(NAME, slow)
    for _ in range(100):
        if not os.path.exists(f"/proc/{(tmp_path / 'pid').read_text()}"):
            break
        time.sleep(0.05)
    else:
        pytest.fail("the learner's process lives on")
    assert check(NAME, right).passed


def test_without_fork_each_server_runs_one_answer(monkeypatch):
    """As on Windows."""
    monkeypatch.setattr(process, "_server", None)
    monkeypatch.setattr(process, "FORK", False)
    monkeypatch.setattr(process, "SERVER", process.SERVER.replace("process.serve", "process.FORK = 0; process.serve"))
    write(GOOD)
    assert check(NAME).passed
    assert "code 5" in check(NAME, lambda S: os._exit(5)).message


def test_the_checkers_own_failure_is_no_verdict(monkeypatch):
    monkeypatch.setattr(checker, "_answer", lambda *_: 1 / 0)
    report = check(NAME, right)
    assert report.mistake == "checker_failed" and "ZeroDivisionError" in report.message, str(report)


# ---- what travels

def even(n):
    return n == 0 or odd(n - 1)


def odd(n):
    return n != 0 and even(n - 1)


class Base:
    """A class of the learner's."""

    scale = FACTOR

    def __init__(self, x):
        super().__init__()
        self.x = x

    @property
    def twice(self):
        return Base.scale * self.x

    @staticmethod
    def same(x):
        return x


TABLE = {"a": torch.ones(2)}


def uses(x, *, more=3):
    return even(x), Base(x).twice + more, Base.same(TABLE["a"]).tolist(), functools.reduce(max, [x])


def counter(start):
    def count(n=1):
        nonlocal start
        start += n
        return start
    return count


def test_a_function_travels_with_all_that_it_names():
    for fn, args in ((uses, (4,)), (counter(3), ()), (functools.partial(uses, 2), ()), (lambda x: even(x), (3,))):
        assert process.apart(fn, *args) == fn(*args)
    assert process.unpack(process.pack(Base(3))).twice == 6


def test_a_function_that_cannot_travel_is_refused_in_words():
    lock = threading.Lock()
    assert "cannot be taken to the process" in check(NAME, lambda S: lock).message


# ---- from the terminal

GOOD = """import torch

def safe_softmax(S):
    E = (S - S.amax(1, True)).exp()
    return (E / E.sum(1, True)).nan_to_num(0)
"""


def write(text, name=NAME):
    source.exercise_path(name).write_text(text, encoding="utf-8")


@linux
def test_the_overview_survives_every_accident(capsys):
    write("import os\n" + GOOD.replace("    return", "    os._exit(0)\n    return"))
    write("import ctypes\nctypes.string_at(0)\n", "ex03_merge")          # while it is loaded
    write(source.solution_path("ex05_tile_sizes").read_text(encoding="utf-8"), "ex05_tile_sizes")
    assert __main__.main(["check"]) == 1
    out = capsys.readouterr().out
    assert "not yet: ended" in out and "not yet: crash" in out and f"1 of {len(form.names())} passed." in out
    assert "ex11_dropout" in out, "the table is cut off"


def test_prints_and_hints_come_back():
    write(GOOD.replace("    return", "    print('S is', S.shape)\n    return 2 *"))
    report = check(NAME, hint=True)
    assert "S is torch.Size" in report.printed and "Hint 1 of" in report.hint and report.where[1] == "P"
    assert progress.of(NAME)["hints"] == 1
