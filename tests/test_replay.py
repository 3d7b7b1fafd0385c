"""An answer in the player: on the case that goes wrong, opened where the first wrong number was stored."""

import pytest

from flashlab.triton_mode import interpreted
from flashlab_course.check import form, source
from flashlab_course.lesson import replay

MOVING = [name for name in form.names() if form.exercise(name).sram_bytes or form.exercise(name).show]


@pytest.fixture(autouse=True)
def _(sandbox):
    """A root of its own for answers."""


@pytest.mark.parametrize("name", MOVING)
def test_an_answer_on_modelled_memory_moves(name):
    player = replay(name, form.exercise(name).solution())
    assert player.scenes[0].title.startswith(name) and player.scenes[0].moved[-1] > 0, "no byte was moved"
    assert not player.marked, "it points at a number of a right answer"


@pytest.mark.skipif(not interpreted(), reason="kernels are followed in the interpreter")
@pytest.mark.parametrize("name", ["ex09_vector_add", "ex10_tile_of_scores"])
def test_a_kernel_moves(name):
    assert replay(name, form.exercise(name).solution()).scenes[0].moved[-1] > 0


def test_a_wrong_answer_opens_where_its_first_wrong_number_was_stored():
    exercise = form.exercise("ex06_fa2_inner_loop")
    wrong = exercise.wrong(next(m for m in exercise.mistakes if m.name == "no_rescale_O"))
    player = replay(exercise.name, wrong)
    assert player.marked and "two key blocks" in player.scenes[0].title, "not the smallest case that fails"
    assert player.start > 0
    assert replay(exercise.name, wrong, case="one key block").scenes[0].title.endswith("one key block")


@pytest.mark.skipif(not interpreted(), reason="kernels are followed in the interpreter")
def test_a_stray_access_opens_where_it_happens():
    exercise = form.exercise("ex09_vector_add")
    player = replay(exercise.name, exercise.wrong(next(m for m in exercise.mistakes if m.name == "no_guard_load")))
    assert player.start > 0 and not player.marked, "no number is wrong"


def test_a_wrong_tile_is_found_in_the_tensor_that_it_is_stored_to():
    exercise = form.exercise("ex05_fa1_inner_loop")
    wrong = next(m for m in exercise.mistakes if m.name == "old_division_not_undone")
    player = replay(exercise.name, exercise.wrong(wrong))
    assert player.marked and player.start > 0, "O_i is stored to O"


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
    assert "once ex06_fa2_inner_loop is written" in str(replay("ex06_fa2_inner_loop"))
    (sandbox / "exercises" / "ex06_fa2_inner_loop.py").write_text("def fa2_program(:", encoding="utf-8")
    assert "Python cannot read" in str(replay("ex06_fa2_inner_loop"))
