"""What the checker says of answers whose mistake it has no name for, and that it blames nothing that is right."""

from types import SimpleNamespace

import pytest
import torch

from flashlab_course.check import case_inputs, checker, diagnose, failing, form, line, raised, run_case, say
from flashlab_course.check.runner import Problem

inf, nan = float("inf"), float("nan")


def said(name, fn):
    return checker.examine(form.exercise(name), fn)


def in_words(report):
    return " ".join(report.message.split())


# ---- features

def judged(**cases):
    """name=(passed, features), as which_cases() sees them."""
    return [SimpleNamespace(case=form.Case(name, dict, frozenset(features)), passed=passed, wrong=[0] * (not passed))
            for name, (passed, features) in cases.items()]


def test_a_feature_that_another_passing_case_isolates_is_not_blamed():
    cases = judged(plain=(True, []), tail=(True, ["a short last key block"]),
                   both=(False, ["a short last key block", "a causal mask"]), mask=(True, ["a causal mask"]))
    assert say.which_cases(cases) == "Wrong in 1 of 4 cases."


def test_a_feature_is_blamed_where_exactly_its_cases_fail():
    cases = judged(plain=(True, []), tail=(False, ["a short last key block"]),
                   other=(False, ["a short last key block", "d_v ≠ d"]))
    assert "Wrong in every case with a short last key block; all other cases are right." in say.which_cases(cases)


def test_the_forgotten_shift_in_a_loop_bound_is_not_blamed_on_a_short_block(no_line):
    exercise = form.exercise("ex08_dq_block")
    mistake = next(m for m in exercise.mistakes if m.name == "loop_ends_without_shift")
    report = checker.examine(exercise, exercise.wrong(mistake))
    assert report.mistake == "loop_ends_without_shift" and "short last key block" not in in_words(report), str(report)


def test_right_numbers_are_never_called_wrong(no_line):
    exercise = form.exercise("ex03_online_softmax")
    mistake = next(m for m in exercise.mistakes if m.name == "two_passes")
    report = checker.examine(exercise, exercise.wrong(mistake))
    assert "The numbers are right" in report.message and "Wrong" not in report.message, str(report)


def changes_its_input(name, mistake):
    """The solution with a mistake in it, which also changes its first input in place."""
    exercise = form.exercise(name)
    wrong = exercise.wrong(next(m for m in exercise.mistakes if m.name == mistake)) if mistake else exercise.solution()

    def fn(first, *rest, **more):
        found = wrong(first, *rest, **more)
        first += 1
        return found

    return fn


def test_changed_inputs_and_wrong_numbers_are_both_said():
    report = said("ex03_safe_softmax", changes_its_input("ex03_safe_softmax", "one_maximum"))
    assert report.mistake == "changed_inputs + one_maximum", str(report)
    assert "The numbers are right" not in report.message, str(report)


def test_changed_inputs_alone_leave_the_numbers_right():
    report = said("ex03_safe_softmax", changes_its_input("ex03_safe_softmax", None))
    assert report.mistake == "changed_inputs" and "The numbers are right" in report.message, str(report)


# ---- outputs and places

def test_it_says_which_outputs_are_right(no_line):
    def fa1(Q_i, K_j, V_j, O_i, l_i, m_i, *more):
        O, l, m = form.exercise("ex05_fa1_inner_loop").solution()(Q_i, K_j, V_j, O_i, l_i, m_i, *more)
        return O + 0.01 * O.square(), l, m

    assert "l_i and m_i are right; O_i is wrong." in in_words(said("ex05_fa1_inner_loop", fa1))


def test_outputs_are_not_right_in_cases_that_raised():
    def early(K_cache, V_cache, K_new, V_new, lengths):
        for b, n in enumerate(lengths.tolist()):
            for t in range(K_new.shape[2]):
                K_cache[b, :, n + t] = K_new[b, :, t]
                V_cache[b, :, n + t + 1] = V_new[b, :, t]
        return lengths + K_new.shape[2]

    text = in_words(said("ex13_kv_update", early))
    assert "K_cache and `lengths` are right; V_cache is wrong." in text


@pytest.mark.parametrize("case, feature", [
    ("every second row of a transpose", "starts or steps that differ between dimensions that trade places"),
    ("short last steps", "a step that does not divide size − start"),
])
def test_a_view_is_blamed_on_what_makes_it_wrong(case, feature):
    exercise = form.exercise("ex09_view_strides")
    features = {"starts or steps that differ between dimensions that trade places",
                "a step that does not divide size − start"}
    found = next(known for known in exercise.cases if known.name == case)
    assert found.features & features == {feature}


# ---- the line

def scale_goes_late(Q, K, V, *, causal=False, scale=None):
    scale = Q.shape[-1] ** -0.5 if scale is None else scale
    scores = Q @ K.T
    if causal:
        later = torch.ones(scores.shape).triu(1 + len(K) - len(Q)).bool()
        scores = scores.masked_fill(later, -inf)
    weights = torch.softmax(scores, -1).nan_to_num(0) * scale
    return weights @ V


def test_the_first_line_that_goes_wrong_is_shown_in_the_learners_own_names():
    report = said("ex01_attention", scale_goes_late)
    assert "`weights = torch.softmax(scores, -1).nan_to_num(0) * scale`" in in_words(report), str(report)


def sizes_of_a_row_too_many(N_q, N_k, d, d_v):
    S = (N_q + 1) * N_k
    reads = N_q * d + N_k * d + 3 * S + N_k * d_v
    return reads, 3 * N_q * N_k + N_q * d_v


def rows_end_with_the_keys(Q, K, i, j, B_r, B_c):
    start = i * B_r
    rows = Q[start:start + B_c]
    return rows @ K[j * B_c:(j + 1) * B_c].T / Q.shape[1] ** 0.5


@pytest.mark.parametrize("name, fn, code", [
    ("ex07_traffic_naive", sizes_of_a_row_too_many, "`S = (N_q + 1) * N_k`"),         # whole numbers, no case passes
    ("ex00_score_tile", rows_end_with_the_keys, "`rows = Q[start:start + B_c]`"),     # a shape goes wrong later
])
def test_the_cause_is_shown_not_the_line_where_it_shows(name, fn, code):
    exercise = form.exercise(name)
    found = line.first_wrong(exercise, fn, diagnose.judge_all(exercise, fn))
    assert found.certain and code in str(found), str(found)


def test_another_style_is_no_mistake():
    """The scores lack their factor in every case; the case that passes shows that this does no harm."""
    def attention(Q, K, V, *, causal=False, scale=None):
        factor = Q.shape[-1] ** -0.5 if scale is None else scale
        raw = Q @ K.T
        scores = raw * factor
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape).triu(2 + len(K) - len(Q)).bool(), -inf)
        odds = torch.exp(scores - scores.amax(-1, True).clamp_min(-2000))
        return (odds / odds.sum(-1, True).clamp_min(1e-30)) @ V

    report = said("ex01_attention", attention)
    assert "`scores = scores.masked_fill(" in in_words(report), str(report)


def test_every_value_counts_that_the_solution_has():
    exercise = form.exercise("ex06_fa2_inner_loop")
    judged = diagnose.judge_all(exercise, exercise.solution())
    judged[1].wrong = [(0, 1.0, 0.0)]                  # as if that case had failed
    assert line.first_wrong(exercise, exercise.solution(), judged) is None


def test_a_result_of_a_known_wrong_shape_is_that_mistake_only_with_its_numbers():
    def padded(Q, K, i, j, B_r, B_c):
        S = torch.full((B_r, B_c), 7.0)
        tile = Q[i * B_r:(i + 1) * B_r] @ K[j * B_c:(j + 1) * B_c].T / Q.shape[1] ** 0.5
        S[:len(tile), :tile.shape[1]] = tile
        return S

    report = said("ex00_score_tile", padded)
    assert report.mistake == "wrong_shape" and "moved back" not in report.message, str(report)


# ---- exceptions

def test_the_shapes_in_the_failing_line_are_shown_with_the_rule():
    def softmax(S):
        m = S.amax(1)
        if S.shape[0] == S.shape[1] or S.shape[0] == 1:
            return (P := torch.exp(S - S.amax(-1, True)).nan_to_num(0)) / P.sum(-1, True).clamp_min(1e-30)
        return torch.exp(S - m) / 2

    report = said("ex03_safe_softmax", softmax)
    text = in_words(report)
    assert report.mistake == "raised", str(report)
    assert "In that line S has shape (3, 4), m (3,)." in text and "`[:, None]`" in text, str(report)


@pytest.mark.parametrize("error, text, words", [
    ("RuntimeError", "it raised RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)", "transposed"),
    ("RuntimeError", "it raised RuntimeError: expected m1 and m2 to have the same dtype, but got: float != c10::Half",
     "dtypes"),
    ("IndexError", "it raised IndexError: index 3 is out of bounds for dimension 0 with size 3",
     "has the indices 0 to"),
    ("RuntimeError", "it raised RuntimeError: Boolean value of Tensor with more than one value is ambiguous",
     "torch.where"),
])
def test_usual_exceptions_are_explained(error, text, words):
    assert words in raised.meaning(Problem("raised", text, [], error))


# ---- two mistakes

@pytest.mark.parametrize("name, pair", [
    ("ex08_ds_tile", ("scale_missing_dK", "D_added")),
    # in the smallest case the second shows only with the first
    ("ex11_dropout", ("mask_inverted", "dropped_P_in_dS")),
])
def test_two_mistakes_are_both_named(name, pair, no_line):
    exercise = form.exercise(name)
    report = checker.examine(exercise, exercise.wrong(*(m for m in exercise.mistakes if m.name in pair)))
    assert set((report.mistake or "").split(" + ")) == set(pair), str(report)


@pytest.mark.parametrize("limit, value", [("SECONDS", 0.0), ("LOOKS", dict.fromkeys(diagnose.LOOKS, 0))])
def test_two_mistakes_are_looked_for_so_long_and_no_longer(limit, value, monkeypatch):
    exercise = form.exercise("ex01_attention")
    monkeypatch.setattr(diagnose, limit, value)
    both = [m for m in exercise.mistakes if m.name in ("K_for_V", "mask_top_left")]
    report = checker.examine(exercise, exercise.wrong(*both))
    assert not report.passed and " + " not in (report.mistake or "")


def test_edits_that_make_no_python_together_explain_nothing():
    exercise = form.exercise("ex06_use_of_L")
    pair = tuple(m for m in exercise.mistakes if m.name in ("averaged", "L_not_log"))
    assert diagnose.outcome(exercise, pair, exercise.cases[0]).problem.kind == "impossible"


# ---- the case at hand

@pytest.mark.parametrize("name, mistake", [("ex01_attention", "mask_missing"), ("ex06_fa2_inner_loop", "no_rescale_O"),
                                           ("ex09_tile_offsets", "off_by_one"), ("ex03_merge", "no_rescale")])
def test_the_lines_to_paste_bring_the_failing_case(name, mistake, no_line):
    exercise = form.exercise(name)
    wrong = exercise.wrong(next(m for m in exercise.mistakes if m.name == mistake))
    report = checker.examine(exercise, wrong)
    cell = {exercise.function: wrong}
    exec(report.snippet, cell)
    values = cell["found"] if isinstance(cell["found"],
                                         dict) else dict(zip(cell["right"], _several(cell["found"]), strict=True))
    assert values.keys() == cell["right"].keys()
    assert any(not torch.allclose(*map(torch.as_tensor, (values[n], cell["right"][n])))
               for n in values), "nothing is wrong in it"
    assert report.snippet.splitlines()[0] in report._repr_html_()


def _several(found):
    return found if isinstance(found, tuple) else (found,)


def test_a_case_is_new_at_each_call():
    first = case_inputs("ex01_attention", "square")
    first["Q"].zero_()
    assert case_inputs("ex01_attention", "square")["Q"].any()


def test_run_case_gives_what_the_function_makes():
    exercise = form.exercise("ex06_fa2_inner_loop")
    found = run_case("ex06_fa2_inner_loop", "two key blocks", exercise.solution())
    right = failing.expected("ex06_fa2_inner_loop", "two key blocks")
    assert all(torch.allclose(found[n], right[n], atol=1e-5) for n in ("O", "L"))


# ---- words

@pytest.mark.parametrize("text, starts", [
    ("the mask was lost", "The mask"), ("a mask was lost", "A mask"),
    ("`row` was lost", "`row`"), ("l_i was lost", "l_i"), ("alpha was lost", "alpha was"),
    ("causal masks were lost", "Causal masks"),
])
def test_names_keep_their_case_at_the_start_of_a_sentence(text, starts):
    assert say.sentence(text).startswith(starts)


