"""Answers by writers who had not read the known mistakes: right ones pass, the others get their report.

tests/answers/<exercise>.jsonl holds an answer a line: its name and kind, what was done, what the report called it (None
where it only says what is wrong and where), and the code, either whole or as what was written into the stub.

    python tests/test_answers.py                                        run them all, write their reports anew
    python tests/test_answers.py ex03_merge NAME KIND WHAT < code.py    add one: all that stands below the docstring
"""

import ast
import importlib.util
import json
from collections import Counter
from pathlib import Path

import pytest

from flashlab.triton_mode import interpreted
from flashlab_course.check import checker, form, source

FOLDER = Path(__file__).with_name("answers")
PLAIN = ("raised", "wrong_shape", "wrong_dtype", "wrong_type", "timeout")    # what Python or the contract says
TRITON = importlib.util.find_spec("triton") is not None


def answers(name):
    with open(FOLDER / f"{name}.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def written(parsed, row):
    """The answer as a file: the stub with its regions written and lines around them changed, or with other code in
    it."""
    if "code" in row:
        end = ast.parse(parsed.text).body[0].end_lineno
        return "\n".join([*parsed.text.split("\n")[:end], "", row["code"]])
    text = parsed.stub()
    for region, answer in zip(parsed.regions, row["answer"], strict=True):
        if answer is not None:                         # None: not written
            text = _swapped(text, parsed.todo(region), answer)
    for old, new in row.get("swaps", ()):
        text = _swapped(text, old, new)
    return text


def _swapped(text, old, new):
    """text with these whole lines replaced; new None removes them."""
    assert text.count(f"{old}\n") == 1, f"the stub has changed, it must hold once: {old!r}"
    return text.replace(f"{old}\n", "" if new is None else f"{new}\n")


def examined(exercise, row):
    source.exercise_path(exercise.name).write_text(written(exercise.parsed, row), encoding="utf-8")
    return checker.examine(exercise)


def complaint(row, report):
    """What is wrong with a report; "" if nothing is."""
    if report.passed != (row["kind"] == "right"):
        return "accepted" if report.passed else "rejected, though it is right"
    if report.passed:
        return ""
    if row["report"] not in (None, report.mistake):
        return f"called {report.mistake}, not {row['report']}"
    placed = report.where or report.trace or report.mistake or "right in every case" in report.message
    return "" if placed else "it says nowhere where"


@pytest.mark.skipif(not interpreted() and TRITON, reason="recorded where kernels are interpreted")
@pytest.mark.parametrize("name", form.names())
def test_answers_get_their_reports(sandbox, no_line, sampled, name):
    exercise = form.exercise(name)
    if exercise.triton and not TRITON:
        pytest.skip("needs Triton")
    reports = [(row, examined(exercise, row)) for row in sampled(answers(name), 24)]
    failed = [f"{row['name']} ({row['what']}): {said}\n{report}"
              for row, report in reports if (said := complaint(row, report))]
    assert not failed, "\n\n".join(failed)


def test_three_in_four_single_mistakes_are_named():
    single = [row["report"] for name in form.names() for row in answers(name) if row["kind"] == "one mistake"]
    found = Counter(report is not None and report not in PLAIN for report in single)
    assert found[True] / found.total() >= 0.75, found


def write(name, rows):
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (FOLDER / f"{name}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    import os
    import sys
    import tempfile

    from flashlab_course import workspace

    if len(sys.argv) > 1:
        name, slug, kind, what = sys.argv[1:]
        write(name,
              [*answers(name), {"name": slug, "kind": kind, "what": what, "report": None, "code": sys.stdin.read()}])
    with tempfile.TemporaryDirectory() as folder:
        workspace.fresh_root(Path(folder))
        os.environ["FLASHLAB_ROOT"] = folder
        for name in sys.argv[1:2] or form.names():
            write(name,
                  [row if row["kind"] == "right" else {**row, "report": examined(form.exercise(name), row).mistake}
                   for row in answers(name)])
