"""Spoilt solutions: whatever an edit makes of one, the checker has a verdict, and can name a mistake or says that it cannot."""

import importlib.util
from pathlib import Path

import pytest

from flashlab.triton_mode import import_triton
from flashlab_course.check import Report, checker, form

spec = importlib.util.spec_from_file_location("solutions_fuzz", Path(__file__).resolve().parents[1] / "solutions/fuzz.py")
fuzz = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fuzz)

SEED = 5
EXERCISES = [name for name in form.names() if import_triton() or not form.exercise(name).triton]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    for name in EXERCISES:
        monkeypatch.setattr(form.exercise(name), "seconds", fuzz.SECONDS)


@pytest.mark.parametrize("name", EXERCISES)
def test_every_spoilt_solution_gets_its_verdict(name):
    exercise = form.exercise(name)
    for k in range(1 if exercise.triton else 4):
        text = fuzz.spoilt(exercise, SEED, k)
        kind, what = fuzz.verdict(exercise, text) if text else ("no Python", None)
        assert kind not in ("RAISED", "undiagnosed"), f"{name} {SEED} {k}\n{fuzz.changed(exercise, text)}\n{what}"


def test_the_same_seed_spoils_in_the_same_way_and_another_in_another():
    exercise = form.exercise("ex06_fa2_inner_loop")
    versions = [[fuzz.spoilt(exercise, seed, k) for k in range(20)] for seed in (1, 1, 2)]
    assert versions[0] == versions[1] and versions[0] != versions[2]
    assert len(set(versions[0])) > 12, "one edit like the other"


def test_a_checker_that_raises_turns_the_fuzz_red(monkeypatch, capsys):
    monkeypatch.setattr(form.Exercise, "invoke", None)             # nothing can be run: not even the solution
    monkeypatch.setattr("flashlab_course.check.judge.expect.__defaults__", ({},))
    assert fuzz.main(["ex01_heads", "--count", "6"]) == 1
    assert "RAISED" in capsys.readouterr().out


def test_a_diagnosis_that_fails_leaves_the_verdict(monkeypatch):
    """Its cause is said, and where the numbers go wrong all the same."""
    exercise = form.exercise("ex03_merge")
    monkeypatch.setattr(exercise, "mistakes", [form.Mistake("no_such_code", "it was wrong", "it", ("no such code", "1"))])
    solution = exercise.solution()
    report = checker.examine(exercise, lambda a, b: tuple(2 * part for part in solution(a, b)))
    assert isinstance(report, Report) and not report.passed and report.mistake is None
    assert "The numbers are wrong. Naming the mistake failed with SourceError" in report.message, str(report)
    assert "the first wrong number" in report.message and report.where[1:] == ("O", (0, 0)), str(report)
    assert not report.cases[0].passed and None not in [case.passed for case in report.cases]
