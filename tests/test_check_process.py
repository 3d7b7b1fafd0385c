"""From the terminal an exercise has a process of its own: what ends it, or holds it, costs that exercise alone."""

import os
import subprocess
import sys
import time

import pytest

from flashlab import __main__
from flashlab_course import command
from flashlab_course.check import (
    check,
    checker,
    cli,
    form,
    limits,
    overview,
    process,
    progress,
    source,
    stubs,
    watching,
)

NAME = "ex03_safe_softmax"
GOOD = """import torch

def safe_softmax(S):
    E = (S - S.amax(1, True)).exp()
    return (E / E.sum(1, True)).nan_to_num(0)
"""
C = """import ctypes, itertools, os, threading, time
libc = ctypes.CDLL(None)

def safe_softmax(S):
    {}
    return S
"""


@pytest.fixture(autouse=True)
def impatient(sandbox, monkeypatch):
    monkeypatch.setattr(form.exercise(NAME), "seconds", 0.4)
    monkeypatch.setattr(process, "GRACE", 0.3)


def write(text, name=NAME):
    source.exercise_path(name).write_text(text, encoding="utf-8")


linux = pytest.mark.skipif(sys.platform != "linux", reason="calls libc")


@linux
@pytest.mark.parametrize("line, mistake, words", [
    ("libc._exit(3)", "ended", "it ended the whole process (os._exit, code 3)"),
    ("libc._exit(0)", "ended", "it ended the whole process (os._exit, code 0)"),
    ("ctypes.string_at(0)", "crash", "it crashed the process (segmentation fault)"),
    ("libc.abort()", "crash", "it aborted the process"),
    ("os.kill(os.getpid(), 9)", "crash", "its process was killed"),
    ("os.kill(os.getpid(), 15)", "crash", "its process was ended by a signal (terminated)"),
    ("threading.Thread(target=lambda: libc._exit(5)).start(); time.sleep(0.3)", "ended", "code 5"),
    ("sum(itertools.repeat(0))", "timeout", "it did not come back from a call into C"),
])
def test_what_ends_the_process_is_said_and_nothing_else_is_lost(line, mistake, words):
    write(C.format(line))
    started = time.perf_counter()
    report = process.checked_apart(NAME)
    assert (report.mistake, report.passed) == (mistake, False) and words in report.message, str(report)
    assert time.perf_counter() - started < 10
    write(GOOD)
    assert process.checked_apart(NAME).passed


@linux
@pytest.mark.parametrize("line", ["ctypes.string_at(0)", "sum(itertools.repeat(0))"])
def test_the_line_that_was_lost_is_shown(line):
    write(C.format(line))
    assert f"exercises/{NAME}.py, line 5, in safe_softmax: {line}" in process.checked_apart(NAME).trace


def test_memory_without_end(monkeypatch):
    """Below the time limit: a list of arrays that grows."""
    monkeypatch.setattr(limits, "MEMORY", 200 * 2**20)
    monkeypatch.setattr(form.exercise(NAME), "seconds", 20)
    forever = "    while True:\n        sum(range(100_000))\n        kept.append(bytearray(2**20))\n"
    grows = GOOD.replace("    return", f"    kept = []\n{forever}    return")
    write(grows)
    report = process.checked_apart(NAME)
    assert report.mistake == "memory" and "it needed more than 200.0 MiB" in report.message, str(report)
    assert "kept.append(bytearray(2**20))" in report.trace or "sum(range(100_000))" in report.trace
    report = check(NAME)                                     # in this process, as in a notebook
    assert report.mistake == "memory" and limits.resident() < 2 * 2**30, str(report)


@linux
def test_memory_that_one_call_takes_is_seen_from_outside(monkeypatch):
    monkeypatch.setattr(limits, "MEMORY", 100 * 2**20)
    monkeypatch.setattr(form.exercise(NAME), "seconds", 20)
    write(C.format("list(itertools.repeat(0, 10**9))"))
    report = process.checked_apart(NAME)
    assert report.mistake == "memory" and "it needed more than" in report.message, str(report)


def test_a_fork_of_the_process_does_not_answer_twice():
    write("import os\n" + GOOD.replace("    return", "    os.fork()\n    return") if hasattr(os, "fork") else GOOD)
    assert process.checked_apart(NAME).passed


def test_what_it_prints_and_hints_come_over():
    write(GOOD.replace("    return", "    print('S is', S.shape)\n    return 2 *"))
    report = process.checked_apart(NAME, hint=True)
    assert "S is torch.Size" in report.printed and "Hint 1 of" in report.hint and report.where[1] == "P"
    assert progress.of(NAME)["hints"] == 1, "what the other process learns is lost"


@pytest.mark.parametrize("method", ["spawn"])
def test_it_works_where_a_process_starts_from_nothing(method, monkeypatch, sandbox):
    import multiprocessing

    monkeypatch.setattr(process, "context", lambda: multiprocessing.get_context(method))
    write(GOOD)
    assert process.checked_apart(NAME).passed


@linux
def test_the_overview_survives_every_accident(sandbox, capsys):
    write(C.format("libc._exit(0)"))
    write("import ctypes\nctypes.string_at(0)\n", "ex03_merge")          # while it is loaded
    write(source.solution_path("ex05_tile_sizes").read_text(encoding="utf-8"), "ex05_tile_sizes")
    assert cli.main([]) == 1
    out = capsys.readouterr().out
    assert "not yet: ended" in out and "not yet: crash" in out and f"1 of {len(form.names())} passed." in out
    assert "ex11_dropout" in out, "the table is cut off"


# ---- --watch

def rounds(monkeypatch, *actions):
    """A pause that does the next of these things, and in the end is interrupted."""
    todo = iter(actions)

    def pause():
        action = next(todo, None)
        if action is None:
            raise KeyboardInterrupt
        action()

    monkeypatch.setattr(watching, "pause", pause)


def test_watching_checks_what_is_saved_and_goes_on_after_a_pass(sandbox, capsys, monkeypatch):
    name = "ex05_tile_sizes"
    solution = source.solution_path(name).read_text(encoding="utf-8")
    rounds(monkeypatch, lambda: write(solution.replace("return", "return 1,"), name), lambda: None,
           lambda: write(solution, name))
    assert cli.main(["--watch", name]) == 0
    out = capsys.readouterr().out
    assert out.count(f"{name}: not implemented yet") == 1, "checked again though nothing was saved"
    assert out.count(f"{name}: not yet") == 1 and out.count(f"{name}: passed") == 1
    following = form.names()[form.names().index(name) + 1]
    assert f"Next: {following}" in out and f"{following}: not implemented yet" in out


def test_watching_begins_with_what_comes_next_and_ends_with_the_last(sandbox, capsys, monkeypatch):
    rounds(monkeypatch)
    for name in form.names():
        progress.update(name, passed=name != NAME)
    write(GOOD)
    assert cli.main(["--watch"]) == 0
    assert "Every exercise has passed." in capsys.readouterr().out and progress.of(NAME)["passed"]
    with pytest.raises(SystemExit):
        cli.main(["--watch", "ex03"])
    assert "takes one exercise: ex03_safe_softmax," in capsys.readouterr().err


# ---- the commands that are printed

def test_a_command_names_the_python_that_runs_it(monkeypatch, tmp_path):
    below = tmp_path / ".venv/bin/python"
    below.parent.mkdir(parents=True)
    below.symlink_to(sys.executable)
    other = tmp_path / "other/python"
    other.parent.mkdir()
    other.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(below))
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.setenv("PATH", str(other.parent))
    monkeypatch.chdir(tmp_path)
    assert command.line("check", "ex03") == ".venv/bin/python -m flashlab check ex03"
    monkeypatch.chdir(other.parent)
    assert command.python() == str(below), "a relative path is right below the working directory only"
    monkeypatch.setenv("PATH", str(below.parent))
    assert command.python() == "python", "an environment that is activated needs no path"
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    assert command.python() == str(below), "a notebook's terminal has a PATH and a folder of its own"
    monkeypatch.setattr(sys, "executable", str(tmp_path / "a b/python"))
    assert command.python() == f"'{tmp_path}/a b/python'", "a space ends the word"


def test_every_command_that_is_printed_runs_from_anywhere(sandbox, tmp_path_factory):
    """As in a terminal whose python has no torch: the printed text alone, in another folder, with nothing on PATH."""
    write(GOOD)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ipykernel", object())
        printed = checker.checked(NAME, terminal=True).offer.split("`")[1]
    run = subprocess.run(printed, shell=True, capture_output=True, text=True, cwd=tmp_path_factory.mktemp("elsewhere"),
                         env=os.environ | {"PATH": "/usr/bin:/bin"})
    assert run.returncode == 0 and "m.masked_fill" in run.stdout, run.stderr


def test_a_printed_command_is_never_broken_into_lines():
    report = check(NAME, lambda S: S)
    report.offer = f"A hint: `{'x' * 60} -m flashlab check ex03 --hint` and more words that fill the line and go on"
    assert f"{'x' * 60} -m flashlab check ex03 --hint" in str(report)


def test_head_ends_in_peace(sandbox, monkeypatch):
    """As `python -m flashlab check | head -1`: nobody reads on."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as nobody:
        monkeypatch.setattr(sys, "stdout", nobody)
        assert __main__.main(["check"]) == 1
        nobody.flush()                                       # Python does at its end


def test_the_table_of_what_is_begun_is_the_overviews(sandbox, capsys):
    write(stubs.stub(NAME).replace("raise NotImplementedError", "return 1 #"))
    assert overview.state(NAME) == overview.BEGUN and overview.Overview.now().next == NAME
    progress.update("ex01_attention", passed=True)
    panel = check()
    assert f"1 of {len(form.names())} passed. Next: {NAME} · " in str(panel)
    assert "flashlab-check overview" in panel._repr_html_() and f'check("{NAME}")' in panel._repr_html_()
    for name in form.names():
        progress.update(name, passed=True)
    assert check().next is None and str(check()).endswith(f"{len(form.names())} of {len(form.names())} passed.")
