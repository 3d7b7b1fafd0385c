"""Whatever a learner's function does, the checker says so in words, survives, and leaves the process as it was."""

import os
import random
import signal
import sys
import threading
import time

import pytest
import torch

from flashlab.check import Report, check, checker, form, progress

NAME = "ex03_safe_softmax"
SECONDS = 0.4                  # the time limit in these tests


@pytest.fixture(autouse=True)
def impatient(sandbox, monkeypatch):
    monkeypatch.setattr(form.exercise(NAME), "seconds", SECONDS)


def right(S):
    return torch.softmax(S, -1).nan_to_num(0)


def said(fn, name=NAME):
    report = checker.examine(form.exercise(name), fn)
    assert isinstance(report, Report) and report.exercise == name
    return report


def forever(S):
    while True:
        pass


def forever_and_deaf(S):
    while True:
        try:
            time.sleep(0.001)
        except:  # noqa: E722    just what a learner may write
            pass


def sleeps(S):
    time.sleep(60)


def deep(S):
    return deep(S)


def raises(S):
    return S @ torch.ones(17, 3)


def exits(S):
    sys.exit(3)


def interrupts(S):
    raise KeyboardInterrupt


def stops(S):
    raise StopIteration("why not")


def exhausts_memory(S):
    return torch.empty(2**60)


def changes_input(S):
    S -= S.amax(-1, keepdim=True)
    return right(S)


def resizes_input(S):
    result = right(S)
    S.resize_(1)
    return result


def returns_view(S):
    return S[:]


def returns_right_view(S):
    S.copy_(right(S))
    return S


@pytest.mark.parametrize("fn, mistake, words", [
    (forever, "timeout", "stopped after 0.4 seconds"),
    (forever_and_deaf, "timeout", "stopped after 0.4 seconds"),
    (sleeps, "timeout", "stopped after 0.4 seconds"),
    (deep, "raised", "called itself until Python gave up"),
    (raises, "raised", "it raised RuntimeError: "),
    (exits, "raised", "it called exit()"),
    (interrupts, "raised", "it raised KeyboardInterrupt"),
    (stops, "raised", "it raised StopIteration: why not"),
    (exhausts_memory, "raised", "it raised RuntimeError"),
    (changes_input, "changed_inputs", "it changed its input S in place"),
    (resizes_input, "changed_inputs", "it changed its input S into another shape or dtype"),
    (returns_right_view, "changed_inputs", "it changed its input S in place"),
    (returns_view, "view_of_input", "shares its memory with the input S"),
    (lambda S: None, "wrong_type", "it returned nothing (None); P was expected"),
    (lambda S: 3.5, "wrong_type", "P is 3.5 (float); a torch.Tensor was expected"),
    (lambda S: right(S).numpy(), "wrong_type", "(ndarray); a torch.Tensor was expected"),
    (lambda S: right(S).tolist(), "wrong_type", "it returned a list of"),
    (lambda S: (right(S), S), "wrong_type", "it returned a tuple of 2; P was expected"),
    (lambda S: right(S)[0], "wrong_shape", "P has shape (3,); (1, 3) was expected"),
    (lambda S: right(S).double(), "wrong_dtype", "P has dtype float64; float32 was expected"),
    (lambda S: right(S).to_sparse(), "wrong_type", "P is a sparse_coo tensor on the device cpu"),
    (lambda S: right(S).to("meta"), "wrong_type", "on the device meta; an ordinary one on cpu was expected"),
    (lambda S: right(S).requires_grad_() * 2 - 1, None, "instead of"),
    (lambda: 0, "signature", "Your function takes (), but it is called as safe_softmax(S)"),
    (lambda S, T: 0, "signature", "missing a required argument: 'T'"),
])
def test_each_gets_its_verdict(fn, mistake, words):
    started = time.perf_counter()
    report = said(fn)
    assert not report.passed and words in report.message.replace("\n", " "), str(report)
    assert mistake is None or report.mistake == mistake, str(report)
    assert time.perf_counter() - started < 6, "the checker took too long over it"
    assert said(right).passed, "the checker did not survive it"


def test_it_says_in_which_line(capsys):
    report = said(raises)
    assert "in raises: return S @ torch.ones(17, 3)" in report.trace
    assert "site-packages" not in report.trace and "Traceback" not in str(report)
    assert str(report).index("it raised RuntimeError") < str(report).index("return S @ torch"), "the message comes first"
    assert "in forever: " in said(forever).trace, "a timeout says where it was"


def test_what_it_prints_is_captured_and_shown_where_it_fails(capsys):
    def prints(S):
        for n in range(40):
            print("S has shape", tuple(S.shape), n)
        print("to stderr", file=sys.stderr)
        return S + 1

    report = said(prints)
    assert "S has shape (1, 3) 0" in report.printed and "lines more" in report.printed
    assert capsys.readouterr() == ("", ""), "it reached the terminal"


def test_global_settings_are_restored_and_named():
    before = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads(), sys.getrecursionlimit(), os.getcwd()
    flags = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory

    def careless(S):
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        sys.setrecursionlimit(777)
        os.chdir("/")
        os.environ["CARELESS"] = "1"
        return right(S)

    report = said(careless)
    assert report.mistake == "global_state" and "the default dtype" in report.message and "grad mode" in report.message, str(report)
    after = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads(), sys.getrecursionlimit(), os.getcwd()
    assert before == after and "CARELESS" not in os.environ
    assert flags == (torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory)


def test_random_generators_are_where_they_were():
    def seeds(S):
        torch.manual_seed(0)
        random.seed(0)
        return right(S)

    torch.manual_seed(5)
    random.seed(5)
    expected = torch.Generator().manual_seed(5)
    numbers = random.Random(5).random()
    assert said(seeds).passed, "to seed is no fault"
    assert torch.equal(torch.rand(3), torch.rand(3, generator=expected)) and random.random() == numbers


def test_the_alarm_is_given_back():
    rung = []
    old = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        said(forever)
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
        signal.raise_signal(signal.SIGALRM)
        assert rung == [1]
    finally:
        signal.signal(signal.SIGALRM, old)


def test_outside_the_main_thread_too():
    """There are no signals there: widgets, servers, and Windows."""
    reports = []

    def work():
        reports.extend([said(right), said(forever), said(forever_and_deaf), said(raises), said(right)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20)
    assert [r.mistake for r in reports] == [None, "timeout", "timeout", "raised", None]
    assert reports[0].passed and reports[4].passed


def test_a_wrong_number_of_results_and_floats_for_whole_numbers():
    name = "ex05_tile_sizes"
    assert said(lambda sram_bytes, d, d_v, element_size: 3, name).mistake == "wrong_type"
    report = said(lambda sram_bytes, d, d_v, element_size: (1.0, 2, 3), name)
    assert report.mistake == "wrong_type" and "`//` divides whole numbers" in report.message
    report = said(lambda sram_bytes, d, d_v, element_size: (True, 2, 3), name)
    assert "B_r is True (bool); a Python number was expected" in report.message


def test_check_takes_what_is_not_a_function():
    for thing in (3, "text", None.__class__, torch.ones(2)):
        assert not check(NAME, thing).passed
    report = check(NAME, right(torch.ones(2, 2)))
    assert report.mistake == "wrong_type" and "the function safe_softmax itself" in report.message


def test_an_unknown_exercise_is_met_with_a_suggestion():
    report = check("ex03_softmax_safe")
    assert not report.passed and "ex03_safe_softmax" in report.message


# ---- the file

def write(sandbox, text, name=NAME):
    (sandbox / "exercises" / f"{name}.py").write_text(text, encoding="utf-8")


GOOD = "import torch\n\n\ndef safe_softmax(S):\n    return torch.softmax(S, -1).nan_to_num(0)\n"


def test_the_file_is_read_afresh_each_time(sandbox):
    assert check(NAME).mistake == "not_implemented"
    write(sandbox, GOOD)
    assert check(NAME).passed
    write(sandbox, GOOD.replace("-1", "0"))
    assert not check(NAME).passed, "the old code ran"
    write(sandbox, GOOD + "\n\n1 / 0\n")
    report = check(NAME)
    assert report.mistake == "raised" and "line 8: 1 / 0" in report.trace
    assert "could not be loaded: ZeroDivisionError" in report.message


@pytest.mark.parametrize("text, mistake, words", [
    ("def safe_softmax(S:\n    return S\n", "syntax", "Python cannot read exercises/ex03_safe_softmax.py"),
    ("import torch\n", "no_function", "no longer defines safe_softmax"),
    ("import no_such_module\n", "raised", "No module named 'no_such_module'"),
    ("raise SystemExit\n", "raised", "could not be loaded: SystemExit"),
    ("while True:\n    pass\n", "timeout", "it was still running after 0.3 seconds"),
    ("safe_softmax = 3\n", "wrong_type", "the function safe_softmax itself"),
    ("import torch\nprint('hello')\n" + GOOD, None, "Right"),
])
def test_a_file_that_is_broken(sandbox, text, mistake, words, capsys, monkeypatch):
    monkeypatch.setattr(checker, "LOADING_SECONDS", 0.3)
    write(sandbox, text)
    report = check(NAME)
    assert report.mistake == mistake and words in report.message, str(report)
    assert "hello" not in capsys.readouterr().out


def test_a_file_that_is_not_there(sandbox):
    (sandbox / "exercises" / f"{NAME}.py").unlink()
    report = check(NAME)
    assert report.mistake == "no_file" and "--reset ex03_safe_softmax" in report.message


def test_trace_names_the_file_and_line(sandbox):
    write(sandbox, GOOD.replace("    return", "    S = S + missing\n    return"))
    report = check(NAME)
    assert "exercises/ex03_safe_softmax.py, line 5, in safe_softmax: S = S + missing" in report.trace


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


def test_a_broken_progress_file_counts_as_empty(sandbox):
    (sandbox / progress.FILE).write_text("{ not json")
    assert check(NAME, right).passed and progress.of(NAME)["passed"]
    (sandbox / progress.FILE).write_text("[1, 2]")
    assert not progress.of(NAME)["passed"]


# ---- what is said of a mistake that no one has listed

def unseen_rows_reversed(S):
    return right(S).flip(0)


def unseen_temperature(S):
    return torch.softmax(S * 0.9, -1).nan_to_num(0)


def unseen_first_key_lost(S):
    P = right(S).clone()
    P[:, 0] = 0
    return P


def unseen_large_only(S):
    return right(S) if S.nan_to_num(0).abs().max() < 100 else right(S / 2)


@pytest.mark.parametrize("fn, words", [
    (unseen_rows_reversed, ["Wrong in each case with more than one row, right in every other",
                            "the smallest case that fails is “three rows"]),
    (unseen_temperature, ["Wrong in "]),
    (unseen_first_key_lost, ["“one row", "P[0, 0] is 0 instead of"]),
    (unseen_large_only, ["scores around 200"]),
])
def test_an_unseen_mistake_gets_a_true_first_sentence(fn, words):
    report = said(fn)
    assert not report.passed and report.mistake is None, str(report)
    for text in words:
        assert text in report.message, str(report)


def test_two_mistakes_at_once_are_both_named():
    exercise = form.exercise("ex06_fa2_inner_loop")
    two = [m for m in exercise.mistakes if m.name in ("no_rescale_O", "L_without_m")]
    report = checker.examine(exercise, exercise.wrong(*two))
    assert report.mistake == "no_rescale_O + L_without_m" and report.message.startswith("Two mistakes at once.")


def test_two_mistakes_that_cannot_be_made_together_explain_nothing():
    """Two edits of one line may leave no Python: that pair is passed over, and the verdict comes all the same."""
    solution = form.exercise("ex06_use_of_L").solution()
    report = said(lambda *given: tuple(1.3 * part for part in solution(*given)), "ex06_use_of_L")
    assert not report.passed and report.mistake is None, str(report)


def test_the_first_wrong_key_block_is_named():
    exercise = form.exercise("ex06_fa2_inner_loop")
    report = checker.examine(exercise, exercise.wrong(next(m for m in exercise.mistakes if m.name == "no_rescale_O")))
    assert "wrong once j = 1 comes in" in report.message, str(report)


def test_a_constant_factor_is_recognised():
    report = checker.examine(form.exercise("ex01_attention"), lambda Q, K, V, *, causal=False, scale=None:
                             _attention(Q, K, V, causal, scale) * 2)
    assert "Every entry of O is 2 times what it should be." in report.message, str(report)


def test_the_factor_is_called_root_d_only_if_it_is_everywhere():
    report = checker.examine(form.exercise("ex01_attention"), lambda Q, K, V, *, causal=False, scale=None:
                             _attention(Q, K, V, causal, scale) * Q.shape[1] ** 0.5)
    assert "Every entry of O is 2 times what it should be, which is √d." in report.message, str(report)


def _attention(Q, K, V, causal, scale):
    return form.exercise("ex01_attention").solution()(Q, K, V, causal=causal, scale=scale)


def test_a_formula_that_is_off_by_one_term_is_told_which():
    right_one = form.exercise("ex07_traffic_naive").solution()

    def off(N_q, N_k, d, d_v):
        reads, writes = right_one(N_q, N_k, d, d_v)
        return reads + 2 * N_k * d_v, writes

    report = said(off, "ex07_traffic_naive")
    assert report.mistake is None, str(report)
    assert "reads is too large by 2 times N_k·d_v, in every case that fails" in report.message, str(report)


# ---- the report

def test_the_panel_follows_the_theme_and_has_text_as_well():
    for report in (said(right), said(raises), check(NAME), said(lambda S: S.abs())):
        bundle = report._repr_mimebundle_()
        assert bundle["text/plain"] == str(report)
        assert "var(--jp-content-font-color1" in bundle["text/html"] and "var(--jp-layout-color1" in bundle["text/html"]
        assert "<script" not in bundle["text/html"]


def test_the_panel_escapes_what_the_learner_wrote():
    def bad(S):
        print("<b>bold</b>")
        raise ValueError("<script>alert(1)</script>")

    assert "<script>" not in said(bad)._repr_html_() and "&lt;script&gt;" in said(bad)._repr_html_()


def test_a_real_interrupt_ends_the_check():
    """Ctrl-C, or the notebook's stop button, is the learner's wish and not the code's fault."""
    def slow(S):
        signal.raise_signal(signal.SIGINT)
        return S

    with pytest.raises(KeyboardInterrupt):
        said(slow)


def test_the_limit_holds_for_each_case_separately():
    calls = []

    def slow_but_fine(S):
        calls.append(1)
        time.sleep(SECONDS / 4)
        return right(S)

    assert said(slow_but_fine).passed and len(calls) == len(form.exercise(NAME).cases)


def test_uninitialised_memory_cannot_look_right():
    def half_done(S):
        P = torch.empty_like(S)
        P[:, :-1] = right(S)[:, :-1]
        return P

    report = said(half_done)
    assert "NaN" in report.message and "never written" in report.message, str(report)
