"""The modelled units: what overlaps, what waits, what is read too early. Programs that take turns, and a pipeline that
copies ahead, are exercises of chapter 12, with their mistakes: test_check_exercises.py."""

import pytest

from flashlab_course.gpu import schedule
from flashlab_course.gpu.schedule import FOUR_STEPS, Pipeline, finish, iterations, take_turns


@pytest.mark.parametrize("count", [1, 2, 7])
def test_four_steps_overlap(count):
    """The third step of the first iteration runs beside the second of the second and the first of the third."""
    one_by_one, overlapped = (iterations(FOUR_STEPS, count, overlapped=o) for o in (False, True))
    assert finish(one_by_one) == 4 * count and finish(overlapped) == count + 3
    assert finish(iterations((("load", 3), ("multiply", 1)), 10)) == 31                # the slowest sets the pace
    at_2 = {(span.unit, span.name) for span in overlapped if span.start == 2}
    assert at_2 == {(unit, str(n)) for n, unit in enumerate(("multiply", "load B", "load A")) if n < count}


def test_a_pipeline_shows_what_was_read_too_early():
    machine = Pipeline([3, 3], [1, 1], slots=1)
    machine.compute(0)
    machine.start(0, 0)
    machine.compute(0)
    machine.wait(0)
    machine.start(1, 0)                                # tile 0 is gone before anybody used it
    machine.wait(0)
    machine.compute(0)
    assert machine.seen == [schedule.NOTHING, schedule.HALF_COPIED, 1]
    waiting = Pipeline([1], [1], slots=2)
    waiting.wait(1)
    assert waiting.hung


@pytest.mark.parametrize("call, words", [
    (lambda: Pipeline([1], [1], 1).start(1, 0), "tile must be one of 0 to 0, got 1"),
    (lambda: Pipeline([1], [1], 1).wait(1), "slot must be one of 0 to 0, got 1"),
    (lambda: Pipeline([1], [1], 0), "slots must be"),
    (lambda: take_turns([[("jump", 0)]], 1, 1), "an instruction must be"),
    (lambda: iterations(FOUR_STEPS, 0), "count must be")])
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
