"""Every exercise: the solution passes, the stub is not implemented, each mistake gets its own name, variants pass.

An exercise that is added is found by itself: nothing here names one.
"""

import importlib.util

import pytest

from flashlab.triton_mode import interpreted
from flashlab_course.check import checker, diagnose, form, source, state, stubs

TRITON = importlib.util.find_spec("triton") is not None        # Linux only: elsewhere its exercises are left out
EXERCISES = [name for name in form.names() if TRITON or not form.exercise(name).triton]
MISTAKES = [pytest.param(name, m.name, marks=pytest.mark.xdist_group(name))    # what each does is kept: one process for them all
            for name in EXERCISES for m in form.exercise(name).mistakes]
VARIANTS = [(name, v.name) for name in EXERCISES for v in form.exercise(name).variants]


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_passes(name):
    exercise = form.exercise(name)
    report = checker.examine(exercise, exercise.solution())
    assert report.passed, str(report)
    assert report.solution, "nothing to show after a pass"


@pytest.mark.parametrize("name", EXERCISES)
def test_the_stub_is_not_implemented_yet(name):
    exercise = form.exercise(name)
    namespace = source.load_text(stubs.stub(name), f"stub of {name}")
    report = checker.examine(exercise, namespace[exercise.function])
    assert report.mistake == "not_implemented" and "not implemented yet" in str(report), str(report)
    assert exercise.parsed.regions[0].task in report.message, "the report does not say what to write"


@pytest.mark.parametrize("name, mistake", MISTAKES)
def test_a_mistake_gets_its_own_name(name, mistake):
    exercise = form.exercise(name)
    known = next(m for m in exercise.mistakes if m.name == mistake)
    if known.stray and not interpreted():
        pytest.skip("only the interpreter sees where it loads and stores")
    for form_of_it in known.forms:
        with state.normal():
            judged = diagnose.judge_known(exercise, form_of_it)
            report = checker.report_on(exercise, exercise.wrong(form_of_it), judged)
        assert not report.passed, "it passes: the cases do not show it"
        assert report.mistake == (known.same_as or mistake), str(report)
        assert known.what[1:40] in report.message or known.same_as


@pytest.mark.parametrize("name", EXERCISES)
def test_the_first_mistake_gets_its_name_when_it_is_handed_in(name):
    exercise = form.exercise(name)
    first = exercise.mistakes[0]
    assert checker.examine(exercise, exercise.wrong(first)).mistake == (first.same_as or first.name)


@pytest.mark.parametrize("name, variant", VARIANTS)
def test_a_correct_version_written_another_way_passes(name, variant):
    exercise = form.exercise(name)
    report = checker.examine(exercise, exercise.wrong(next(v for v in exercise.variants if v.name == variant)))
    assert report.passed, str(report)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_form_is_complete(name):
    exercise = form.exercise(name)
    assert exercise.variants and exercise.hints and exercise.mistakes and len(exercise.cases) > 1
    assert 5 <= exercise.head.minutes <= 40
    assert "\nHint: " in exercise.parsed.text
    names = [m.name for m in exercise.mistakes]
    assert len(set(names)) == len(names)
    for mistake in exercise.mistakes:
        assert not mistake.what.endswith(".") and not mistake.look.endswith("."), f"{mistake.name}: the report adds the full stop"


def test_every_chapter_that_builds_something_has_exercises():
    chapters = [form.exercise(name).head.chapter for name in EXERCISES]
    for chapter in ("01", "03", "04", "05", "06", "07", "10"):
        assert chapters.count(chapter), f"chapter {chapter} has none"
    assert len(EXERCISES) >= 14 and len(MISTAKES) >= 40


@pytest.mark.parametrize("name", form.names())
def test_a_chapter_asks_for_it(name):
    [chapter] = (source.root() / "notebooks/src").glob(f"{name[2:4]}_*.py")
    assert f'check("{name}"' in chapter.read_text(encoding="utf-8")


def test_exercises_are_the_stubs_of_the_solutions():
    """What counts is what is committed, or about to be: in the files themselves a learner may have written anything.

    Who keeps answers in a repository of their own commits them, too: a file that someone has written into is theirs.
    """
    for name in form.names():
        texts = [stubs.present(name), stubs.git("show", f":./exercises/{name}.py"), stubs.committed(name)]
        theirs = all(text and stubs.begun(name, text) for text in texts)
        assert theirs or stubs.stub(name) in texts, f"exercises/{name}.py is not the stub of its solution: make exercises"


def test_no_stub_is_committed_without_its_solution():
    paths = stubs.git("ls-tree", "--name-only", "HEAD", "exercises/").split()
    assert set(paths) <= {f"exercises/{name}.py" for name in form.names()}


MASKED = {"causal", "hidden"}


@pytest.mark.parametrize("name", [name for name in form.names() if "scale is any number" in form.exercise(name).parsed.text])
def test_any_scale_means_0_and_negative_ones_also_under_a_mask(name):
    inputs = [case.make() for case in form.exercise(name).cases]
    masked = [i for i in inputs if any(i.get(mask) is not None and i.get(mask) is not False for mask in MASKED)]
    for some in filter(None, (inputs, masked)):
        scales = [i["scale"] for i in some if i.get("scale") is not None]
        assert 0 in scales and min(scales) < 0, scales
