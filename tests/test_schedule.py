"""The modelled units: what overlaps, what waits, what is read too early, who hangs."""

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


def test_a_pipeline_overlaps_copies_with_work():
    machine = Pipeline([3, 3, 3], [4, 4, 4], slots=2)
    for n in range(2):
        machine.start(n, n)
    for n in range(3):
        machine.wait(n % 2)
        machine.compute(n % 2)
        if n + 2 < 3:
            machine.start(n + 2, n % 2)
    assert machine.seen == [0, 1, 2] and machine.now == 3 + 3 * 4 and not machine.hung
    assert sorted(machine.spans) == sorted(schedule.pipelined([3, 3, 3], [4, 4, 4], slots=2))


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


def consumer(me, rounds, first=0):
    program = [("arrive", 0)] if me == first else []
    for n in range(rounds):
        program += [("sync", me), ("product", n), ("arrive", 1 - me), ("softmax", n)]
    return program


def test_consumers_that_take_turns_keep_the_tensor_cores_busy():
    spans, hung = take_turns([consumer(c, 4) for c in (0, 1)], product=2, softmax=2)
    products = sorted((span.start, span.end, span.unit[-1]) for span in spans if span.unit.startswith("tensor"))
    assert products == [(2 * n, 2 * n + 2, str(n % 2)) for n in range(8)] and not hung
    assert sorted(spans) == sorted(schedule.alternating(4, product=2, softmax=2))
    free = [[step for n in range(4) for step in (("product", n), ("softmax", n))]] * 2
    together, _ = take_turns(free, product=2, softmax=2)
    assert finish(together) > finish(spans)
    assert take_turns([consumer(c, 2, first=None) for c in (0, 1)], product=1, softmax=1) == ([], True)


@pytest.mark.parametrize("call, words", [
    (lambda: Pipeline([1], [1], 1).start(1, 0), "tile must be one of 0 to 0, got 1"),
    (lambda: Pipeline([1], [1], 1).wait(1), "slot must be one of 0 to 0, got 1"),
    (lambda: Pipeline([1], [1], 0), "slots must be"),
    (lambda: take_turns([[("jump", 0)]], 1, 1), "an instruction must be"),
    (lambda: iterations(FOUR_STEPS, 0), "count must be")])
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
