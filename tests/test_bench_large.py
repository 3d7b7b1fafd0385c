"""Large tensors: their ends are judged, and what is wrong there, or cannot run, is on file."""

import json

import pytest

from flashlab_course.bench import large
from flashlab_course.bench.large import Case

pytest.importorskip("flashlab.kernels.launch", reason="triton is not installed (it exists for Linux only)")
SMALL = [Case(3, 2, 40, 16, None), Case(1, 1, 90, 16, 7)]


def test_both_cases_pass_two_to_the_31_elements():
    heads, rows = large.CASES
    assert heads.B * heads.H * heads.N * heads.d > 2**31 and rows.N * rows.d > 2**31 and heads.N * heads.d < 2**31


@pytest.mark.parametrize("kernel", ["windows_forward", "windows_backward"])
def test_the_ends_are_held_against_float64(kernel, monkeypatch, tmp_path):
    monkeypatch.setattr(large, "ROWS", 20)
    results = large.run([kernel], SMALL, out=tmp_path / "large_x.json", command="it", device="cpu")
    assert json.loads((tmp_path / "large_x.json").read_text()) == results
    assert [0 < row["error"] <= row["bound"] for row in results["rows"]] == [True, True]
    assert [row["elements"] for row in results["rows"]] == [3 * 2 * 40 * 16, 90 * 16]


@pytest.mark.parametrize("case", SMALL)
def test_a_wrong_last_row_is_seen(case, monkeypatch):
    def outputs(*arguments):
        found = real(*arguments)
        found["O"][-1, -1, -1] += 1
        return found

    real = large.outputs
    monkeypatch.setattr(large, "ROWS", 20)
    monkeypatch.setattr(large, "outputs", outputs)
    assert "O off by" in large.try_case("windows_forward", case, "cpu")["wrong"]
    assert "wrong" not in large.try_case("windows_backward", case, "cpu")


def test_a_kernel_that_takes_no_such_call_says_so():
    assert large.try_case("fa2_persistent_forward", SMALL[1], "cpu")["skipped"] == "it takes no window"
