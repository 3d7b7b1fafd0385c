"""An answer in the player: on the case that goes wrong, opened at the line that does."""

import pytest

from flashlab.triton_mode import interpreted
from flashlab_course.check import form, source
from flashlab_course.lesson import moving, replay

MOVING = [name for name in form.names() if form.exercise(name).sram_bytes or form.exercise(name).show]


@pytest.fixture(autouse=True)
def _(sandbox):
    """A root of its own for answers."""


def wrong(name, mistake):
    exercise = form.exercise(name)
    return exercise.wrong(next(one for one in exercise.mistakes if one.name == mistake))


@pytest.mark.parametrize("name", MOVING + ["ex09_vector_add", "ex10_tile_of_scores"] * interpreted())
def test_a_right_answer_moves(name):
    player = replay(name, form.exercise(name).solution())
    assert player.scenes[0].title.startswith(name) and player.scenes[0].moved[-1] > 0, "no byte was moved"
    assert not player.marked, "it points at a number of a right answer"


@pytest.mark.parametrize("name, mistake, case, code, keys", [
    ("ex06_fa2_inner_loop", "no_rescale_O", "two key blocks", "O_i = O_i + P_ij @ V_j", (4, 8)),
    ("ex05_fa1_inner_loop", "no_rescale_l", "two steps", "l_new = l_i + P_ij", (4, 8)),
    ("ex05_fa1_inner_loop", "mask_missing", "causal", "m_new = ", (0, 2)),
    pytest.param("ex10_triton_forward", "no_rescale_O", "two key blocks", "O_i = O_i + tl.dot", (16, 32),
                 marks=pytest.mark.skipif(not interpreted(), reason="kernels are followed in the interpreter"))])
def test_a_wrong_answer_opens_at_the_line_that_goes_wrong(name, mistake, case, code, keys, monkeypatch):
    monkeypatch.setattr(moving, "play", lambda recording, start, at: (recording, recording.steps[start or 0], at))
    recording, step, at = replay(name, wrong(name, mistake))
    assert "instead of" in step.note, "the player does not say what is wrong"
    assert case in recording.title and at[0] == "O", "not the smallest case that fails"
    assert code in recording.lines[step.line].text and step.tile[1] == keys, (recording.lines[step.line], step.tile)
    assert replay(name, wrong(name, mistake), case=case)[0].title.endswith(case)


@pytest.mark.skipif(not interpreted(), reason="kernels are followed in the interpreter")
def test_a_stray_access_opens_where_it_happens():
    player = replay("ex09_vector_add", wrong("ex09_vector_add", "no_guard_load"))
    assert player.start > 0 and not player.marked, "no number is wrong"


def test_an_answer_that_raises_is_shown_up_to_there():
    name = "ex06_fa2_inner_loop"
    text = form.exercise(name).parsed.text.replace("m_i = m_new", "m_i = m_new[7]")
    source.exercise_path(name).write_text(text, encoding="utf-8")
    assert "IndexError" in replay(name)._repr_html_()


@pytest.mark.parametrize("arguments, words", [
    (("ex99",), "name must be an exercise"), (("ex01_heads",), "moves no tiles"),
    (("ex06_fa2_inner_loop", max, "no such case"), "case must be one of 'one key block'"),
])
def test_what_cannot_be_shown_is_said(arguments, words):
    with pytest.raises(ValueError, match=words):
        replay(*arguments)


def test_before_it_is_written_a_sentence_takes_its_place(sandbox):
    assert all(f"once {name} is w" in str(replay(name)) for name in ("ex06_fa2_inner_loop", "ex13_split_and_merge"))
    (sandbox / "my/exercises" / "ex06_fa2_inner_loop.py").write_text("def fa2_program(:", encoding="utf-8")
    assert "Python cannot read" in str(replay("ex06_fa2_inner_loop"))


def test_what_online_softmax_keeps_on_chip_is_in_the_table():
    player = replay("ex03_online_softmax", wrong("ex03_online_softmax", "no_rescale_l"))
    now = [item.at(player.start).text for item in player.scenes[0].items]
    assert any("l was not rescaled" in text and "3.997 instead of 2.839" in text for text in now)
    assert "l" in now and "m" in now and "0.387" in now, "m and l are hidden by the tensors they are stored to"
