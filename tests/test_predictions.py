"""Predictions are scored in words, drawn, and kept; the reference shows itself once the learner's own answer passes."""

import json

import matplotlib.pyplot as plt
import pytest
import torch

from flashlab_course.check import check, form, source
from flashlab_course.lesson import compare, nearest, predictions, reveal
from flashlab_course.lesson.predictions import FILE
from flashlab_course.lesson.reference import _aligned


@pytest.fixture(autouse=True)
def restart(sandbox, monkeypatch):
    """Nobody's own predictions are read or written, and none was given in this process. Called, it is a restart."""
    def fresh():
        monkeypatch.setattr(predictions, "GIVEN", set())
    fresh()
    return fresh


def said(capsys, *args, **kwargs):
    compare(*args, **kwargs)
    return capsys.readouterr().out


@pytest.mark.parametrize("nothing", [None, ..., {"a": None}, [None, None], (None,)])
def test_an_empty_prediction_is_asked_for(capsys, nothing):
    assert said(capsys, "how many", nothing, 7) == f"how many: {predictions.ASK}\n"


@pytest.mark.parametrize("guess, truth, words", [
    (7, torch.tensor(7), "you said 7. Right."),
    (0.65, 0.67, "you said 0.65; it is 0.67: close."), (4, 7, "you said 4; it is 7: 43 % too small."),
    (30, 3, "you said 30; it is 3: 10 times too large."), (1, 3_000_000, "it is 3,000,000: 3,000,000 times too small."),
    (-1, 4, "you said -1; it is 4."), (float("nan"), 4, "it is 4."),
    ("more", "fewer", "you said more; it is fewer."), (" More ", "more", "Right."),
    ("KQ^T", "K Q^T", "Right."), ("dV and dK", "dK and dV", "Right."),
    (True, False, "you said True; it is False."),
    (lambda N: N, 7, "you said a function; a number was asked, and it is 7."),
    ({"wiht": 1}, {"with": 2}, "how many, wiht: there is no such thing to predict."),
    (3, True, "you said 3; True or False was asked, and it is True."), (1, True, "True or False was asked"),
    ([1, 2], [1, 3], "number 2: you said 2; it is 3"), ([2, 2], {1: 1.9610067, 16: 1.0}, "; it is 1: 1.96, 16: 1."),
    (3, "3", "you said 3. Right."), ("none", "3", "you said none; it is 3."),
    (1e-2, 2.44e10, "it is 2.44e+10: 2.4e+12 times too small."),
])
def test_a_prediction_is_scored_in_words(capsys, guess, truth, words):
    assert words in said(capsys, "how many", guess, truth)


@pytest.mark.parametrize("guess, truth, words", [
    (8, {3}, "you said 8; right is 3."), ([13, 3], {3, 13}, "you said 3 and 13. Right."),
    ("dK, dV", {"dV", "dK"}, "Right."), ([3, 8], {3, 13}, "you left out 13, and 8 should not be there."),
    ((1, 2, 3), {1, 2}, "you said 1, 2 and 3; 3 should not be there.")])
def test_labels_are_compared_as_a_set(capsys, guess, truth, words):
    assert words in said(capsys, "which lines", guess, truth)


@pytest.mark.parametrize("guess, reason", [(1.02, True), (2, False), ("one", False), (3.01, False)])
def test_an_expected_mistake_gets_its_reason(capsys, guess, reason):
    printed = said(capsys, "share", guess, 3, reasons={1: "That is the top-left rule.", 3: "never said"})
    assert ("That is the top-left rule." in printed) == reason and "never" not in printed


def test_a_truth_that_no_cell_computes_comes_from_the_package(capsys, monkeypatch):
    monkeypatch.setitem(predictions.TRUTHS, "which line", {3})
    assert said(capsys, "which line", 3) == "which line: you said 3. Right.\n"


@pytest.mark.parametrize("guess, truth, unit, lines", [
    (4, {1024: 4, 4096: 64}, "", ["1024: you said 4. Right.", "4096: you said 4; it is 64: 16 times too small."]),
    (4, [4, 64], "", ["number 1: you said 4. Right.", "number 2: you said 4; it is 64: 16 times too small."]),
    ("right", {"a": "right", "b": "NaN"}, "", ["a: you said right. Right.", "b: you said right; it is NaN."]),
    (lambda N: 12 // (N - 1), {1: "x", 4: 4}, "", [
        "1: you said ZeroDivisionError: integer division or modulo by zero; it is x.", "4: you said 4. Right."]),
    ({1: 4, 2: None}, {1: 4.0, 2: 64.0}, "MiB", ["1: you said 4 MiB. Right."]),           # only what was predicted
    ({1: 5}, {1: 3.31}, "%", ["1: you said 5 %; it is 3.31 %: 1.5 times too large."]),     # not 51 % too large
])
def test_several_truths_are_scored_one_by_one(capsys, guess, truth, unit, lines):
    assert said(capsys, "size", guess, truth, unit).splitlines() == [f"size, {line}" for line in lines]


def test_a_prediction_survives_a_restart(capsys, sandbox, restart):
    compare("size", {1024: 4, 4096: None}, {1024: 4, 4096: 64})
    restart()
    capsys.readouterr()
    assert "you said 4. Right." in said(capsys, "size", {1024: None, 4096: None}, {1024: 4, 4096: 64}), "forgotten"
    assert "you said" not in said(capsys, "another", None, 7), "one prediction was taken for another"
    for broken in ("", "{", "[1]", "null"):
        (sandbox / "my" / FILE).write_text(broken)
        assert "Right" in said(capsys, "size", 4, 4)
        assert json.loads((sandbox / "my" / FILE).read_text()) == {"size": 4}


@pytest.mark.parametrize("guess, empty", [(221, None), ({1: 4, 2: None}, {1: None, 2: None})])
def test_a_prediction_that_is_emptied_is_forgotten(capsys, restart, guess, empty):
    truth = dict.fromkeys(guess, 7) if isinstance(guess, dict) else 7
    assert "you said" in said(capsys, "size", guess, truth)
    assert "you said" not in said(capsys, "size", empty, truth), "taken back, and still shown"
    restart()
    assert "you said" not in said(capsys, "size", empty, truth), "taken back, and shown after a restart"


@pytest.mark.parametrize("guess, x, drawn", [
    (50, None, 1), (50, 10, 1), ({10: 5, 100: 500}, None, 2), (lambda N: N * N, None, 2), (None, None, 0),
    ("many", None, 0), (lambda N: "x", None, 0), (-5, 10, 1)])
def test_a_prediction_is_drawn_on_the_picture(guess, x, drawn):
    fig, ax = plt.subplots()
    ax.loglog([1, 100], [1, 1000])
    assert compare("bytes", guess, {10: 7, 100: 9} if callable(guess) else 7).on(fig, x=x) is fig
    fig.draw_without_rendering()
    plt.close(fig)
    assert len(ax.lines) == 1 + drawn


@pytest.mark.parametrize("guess, x, axis", [
    (1e30, 10, "y"), (1e30, None, "y"), (1e30, None, "x"), ({10: 1e30}, None, "y"), (float("inf"), 10, "y")])
def test_a_prediction_outside_the_picture_stands_at_its_edge_with_its_value(guess, x, axis):
    """Drawn in its place it would make a picture of a million pixels, or squeeze all else to a line."""
    fig, ax = plt.subplots(figsize=(6, 4))
    ax.plot([1, 100], [1, 1000])
    ax.set(ylim=(1500, 0))                                      # as bars are drawn: the first one on top
    before = ax.get_xlim(), ax.get_ylim()
    compare("bytes", guess, {10: 7} if isinstance(guess, dict) else 7).on(fig, x=x, axis=axis)
    fig.draw_without_rendering()
    tight = fig.get_tightbbox()
    plt.close(fig)
    assert (ax.get_xlim(), ax.get_ylim()) == before and tight.height < 6 and tight.width < 8
    assert [text.get_text() for text in ax.texts] == ["you said inf" if guess == float("inf") else "you said 1.00e+30"]


def test_the_nearest_of_some_orders_of_magnitude():
    assert nearest(5.6e-5, (1e-7, 1e-5, 1e-3)) == 1e-5 and nearest(0, (1e-7, 1e-5)) == 1e-7


def test_the_reference_is_shown_after_passing_beside_the_learners_own(sandbox):
    name = "ex03_safe_softmax"
    before = reveal(name)
    assert not before.reference and "hint=True" in str(before) and "<table>" not in before._repr_html_()
    assert "def safe_softmax" in reveal(name, anyway=True).reference, "asked for, and not shown"
    answer = form.exercise(name).parsed.text.replace("# >>> your turn:", "# mine:").replace("# <<<", "")
    source.exercise_path(name).write_text(answer, encoding="utf-8")
    assert check(name).passed
    shown = reveal(name)
    assert shown.mine and "# mine" in shown.mine and "# mine" not in shown.reference
    assert "your answer" in shown._repr_html_() and "+++ the reference" in str(shown)
    with pytest.raises(ValueError, match="name must be an exercise.*got 'ex99'"):
        reveal("ex99")


def test_spaces_and_comments_are_no_difference_beside_the_reference():
    assert not any(differ for *_, differ in _aligned("x = Q[a:b]*2\n", "    x = Q[a : b] * 2      # (B_r, d)\n"))
    assert any(differ for *_, differ in _aligned("x = Q[a:b]\n", "x = Q[b:a]\n"))
