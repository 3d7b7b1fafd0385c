"""Every exercise: the solution passes, the stub is not implemented, each mistake gets its own name.

An exercise that is added is found by itself: nothing here names one. test_answers.py holds answers written in other
ways.
"""

import importlib.util
import re
import subprocess

import pytest

from flashlab.triton_mode import interpreted
from flashlab_course.check import checker, form, source, stubs

TRITON = importlib.util.find_spec("triton") is not None        # Linux only: elsewhere its exercises are left out
EXERCISES = [name for name in form.names() if TRITON or not form.exercise(name).triton]
each = pytest.mark.parametrize("name", EXERCISES)


@each
def test_the_solution_passes_and_the_stub_is_not_implemented_yet(name):
    exercise = form.exercise(name)
    report = checker.examine(exercise, exercise.solution())
    assert report.passed, str(report)
    assert report.solution, "nothing to show after a pass"
    namespace = source.load_text(stubs.stub(name), f"stub of {name}")
    report = checker.examine(exercise, namespace[exercise.function])
    assert report.mistake == "not_implemented" and "not implemented yet" in str(report), str(report)
    assert exercise.parsed.regions[0]["task"] in report.message, "the report does not say what to write"


@each
def test_mistakes_get_their_own_names(name, no_line, sampled):
    exercise = form.exercise(name)
    for known in sampled(exercise.mistakes, 60):
        for form_of_it in () if known.stray and not interpreted() else known.forms:
            report = checker.examine(exercise, exercise.wrong(form_of_it))
            assert not report.passed, f"{known.name} passes: the cases do not show it"
            assert report.mistake == known.name, str(report)
            assert known.what[1:40] in report.message


def test_the_form_is_complete():
    """A text ends without a full stop, which the report adds, and calls nothing amax where a learner wrote max(...)."""
    for exercise in map(form.exercise, EXERCISES):
        assert exercise.hints and exercise.mistakes and len(exercise.cases) > 1, exercise.name
        assert 5 <= exercise.head.minutes <= 40, exercise.name
        assert "\nHint: " in exercise.parsed.text, exercise.name
        names = [m.name for m in exercise.mistakes]
        assert len(set(names)) == len(names), exercise.name
        known = frozenset({"the numbers are right"}).union(*(case.features for case in exercise.cases))
        for hint in exercise.hints:
            assert getattr(hint, "about", frozenset()) <= known, f"no case has what this hint is about: {hint}"
        told = exercise.not_allowed
        assert told.startswith("Not allowed: ") and told.endswith("solutions/."), told
        for m in exercise.mistakes:
            assert not m.what.endswith(".") and not m.look.endswith("."), (exercise.name, m.name)
            assert not re.search(r"amax|the (last|first) line|P_ij\.sum|masked_fill\(hidden", m.what + m.look), m.name


def test_the_chapter_of_each_exercise_asks_for_it():
    for name in form.names():
        [chapter] = (source.root() / "notebooks/src").glob(f"{source.chapter(name)}_*.py")
        assert f'check("{name}"' in chapter.read_text(encoding="utf-8")
    assert {"01", "03", "04", "05", "06", "07", "10"} <= set(map(source.chapter, form.names()))


def test_exercises_are_the_stubs_of_the_solutions():
    """What counts is what is committed, or about to be: in the files themselves a learner may have written anything.

    Who keeps answers in a repository of their own commits them, too: a file that someone has written into is theirs.
    """
    for name in form.names():
        texts = [stubs.present(name), *(git("show", f"{at}:./exercises/{name}.py") for at in ("", "HEAD"))]
        theirs = all(text and stubs.begun(name, text) for text in texts)
        assert theirs or stubs.stub(name) in texts, f"exercises/{name}.py is not its solution's stub: make exercises"
    paths = git("ls-tree", "--name-only", "HEAD", "exercises/").split()
    assert set(paths) <= {f"exercises/{name}.py" for name in form.names()}, "a stub has no solution"


def git(*words):
    return subprocess.run(["git", *words], cwd=source.root(), capture_output=True, text=True).stdout


def test_any_scale_means_0_and_negative_ones_also_under_a_mask():
    for exercise in map(form.exercise, form.names()):
        if "scale is any number" not in exercise.parsed.text:
            continue
        inputs = [case.make() for case in exercise.cases]
        masks = ("causal", "hidden")
        masked = [i for i in inputs if any(i.get(mask) is not None and i.get(mask) is not False for mask in masks)]
        for some in filter(None, (inputs, masked)):
            scales = [i["scale"] for i in some if i.get("scale") is not None]
            assert 0 in scales and min(scales) < 0, (exercise.name, scales)
