"""Whatever a learner writes, the checker says so in words. test_check_apart.py is about what ends a process."""

import functools
import io
import sys
import time

import numpy
import pytest
import torch

from flashlab_course.check import Report, check, checker, cli, form, loading, progress, source

NAME = "ex03_safe_softmax"
SECONDS = 0.4                  # the time limit in these tests


@pytest.fixture(autouse=True)
def impatient(sandbox, monkeypatch):
    monkeypatch.setattr(form.exercise(NAME), "seconds", SECONDS)


def right(S):
    e = torch.exp(S - S.amax(-1, keepdim=True))
    return (e / e.sum(-1, keepdim=True)).nan_to_num(0)


def said(fn, name=NAME):
    report = checker.examine(form.exercise(name), fn)
    assert isinstance(report, Report) and report.exercise == name
    return report


def deep(S):
    return deep(S)


def raises(S):
    return S @ torch.ones(17, 3)


def changes_input(S):
    S -= S.amax(-1, keepdim=True)
    return right(S)


def returns_right_view(S):
    S.copy_(right(S))
    return S


@pytest.mark.parametrize("fn, mistake, words", [
    (deep, "raised", "it raised RecursionError: maximum recursion depth exceeded"),
    (changes_input, "changed_inputs", "it changed its input S in place"),
    (lambda S: (right(S), S.resize_(1))[0], "changed_inputs", "it changed its input S in place"),
    (returns_right_view, "changed_inputs", "it changed its input S in place"),
    (lambda S: [0] * 10**4, "wrong_type", "a list of 10000"),
    (lambda S: (yield right(S)), "wrong_type", "(generator); a torch.Tensor was expected"),
    (lambda S: right(S)[:0], "wrong_shape", "P has shape (0, 3)"),
    (lambda S: S * torch.nan, None, "P[0, 0] is NaN instead of"),
    (lambda S: torch.full_like(S, -torch.inf), None, "P[0, 0] is -inf instead of"),
    (lambda S: None, "wrong_type", "it returned nothing (None); P was expected"),
    (lambda S: 3.5, "wrong_type", "P is 3.5 (float); a torch.Tensor was expected"),
    (lambda S: right(S).numpy(), "wrong_type", "(ndarray); a torch.Tensor was expected"),
    (lambda S: (right(S), S), "wrong_type", "it returned a tuple of 2; P was expected"),
    (lambda S: right(S)[0], "wrong_shape", "P has shape (3,); (1, 3) was expected"),
    (lambda S: right(S).double(), "wrong_dtype", "P has dtype float64; float32 was expected"),
    (lambda S: right(S).to_sparse(), "wrong_type", "P has layout sparse_coo; strided was expected"),
    (lambda S: right(S).to("meta"), "wrong_type", "P has device meta; cpu was expected"),
    (lambda S: right(S).requires_grad_() * 2 - 1, None, "instead of"),
    (lambda S, T: 0, "raised", "missing 1 required positional argument: 'T'"),
])
def test_each_gets_its_verdict(fn, mistake, words):
    started = time.perf_counter()
    report = said(fn)
    assert not report.passed and words in report.message.replace("\n", " "), str(report)
    assert mistake is None or report.mistake == mistake, str(report)
    assert time.perf_counter() - started < 6, "the checker took too long over it"
    assert said(right).passed, "the checker did not survive it"


# ---- results of every kind

def test_a_tensor_of_another_class_is_judged_by_its_numbers():
    assert said(lambda S: torch.nn.Parameter(right(S))).passed


def test_numbers_of_numpy_are_numbers():
    name = "ex05_tile_sizes"
    solution = form.exercise(name).wrong()                     # no mistake: the solution, in no file of solutions/
    assert said(lambda *given: tuple(numpy.int64(n) for n in solution(*given)), name).passed
    assert said(lambda *given: tuple(numpy.float64(n) for n in solution(*given)), name).mistake == "wrong_type"


@pytest.mark.parametrize("name, wrong", [
    # all of m is −inf, also where it should not be
    ("ex03_merge", lambda O, m, l: (O * 0, m * 0 - torch.inf, l)),
    ("ex03_merge", lambda O, m, l: (O, m.clamp(min=-1e30), l)),            # and not where it should be
    ("ex06_use_of_L", lambda O, L: (O, L.clamp(min=-1e30))),
])
def test_a_truth_that_is_infinite_throughout_has_no_largest_number(name, wrong):
    solution = form.exercise(name).wrong()
    report = said(lambda *given: wrong(*solution(*given)), name)
    assert not report.passed and "instead of" in report.message and "failed with" not in report.message, str(report)


# ---- candidates of every kind

class Callable:
    def __call__(self, S):
        return right(S)


@pytest.mark.parametrize("fn, passed", [
    (functools.partial(right), True), (functools.partial(right, T=1), False), (Callable(), True),
    (lambda *given: right(*given), True), (lambda S, *, T=0: right(S), True), (lambda **given: 0, False),
    (torch.exp, False),
    (torch, False), (functools.wraps(right)(lambda *given: right(*given)), True),
], ids=lambda thing: None if isinstance(thing, bool) else "candidate")
def test_candidates_of_every_kind(fn, passed):
    assert said(fn).passed == passed, str(said(fn))


def test_it_says_in_which_line(capsys):
    report = said(raises)
    assert "in raises: return S @ torch.ones(17, 3)" in report.trace
    assert "site-packages" not in report.trace and "Traceback" not in str(report)
    assert str(report).index("it raised RuntimeError") < str(report).index("return S @ torch"), "message first"


def test_a_wrong_number_of_results_and_floats_for_whole_numbers():
    name = "ex05_tile_sizes"
    assert said(lambda sram_bytes, d, d_v, element_size: 3, name).mistake == "wrong_type"
    report = said(lambda sram_bytes, d, d_v, element_size: (1.0, 2, 3), name)
    assert report.mistake == "wrong_type" and "`//` divides whole numbers" in report.message
    report = said(lambda sram_bytes, d, d_v, element_size: (True, 2, 3), name)
    assert "B_r is True (bool); a whole number" in report.message


def test_check_takes_what_is_not_a_function():
    for thing in (3, "text", None.__class__, torch.ones(2)):
        assert not check(NAME, thing).passed
    report = check(NAME, right(torch.ones(2, 2)))
    assert report.mistake == "wrong_type" and "the function safe_softmax itself" in report.message


# ---- the file

def write(sandbox, text, name=NAME):
    (sandbox / "my/exercises" / f"{name}.py").write_text(text, encoding="utf-8")


GOOD = """import torch


def safe_softmax(S):
    e = (S - S.amax(-1, True)).exp()
    return (e / e.sum(-1, True)).nan_to_num(0)
"""


def test_the_file_is_read_afresh_each_time(sandbox):
    assert check(NAME).mistake == "not_implemented"
    write(sandbox, GOOD)
    assert check(NAME).passed
    write(sandbox, GOOD.replace("e.sum(-1", "e.sum(0"))
    assert not check(NAME).passed, "the old code ran"
    write(sandbox, GOOD + "\n\n1 / 0\n")
    report = check(NAME)
    assert report.mistake == "raised" and "line 9: 1 / 0" in report.trace
    assert "could not be loaded: it raised ZeroDivisionError" in report.message


@pytest.mark.parametrize("text, mistake, words", [
    ("def safe_softmax(S:\n    return S\n", "syntax", "Python cannot read my/exercises/ex03_safe_softmax.py"),
    ("<<<<<<< HEAD\nimport torch\n", "syntax", "Git has left the marks of a conflict in my/exercises/ex03_safe_"),
    ("import torch\n", "no_function", "no longer defines safe_softmax"),
    ("import no_such_module\n", "raised", "No module named 'no_such_module'"),
    ("raise SystemExit\n", "raised", "could not be loaded: it raised SystemExit"),
    ("while True:\n    pass\n", "timeout", "could not be loaded: it was stopped after 0.3 seconds"),
    ("safe_softmax = 3\n", "wrong_type", "the function safe_softmax itself"),
    ("import torch\nprint('hello')\n" + GOOD, None, "Right"),
])
def test_a_file_that_is_broken(sandbox, text, mistake, words, capsys, monkeypatch):
    monkeypatch.setattr(loading, "SECONDS", 0.3)
    write(sandbox, text)
    report = checker.examine(form.exercise(NAME))
    assert report.mistake == mistake and words in report.message, str(report)
    assert "hello" not in capsys.readouterr().out


def test_a_folder_in_the_place_of_a_file_is_told(sandbox, capsys):
    path = source.exercise_path(NAME)
    path.unlink()
    path.mkdir()
    assert f"my/exercises/{NAME}.py could not be read" in check(NAME).message and "begun" in str(check())
    assert cli.main(["--reset", NAME]) == 0 and path.is_file()
    assert (sandbox / f"my/exercises/{NAME}.mine.py").is_dir()


# ---- progress, hints, the solution

def test_hints_come_one_at_a_time_and_the_solution_after_the_pass(sandbox):
    hints = form.exercise(NAME).hints
    for n in range(1, len(hints) + 2):
        report = check(NAME, hint=True)
        told = min(n, len(hints))
        assert report.hint.count("Hint ") == told and hints[told - 1] in report.hint and not report.solution
    assert "Hint" not in check(NAME).hint, "without hint=True none is shown"
    passed = check(NAME, right)
    assert passed.passed and "m.masked_fill" in passed.solution and not passed.hint
    assert progress.of(NAME)["passed"] and progress.of(NAME)["hints"] == len(hints)


# ---- what is said of a mistake that no one has listed

def unseen_temperature(S):
    return torch.softmax(S * 0.9, -1).nan_to_num(0)


def unseen_first_key_lost(S):
    P = right(S).clone()
    P[:, 0] = 0
    return P


def unseen_large_only(S):
    return right(S) if S.nan_to_num(0).abs().max() < 100 else right(S / 2)


@pytest.mark.parametrize("fn, words", [
    (lambda S: right(S).flip(0), ["Wrong in 8 of 9 cases", "In “three rows"]),
    (unseen_temperature, ["Wrong in "]),
    (unseen_first_key_lost, ["“one row", "P[0, 0] is 0 instead of"]),
    (unseen_large_only, ["scores around 200"]),
])
def test_an_unseen_mistake_gets_a_true_first_sentence(fn, words):
    report = said(fn)
    assert not report.passed and report.mistake is None, str(report)
    for text in words:
        assert text in report.message, str(report)


# ---- the report

def test_the_panel_follows_the_theme_and_escapes_what_was_written():
    def bad(S):
        print("<script>")
        raise ValueError("<script>alert(1)</script>")

    for report in (said(right), said(bad), check(NAME), said(lambda S: S.abs())):
        panel = report._repr_html_()
        assert "color: inherit" in panel and "background: white" not in panel and "<script" not in panel


def test_uninitialised_memory_cannot_look_right():
    def half_done(S):
        P = torch.empty_like(S)
        P[:, :-1] = right(S)[:, :-1]
        return P

    report = said(half_done)
    assert "is NaN instead of" in report.message, str(report)


# ---- what else a report says

def test_a_report_says_where_the_first_wrong_number_is():
    def one_wrong(S):
        P = right(S).clone()
        if len(P) > 1:
            P[1, 2] += 1
        return P

    assert said(one_wrong).where == ("three rows", "P", (1, 2))
    assert said(right).where is None and said(raises).where is None


def test_a_file_that_is_not_saved_is_asked_after(sandbox):
    assert "in the place of `raise NotImplementedError`" in check(NAME).message
    write(sandbox, GOOD.replace("-1", "0"))
    assert "saved" not in str(check(NAME)), "it has just changed"
    assert "The file is the same as at the last check: is it saved?" in str(check(NAME))
    assert "saved" not in str(check(NAME, lambda S: S)), "a function from a cell has no file"
    write(sandbox, GOOD)
    assert "saved" not in str(check(NAME))


@pytest.mark.parametrize("text, words", [
    ("ex03", "3 exercises begin with 'ex03': ex03_safe_softmax, "), ("merge", "Did you mean ex03_merge"),
    ("EX10_Triton_Forward", "ex10_triton_forward"),
    ("", "There is no exercise ''"), ("../../etc/passwd", "There is no exercise 'passwd'"),
    (right, 'the function: `check("ex03_merge", merge)`'), (3, "needs the exercise's name first"),
])
def test_a_name_that_may_mean_several_or_none(text, words):
    report = check(text)
    assert not report.passed and words in report.message, str(report)


# ---- debug=True

def session(monkeypatch, capsys, typed, fn, name=NAME):
    """What a learner sees who types this."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    report = check(name, fn, debug=True)
    return report, capsys.readouterr().out


def test_stepping_stops_where_the_function_is_called(monkeypatch, capsys):
    report, out = session(monkeypatch, capsys, "p S.shape\nn\nc\n", unseen_temperature)
    assert "once more, in this process" in out and "-> return torch.softmax(S * 0.9" in out
    assert "torch.Size([1, 3])" in out and "It returned {'P': tensor" in out
    assert not report.passed and report.message in check(NAME, unseen_temperature).message


def test_stepping_stops_where_an_exception_was_raised(monkeypatch, capsys):
    _, out = session(monkeypatch, capsys, "c\np S.shape\nq\n", raises)
    assert "It raised RuntimeError" in out and "torch.Size([1, 3])" in out


def test_stepping_through_an_interpreted_kernel(monkeypatch, capsys):
    pytest.importorskip("triton")
    exercise = form.exercise("ex10_triton_forward")
    wrong = exercise.wrong(next(m for m in exercise.mistakes if m.name.startswith("no_rescale")))
    _, out = session(monkeypatch, capsys, "n\np causal\nc\n", wrong, "ex10_triton_forward")
    assert "fa2_kernel()" in out and "(Pdb) False" in out and "It returned {'O': tensor" in out, out


def test_stepping_in_a_terminal_runs_the_file(sandbox, monkeypatch, capsys):
    write(sandbox, GOOD.replace("e.sum(-1", "e.sum(0"))
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\nn\np e.shape\nq\n"))
    assert cli.main(["--debug", NAME]) == 1
    out = capsys.readouterr().out
    assert f"{NAME}: not yet" in out and "torch.Size([1, 3])" in out and "It returned" not in out
