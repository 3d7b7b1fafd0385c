"""3063 answers by writers who had read neither the known mistakes nor the checker: right ones pass, others get what they got.

tests/answers/<exercise>/<slug>.py says in its first lines which kind it is and what was done. reports.json holds what the report
called each of those that fail, None where it only says what is wrong and where. `python tests/test_answers.py` writes it anew.
"""

import importlib.util
import json
from collections import Counter
from pathlib import Path

import pytest

from flashlab.triton_mode import interpreted
from flashlab_course.check import checker, form, source

FOLDER = Path(__file__).with_name("answers")
REPORTS = FOLDER / "reports.json"
ANSWERS = sorted(f"{path.parent.name}/{path.stem}" for path in FOLDER.glob("ex*/*.py"))
PLAIN = ("raised", "wrong_shape", "wrong_dtype", "wrong_type", "timeout")    # what Python or the contract says
TRITON = importlib.util.find_spec("triton") is not None


def kind(answer):
    return (FOLDER / f"{answer}.py").read_text(encoding="utf-8").split("\n")[0].removeprefix("# kind: ")


def examined(answer):
    exercise = form.exercise(answer.partition("/")[0])
    source.exercise_path(exercise.name).write_text((FOLDER / f"{answer}.py").read_text(encoding="utf-8"), encoding="utf-8")
    return checker.examine(exercise)


@pytest.mark.skipif(not interpreted() and TRITON, reason="recorded where kernels are interpreted")
@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_gets_its_report(sandbox, answer):
    exercise = form.exercise(answer.partition("/")[0])
    if exercise.triton and not TRITON:
        pytest.skip("needs Triton")
    report = examined(answer)
    assert report.passed == (kind(answer) == "right"), str(report)
    if not report.passed:
        named = json.loads(REPORTS.read_text())[answer]
        assert named in (None, report.mistake), str(report)
        assert report.where or report.trace or report.mistake or "right in every case" in report.message, "it says nowhere where"


def test_three_in_four_single_mistakes_are_named():
    reports = json.loads(REPORTS.read_text())
    found = Counter(reports[answer] is not None and reports[answer] not in PLAIN
                    for answer in ANSWERS if kind(answer) == "one mistake")
    assert found[True] / found.total() >= 0.75, found


if __name__ == "__main__":
    import os
    import tempfile

    from flashlab_course.check import stubs

    with tempfile.TemporaryDirectory() as folder:
        stubs.fresh_root(Path(folder))
        os.environ["FLASHLAB_ROOT"] = folder
        REPORTS.write_text(json.dumps({a: examined(a).mistake for a in ANSWERS if kind(a) != "right"}, indent=1) + "\n")
