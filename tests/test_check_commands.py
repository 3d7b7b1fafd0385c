"""Regions and stubs, the build command, `python -m flashlab check`, and the tables that are generated."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flashlab_course import command
from flashlab_course.check import check, checker, cli, form, overview, progress, source, stubs

spec = importlib.util.spec_from_file_location("solutions_build",
                                              Path(__file__).resolve().parents[1] / "solutions/build.py")
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)

NAME, SOFTMAX = "ex03_merge", "ex03_safe_softmax"
HEAD = '"""ex03_toy · a toy\n\nChapter 03 · difficulty 2 of 5 · 10 minutes\n"""\n'


def solve(name):
    source.exercise_path(name).write_text(source.solution_path(name).read_text(encoding="utf-8"), encoding="utf-8")


# ---- regions

def test_a_region_becomes_its_task_and_an_error():
    text = HEAD + "def f(x):\n    # >>> your turn: double x\n    return 2 * x\n    # <<<\n\n\ny = 1\n"
    parsed = source.Parsed("ex03_toy", text)
    stub = 'def f(x):\n    # your turn: double x\n    raise NotImplementedError("ex03_toy: double x")\n\n\ny = 1\n'
    assert parsed.stub() == HEAD + stub
    assert parsed.answer() == "return 2 * x" and parsed.head == ("a toy", "03", 2, 10)


@pytest.mark.parametrize("body, line", [
    ("# >>> your turn: a\nx = 1\n", 5),
    ("x = 1\n# <<<\n", 6),
    ("# >>> your turn: a\n# >>> your turn: b\nx = 1\n# <<<\n# <<<\n", 5),
    ("# >>> your turn: a\n# <<<\n", 5),
    ("# >>> your turn\nx = 1\n# <<<\n", 5),
    ("x = 1\n", 1),
])
def test_markers_that_do_not_match_are_an_error_with_a_line(body, line):
    with pytest.raises(source.SourceError, match=rf"solutions/ex03_toy.py:{line}: an answer stands between"):
        source.Parsed("ex03_toy", HEAD + body)
    with pytest.raises(source.SourceError, match="the docstring starts"):
        source.Parsed("ex03_other", HEAD + "# >>> your turn: a\nx = 1\n# <<<\n")


def test_a_swap_is_made_inside_the_regions_alone():
    text = HEAD + "y = 3\n\n\ndef f(x):\n    # >>> your turn: a\n    y = {}\n    # <<<\n    return y\n"
    swapped = source.Parsed("ex03_toy", text.format("x")).edited("another", [("y = x", "y = 2 * x")])
    assert swapped.text == text.format("2 * x")


@pytest.mark.parametrize("old, found", [("x*3", 0), ("return", 0), ("=", 2)])
def test_a_swap_that_fits_not_once_fails_loudly(old, found):
    text = HEAD + "def f(x):\n    # >>> your turn: a\n    y = x**2\n    z = y\n    # <<<\n    return z\n"
    with pytest.raises(source.SourceError, match=f"found {found} times"):
        source.Parsed("ex03_toy", text).edited("another way", [(old, "1")])


# ---- build

def test_build_writes_stubs_and_compares_them(sandbox, capsys):
    assert build.main([]) == 0
    path = sandbox / f"exercises/{NAME}.py"
    assert path.read_text(encoding="utf-8") == stubs.stub(NAME) and "ex03_merge.py: written" in capsys.readouterr().out
    assert build.main(["--check"]) == 0
    path.write_text("# one line\n", encoding="utf-8")
    assert build.main(["--check"]) == 1 and "exercises/ex03_merge.py differs" in capsys.readouterr().out
    assert path.read_text(encoding="utf-8") == "# one line\n"


def test_build_check_finds_a_solution_without_a_spec(sandbox, capsys):
    (sandbox / "solutions/ex03_toy.py").write_text(HEAD + "# >>> your turn: a\nx = 1\n# <<<\n", encoding="utf-8")
    assert build.main(["--check"]) == 1
    assert "solutions/ex03_toy.py has no solutions/ex03_toy.mistakes.py" in capsys.readouterr().out


def test_a_new_exercise_gets_its_stub_and_is_counted(sandbox, capsys):
    """Two files in solutions/ and one command."""
    (sandbox / "README.md").write_text("**1 exercises** with 2 mistakes\n", encoding="utf-8")
    text = HEAD + "def f(x):\n    # >>> your turn: double x\n    return 2 * x\n    # <<<\n"
    source.solution_path("ex03_toy").write_text(text, encoding="utf-8")
    source.solution_path("ex03_toy").with_suffix(".mistakes.py").write_text(
        "from flashlab_course.check.form import Case, Mistake\n"
        "outputs, hints, ints_only = [('y',)], [], True\n"
        "cases = [Case('one', lambda: {'x': 3})]\n"
        "mistakes = [Mistake('tripled', 'x was tripled', 'the factor', ('2 * x', '3 * x'))]\n",
        encoding="utf-8")
    assert build.main(["--check"]) == 1
    out = capsys.readouterr().out
    assert "exercises/ex03_toy.py differs" in out and "README.md counts other exercises or mistakes" in out
    assert build.main([]) == 0
    assert (sandbox / "exercises/ex03_toy.py").read_text(encoding="utf-8") == stubs.stub("ex03_toy")
    count = sum(len(form.exercise(name).mistakes) for name in form.names())
    readme = f"**{len(form.names())} exercises** with {count} mistakes\n"
    assert (sandbox / "README.md").read_text(encoding="utf-8") == readme
    capsys.readouterr()
    assert build.main([]) == 0 and "all current" in capsys.readouterr().out


def test_the_readme_counts_what_there_is():
    readme = (source.root() / "README.md").read_text(encoding="utf-8")
    assert build.COUNTS.search(readme) and build.counted_in(readme) == readme, "make exercises"


# ---- whatever a learner has written

STUB = form.exercise(NAME).parsed.stub()
WRITTEN = {
    "half an answer, the error still there": STUB.replace("    raise Not",
                                                          "    m_a, m_b = state_a[1], state_b[1]\n    raise Not"),
    "a syntax error": STUB.replace("    raise Not", "    m = torch.maximum(\n    raise Not"),
    "not UTF-8": STUB.encode() + b"# caf\xe9\n",
    "nothing": "",
    "a wrong answer": STUB.replace("raise NotImplementedError", "return print"),
}


@pytest.mark.parametrize("way", WRITTEN)
def test_a_learners_file_is_left_alone_and_named(sandbox, capsys, way):
    text = WRITTEN[way] if isinstance(WRITTEN[way], bytes) else WRITTEN[way].encode()
    source.exercise_path(NAME).write_bytes(text)
    cli.main([])
    assert f"\n{NAME} " in capsys.readouterr().out
    assert source.exercise_path(NAME).read_bytes() == text
    assert cli.main(["--reset", NAME]) == 0
    assert (sandbox / "my/exercises/ex03_merge.mine.py").read_bytes() == text


# ---- python -m flashlab check

def test_a_root_that_is_none_is_not_passed_over(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FLASHLAB_ROOT", str(tmp_path))
    assert cli.main([]) == 1 and f"no folder solutions/ in {tmp_path}" in capsys.readouterr().err


def test_the_overview_lists_all_and_fails_only_for_what_is_begun(sandbox, capsys):
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    assert out.count("not begun") == len(form.names())
    assert f"0 of {len(form.names())} passed. Next: {form.names()[0]} · " in out
    solve(NAME)
    assert cli.main([]) == 0
    assert "passed" in capsys.readouterr().out
    path = source.exercise_path(NAME)
    path.write_text(path.read_text(encoding="utf-8").replace("alpha * l_a + beta * l_b", "l_a + l_b"), encoding="utf-8")
    assert cli.main([]) == 1
    out = capsys.readouterr().out
    assert "not yet: no_rescale_l" in out and "Look at " not in out


def test_one_exercise_by_the_start_of_its_name(sandbox, capsys):
    assert cli.main(["ex03_mer"]) == 1
    assert "ex03_merge: not implemented yet" in capsys.readouterr().out
    solve(NAME)
    assert cli.main([NAME]) == 0
    assert cli.main(["exercises/ex03_merge.py"]) == 0
    capsys.readouterr()
    assert cli.main(["ex03"]) == 0, "what is not begun is no failure"
    out = capsys.readouterr().out.split()
    assert out[out.index("ex03_online_softmax") + 3 :][:2] == ["not", "begun"] and "ex01_heads" not in out
    assert out[out.index("ex03_merge") + 3] == "passed"


def test_the_remedy_comes_with_the_second_failure_of_the_same_kind(sandbox):
    exercise = form.exercise(NAME)
    fn, other = (exercise.wrong(mistake) for mistake in exercise.mistakes[:2])
    look = exercise.mistakes[0].look
    assert [look in check(NAME, answer).hint for answer in (fn, fn, other, fn)] == [False, True, False, False]
    assert progress.of(NAME)["mistake"] == exercise.mistakes[0].name and look in check(NAME, fn, hint=True).hint


def test_reset_restores_the_stub_and_keeps_the_learners_version(sandbox, capsys):
    solve(NAME)
    mine = source.exercise_path(NAME).read_text(encoding="utf-8")
    assert cli.main(["--reset", NAME]) == 0
    assert source.exercise_path(NAME).read_text(encoding="utf-8") == stubs.stub(NAME)
    assert (sandbox / "my/exercises/ex03_merge.mine.py").read_text(encoding="utf-8") == mine
    solve(NAME)
    solve(SOFTMAX)
    progress.update(SOFTMAX, passed=True)
    assert cli.main(["--reset", NAME, "ex03_safe"]) == 0
    assert (sandbox / "my/exercises/ex03_merge.mine2.py").exists(), "the first version was overwritten"
    assert stubs.present(SOFTMAX) == stubs.stub(SOFTMAX) and not progress.of(SOFTMAX)["passed"]


@pytest.mark.parametrize("argv, words", [
    (["ex99"], "There is no exercise 'ex99'. Did you mean ex"),
    (["--reset", ""], "There is no exercise ''."),
    (["--reset"], "--reset needs the name of an exercise: ex00_score_tile?"),
    (["--reset", "ex03"], "--reset needs the name of an exercise: ex03_safe_softmax, "),
    (["--watch", NAME, SOFTMAX], f"--watch needs the name of an exercise: {NAME}, {SOFTMAX}?"),
    (["--watch", "ex03"], "--watch needs the name of an exercise: ex03_safe_softmax, "),
])
def test_what_is_not_clear_is_refused_and_nothing_is_reset(sandbox, argv, words, capsys):
    solve(NAME)
    assert cli.main(argv) == 1 and words in capsys.readouterr().err
    assert stubs.present(NAME) != stubs.stub(NAME) and list(sandbox.glob("my/exercises/*.mine*")) == []


def test_solutions_are_shown_after_the_pass(sandbox, capsys):
    assert cli.main([NAME, "--solutions"]) == 1
    out = capsys.readouterr().out
    assert "once it passes" in out and "torch.maximum" not in out
    solve(NAME)
    cli.main([NAME])
    capsys.readouterr()
    assert cli.main([NAME, "--solutions"]) == 0
    assert "m = torch.maximum(m_a, m_b)" in capsys.readouterr().out
    assert cli.main(["--solutions"]) == 0
    assert "ex03_merge" in capsys.readouterr().out and progress.of(NAME)["passed"]


# ---- --watch

def rounds(monkeypatch, *actions):
    """Each pause does the next of these things, and in the end is interrupted."""
    todo = iter(actions)

    def pause(seconds):
        action = next(todo, None)
        if action is None:
            raise KeyboardInterrupt
        action()

    monkeypatch.setattr(cli, "sleep", pause)


def test_watching_checks_what_is_saved_and_goes_on_after_a_pass(sandbox, capsys, monkeypatch):
    name, following = form.names()[:2]

    def put(text):
        source.exercise_path(name).write_text(text, encoding="utf-8")

    solution = source.solution_path(name).read_text(encoding="utf-8")
    nothing = lambda: None
    rounds(monkeypatch, lambda: put(solution.replace("return", "return 1,")), nothing, lambda: put(solution), nothing)
    assert cli.main(["--watch", name]) == 0
    out = capsys.readouterr().out
    assert out.count(f"{name}: not implemented yet") == 1, "checked again though nothing was saved"
    assert out.count(f"{name}: not yet") == 1 and out.count(f"{name}: passed") == 1
    assert f"{following}: not implemented yet" in out and "Every exercise" not in out


def test_watching_begins_with_what_comes_next_and_ends_with_the_last(sandbox, capsys, monkeypatch):
    rounds(monkeypatch, lambda: None)
    for name in form.names():
        progress.update(name, passed=name != SOFTMAX)
    solve(SOFTMAX)
    assert cli.main(["--watch"]) == 0
    assert "Every exercise has passed." in capsys.readouterr().out and progress.of(SOFTMAX)["passed"]


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
    solve(SOFTMAX)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ipykernel", object())
        printed = checker.checked(SOFTMAX, terminal=True).offer.split("`")[1]
    run = subprocess.run(printed, shell=True, capture_output=True, text=True, cwd=tmp_path_factory.mktemp("elsewhere"),
                         env=os.environ | {"PATH": "/usr/bin:/bin"})
    assert run.returncode == 0 and "m.masked_fill" in run.stdout, run.stderr


# ---- the overview

def test_the_table_of_what_is_begun_is_the_overviews(sandbox, capsys):
    source.exercise_path(NAME).write_text(stubs.stub(NAME).replace("raise NotImplementedError", "return 1 #"))
    assert overview.state(NAME) == overview.BEGUN and overview.Overview.now().next == NAME
    progress.update("ex01_attention", passed=True)
    panel = check()
    assert f"1 of {len(form.names())} passed. Next: {NAME} · " in str(panel)
    assert "flashlab-check" in panel._repr_html_() and f'check("{NAME}")' in panel._repr_html_()
    for name in form.names():
        progress.update(name, passed=True)
    assert check().next is None and str(check()).endswith(f"{len(form.names())} of {len(form.names())} passed.")


# ---- without Triton

def test_without_triton_the_verdict_is_in_words(sandbox, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    report = check("ex10_triton_forward")
    assert report.mistake == "no_triton" and "Triton is not installed here" in report.message and not report.passed
