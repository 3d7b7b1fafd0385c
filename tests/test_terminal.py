"""The commands where things are not as they should be: terminals, pipes, Ctrl-C, files missing, spoilt or not to be
written."""

import io
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flashlab import __main__ as cli
from flashlab_course import command, doctor
from flashlab_course.bench import load_results, results
from flashlab_course.check import check, form, progress, source, stubs

NAME = "ex03_merge"
REPOSITORY = Path(__file__).parent.parent


def terminal(monkeypatch, encoding, errors="strict"):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding, errors, write_through=True))
    return lambda: written.getvalue().decode(encoding)


# ---- what a terminal can show

@pytest.mark.parametrize("argv", [["check", NAME, "--hint"], ["ladder"], ["doctor"]], ids=" ".join)
@pytest.mark.parametrize("encoding, errors", [("ascii", "strict"), ("ascii", "surrogateescape"), ("cp437", "strict")])
def test_a_terminal_that_lacks_letters_gets_others(sandbox, monkeypatch, encoding, errors, argv):
    if argv == ["doctor"]:
        monkeypatch.setattr("flashlab_course.doctor.check_speed", lambda device: [])
        monkeypatch.setattr("flashlab_course.doctor.check_chapters",
                            lambda: doctor.Finding("matmul", "1 TFLOP/s (1024³ float32)"))
    written = terminal(monkeypatch, encoding, errors)
    cli.main(argv)
    assert {NAME: "Hint 1 of ", "ladder": "fa2_forward", "doctor": "(1024"}[argv[:2][-1]] in written()
    assert "?" not in written().replace("?\n", "") or NAME in argv


def test_letters_are_replaced_by_what_they_look_like():
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, "ascii", write_through=True)
    command.readable(stream)
    stream.write("−∞ ≤ 1024³ × 2 · “é” → ✓ 語 \udcff")
    assert written.getvalue().decode() == '-inf <= 10243 x 2 * "e" -> + ? ?'


def python(*argv, **kwargs):
    return subprocess.Popen([sys.executable, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            **kwargs)


def test_the_c_locale_is_enough(sandbox):
    bare = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "FLASHLAB_ROOT": str(sandbox)}
    run = python("-m", "flashlab", "check", NAME, "--hint", env=os.environ | bare)
    out, error = run.communicate()
    assert run.returncode == 1 and "Hint 1 of " in out and not error


def test_make_check_says_what_fails_and_no_more(sandbox):
    make = ["make", "-o", ".venv/.installed", "check", f"PY={sys.executable}"]
    done = subprocess.run([*make, f"CHECK_ARGS={NAME}"], cwd=REPOSITORY, text=True,
                          capture_output=True, env=os.environ | {"FLASHLAB_ROOT": str(sandbox)})
    assert done.returncode == 0 and "not implemented yet" in done.stdout and "***" not in done.stderr, done


# ---- pipes and Ctrl-C

def test_a_reader_that_has_seen_enough_is_no_error(sandbox):
    run = python("-m", "flashlab", "check")
    run.stdout.readline()
    run.stdout.close()
    assert "Traceback" not in run.stderr.read() and run.wait() == 1
    run.stderr.close()


def test_ctrl_c_ends_a_command_in_a_line(sandbox):
    """Also while an exercise runs, in a process of its own."""
    endless = stubs.stub(NAME).replace("    raise NotImplementedError(", "    while True: pass\n    (")
    source.exercise_path(NAME).write_text(endless, encoding="utf-8")
    environment = os.environ | {"FLASHLAB_ROOT": str(sandbox)}
    run = python("-u", "-m", "flashlab", "check", start_new_session=True, env=environment)
    while not run.stdout.readline().startswith("ex03_online_softmax"):
        pass
    time.sleep(0.5)                                           # the next one is the endless one
    os.killpg(run.pid, signal.SIGINT)
    out, error = run.communicate(timeout=60)
    assert run.returncode in (130, -signal.SIGINT) and not error.strip()           # the second: still importing


@pytest.mark.parametrize("imported", ["numpy", "torch.version", "flashlab.triton_mode"])
def test_ctrl_c_while_torch_is_imported_ends_in_a_line(imported):
    run = python("-X", "importtime", "-m", "flashlab", "doctor")
    while not run.stderr.readline().split("|")[-1].strip() == imported:
        assert run.poll() is None, f"{imported} was not imported"
    run.send_signal(signal.SIGINT)
    _, error = run.communicate(timeout=60)
    assert run.returncode in (130, -signal.SIGINT) and "Traceback" not in error


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("to, code, said", [
    (">/dev/full", 1, "the output could not be written: No space left on device\n"), (">&-", 0, "")])
def test_an_output_that_takes_nothing_ends_in_a_line(to, code, said):
    run = subprocess.run(["sh", "-c", f"{sys.executable} -m flashlab ladder {to}"], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (code, said)


def test_the_version_is_the_packages(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    import flashlab
    assert stop.value.code == 0 and capsys.readouterr().out == f"flashlab {flashlab.__version__}\n"


# ---- files

def keep(n):
    progress.update(f"ex{n}", tries=n)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot lock a folder")
def test_processes_that_write_at_once_lose_nothing(sandbox):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.map(keep, range(60), chunksize=1)
    assert len(progress.load(progress.FILE)) == 60


def read_only(*args, **kwargs):
    raise PermissionError(30, "Read-only file system")


def test_progress_that_cannot_be_kept_is_said(sandbox, monkeypatch, capsys):
    shutil.copy(source.solution_path(NAME), source.exercise_path(NAME))
    put = {progress.FILE: read_only}
    monkeypatch.setattr(source, "put", lambda path, text, real=source.put: put.get(path.name, real)(path, text))
    assert cli.main(["check", NAME]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "passed" in said and ".progress.json could not be written, so this is not remembered: Read-only" in said
    assert "could not be written" in check(NAME)._repr_html_()
    assert cli.main(["check", "--reset", NAME]) == 0
    assert "could not be written" in " ".join(capsys.readouterr().out.split())     # lines are wrapped


@pytest.mark.parametrize("at", ["exercises", ".stubs"])
def test_a_reset_that_finds_no_room_leaves_the_file_as_it_was(sandbox, at, monkeypatch, capsys):
    def put(path, text, real=source.put):
        if path.parent.name == at:
            raise OSError(28, "No space left on device")
        real(path, text)

    source.exercise_path(NAME).write_text("mine = 1\n", encoding="utf-8")
    monkeypatch.setattr(source, "put", put)
    assert cli.main(["check", "--reset", NAME]) == 1
    assert capsys.readouterr().out == f"my/exercises/{NAME}.py stays as it is: No space left on device\n"
    assert stubs.present(NAME) == "mine = 1\n" and not list(sandbox.glob("my/exercises/*.mine*"))


@pytest.mark.parametrize("text", ["[[", "\xff", "[" * 100_000, '{"ex03_merge": [1], "ex99": 3}', "null",
                                  '{"ex03_merge": {"hints": "many", "tries": null, "passed": 3}}'])
def test_a_progress_file_of_any_content_counts_as_far_as_it_is_right(sandbox, text, capsys):
    (sandbox / "my" / progress.FILE).write_bytes(text.encode("latin-1"))
    assert not any(progress.of(NAME).values())
    assert cli.main(["check"]) == 0 and cli.main(["check", NAME, "--hint"]) == 1
    assert "Hint 1 of " in " ".join(capsys.readouterr().out.split()) and progress.of(NAME)["hints"] == 1


@pytest.mark.parametrize("spoil", [lambda path: path.mkdir(), lambda path: path.write_text('{"ex01_heads": {"pass'),
                                   lambda path: path.write_text("[]")])
def test_a_progress_file_that_cannot_be_read_is_set_aside_and_named(sandbox, spoil, capsys):
    path = sandbox / "my" / progress.FILE
    spoil(path)
    assert cli.main(["check", NAME, "--hint"]) == 1
    said = " ".join(capsys.readouterr().out.split())       # lines are wrapped
    assert ".progress.json could not be read. It is kept as .progress.broken.json, and a new one begins" in said
    assert (sandbox / "my/.progress.broken.json").exists() and progress.of(NAME)["hints"] == 1
    assert path.stat().st_mode & 0o777 == 0o666 & ~UMASK


UMASK = os.umask(0o022)
os.umask(UMASK)


def test_without_exercises_the_overview_stands_and_reset_makes_them(sandbox, capsys):
    shutil.rmtree(sandbox / "my/exercises")
    assert cli.main(["check"]) == 0 and capsys.readouterr().out.count("not begun") == len(form.names())
    assert cli.main(["check", NAME]) == 1 and "not implemented yet" in capsys.readouterr().out
    assert stubs.present(NAME) == stubs.stub(NAME), "a check writes what is missing"
    source.exercise_path(NAME).unlink()
    assert cli.main(["check", "--reset", NAME]) == 0 and stubs.present(NAME) == stubs.stub(NAME)


@pytest.mark.parametrize("argv", [[], [NAME], ["--reset", NAME], ["--solutions"]])
def test_without_solutions_the_command_says_what_is_missing(sandbox, monkeypatch, argv, capsys):
    (sandbox / "solutions").rename(sandbox / "elsewhere")
    monkeypatch.setattr("flashlab.__file__", str(sandbox / "flashlab/__init__.py"))
    monkeypatch.chdir(sandbox)
    monkeypatch.delenv("FLASHLAB_ROOT")
    assert cli.main(["check", *argv]) == 1 and "no folder solutions/" in capsys.readouterr().err


def test_results_that_are_spoilt_are_named(tmp_path, monkeypatch):
    (tmp_path / "results").mkdir()
    (tmp_path / "results/forward_h200.json").write_text('{"rows": [', encoding="utf-8")
    monkeypatch.setattr(results, "ROOT", tmp_path)
    with pytest.raises(ValueError, match="forward_h200.json must be JSON .*git checkout"):
        load_results("forward_h200")
