"""Random calls of the operator: right here on the CPU, and a wrong one is found and told."""

import json

import pytest
import torch

import flashlab  # noqa: F401
from flashlab_course.bench import fuzz
from flashlab_course.bench.options import in_processes


@pytest.mark.parametrize("number", range(0, 12 * 37, 37))
def test_a_random_call_is_right(number):
    case = fuzz.Case(number, longest=60)
    assert fuzz.try_case(case, "cpu", "torch") is None, str(case)


def test_cases_are_the_same_each_time_and_of_every_kind():
    cases = [fuzz.Case(number) for number in range(2000)]
    assert str(cases[7]) == str(fuzz.Case(7))
    for name, kinds in (("dtype", 3), ("packed", 2), ("causal", 2), ("layout", 3), ("deterministic", 2)):
        assert len({getattr(case, name) for case in cases}) == kinds
    assert {case.window is None for case in cases} == {True, False} and max(len(case.lengths_q) for case in cases) == 5


def test_a_load_beside_a_tensor_would_show():
    Q = fuzz.Case(0).guarded(torch.Generator().manual_seed(0), "cpu", 2, 5, 16)
    assert Q.isfinite().all() and Q._base.isnan().sum() == Q._base.numel() - Q.numel() > 0


def test_a_wrong_call_is_on_file_with_its_number(monkeypatch, tmp_path):
    real = fuzz.flash_attention
    monkeypatch.setattr(fuzz, "flash_attention", lambda *tensors, **options: [T * 1.02 for T in real(*tensors, **options)])
    dense = next(number for number in range(99) if not fuzz.Case(number).packed)
    monkeypatch.setattr(fuzz, "Case", lambda number, case=fuzz.Case: case(number, longest=40))
    results = fuzz.run([dense], out=tmp_path / "fuzz_x.json", command="it", device="cpu", backend="torch")
    assert json.loads((tmp_path / "fuzz_x.json").read_text()) == results
    assert results["tried"] == 1 and results["wrong"][0]["case"] == dense and "O off by" in results["wrong"][0]["how"]


def test_processes_that_share_the_cases_find_the_same():
    for jobs in (1, 2):
        with in_processes(jobs) as each:
            assert list(each(abs, range(-9, 3))) == [abs(n) for n in range(-9, 3)]
