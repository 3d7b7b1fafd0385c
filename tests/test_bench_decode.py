"""bench decode: its random calls are right here on the CPU, a wrong one is found, and rows say what they should."""

import json
import re

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab.triton_mode import import_triton
from flashlab_course.bench import decode, decode_checks


@pytest.mark.parametrize("number", range(6))
def test_a_random_call_is_right(number):
    case = decode_checks.Case(number, longest=300)
    assert decode_checks.try_case(case, "cpu", "torch") is None, str(case)


@pytest.mark.skipif(import_triton() is None, reason="triton is not installed (it exists for Linux only)")
@pytest.mark.skipif(torch.cuda.is_available(), reason="about Triton's interpreter")
def test_the_kernels_take_a_random_call():
    case = decode_checks.Case(1, longest=90)
    case.lengths = case.lengths[:2]
    assert decode_checks.try_case(case, "cpu", "triton") is None, str(case)


def test_cases_are_the_same_each_time_and_of_every_kind():
    cases = [decode_checks.Case(number) for number in range(200)]
    assert str(cases[7]) == str(decode_checks.Case(7))
    for name, kinds in (("dtype", 3), ("N_q", 4), ("group", 3), ("append", 2), ("page_size", 5), ("window", 3), ("splits", 5)):
        assert len({getattr(case, name) for case in cases}) == kinds, name
    assert all(0 <= length <= case.N_max - case.N_q * case.append for case in cases for length in case.lengths)


def test_a_wrong_call_is_on_file_and_ends_the_run(monkeypatch, tmp_path):
    real = decode_checks.flash_attention_decode
    wrong = lambda *tensors, **options: [1.02 * T for T in real(*tensors, **options)]
    monkeypatch.setattr(decode_checks, "flash_attention_decode", wrong)
    monkeypatch.setattr(decode, "try_case", lambda case: decode_checks.try_case(case, "cpu", "torch"))
    monkeypatch.setattr(decode, "Case", lambda number: decode_checks.Case(number, longest=60))
    monkeypatch.setattr(decode, "try_graph", lambda: None)
    with pytest.raises(SystemExit, match="a call is wrong"):
        decode.run([], cases=2, out=tmp_path / "decode_x.json")
    assert "O off by" in json.loads((tmp_path / "decode_x.json").read_text())["wrong"][0]["how"]


def fake_timer(call):
    call()
    return [2.0, 2.0]


def test_a_size_is_checked_then_timed():
    problem = decode.Problem(2, 8, 1, 48, d=16)
    rows = decode.measure(problem, 16, lambda: None, device="cpu", backend="torch", timer=fake_timer, rounds=1)
    by_name = {row["implementation"]: row for row in rows}
    assert {"decode", "decode, paged", "sdpa_flash", *decode.FORWARD} <= set(by_name)
    row = by_name["decode, paged"]
    assert row["page_size"] == 16 and row["bytes"] == 2 * 2 * 48 * 16 * 2 == problem.bytes and row["ms"] == 2.0
    assert row["of_copy"] == pytest.approx(row["bytes"] / (2 * decode.timing.COPY_BYTES), abs=1e-4) and row["vs_sdpa"] == 1.0
    assert "Hopper" in by_name["fa2_hopper_forward"]["skipped"] or torch.cuda.is_available()
    text = decode.table({"rows": rows, "host_us": {}})
    assert re.search(r"H 8:1 B 2 N 48 +2\.0000 +0\.000", text) and "skipped: fa2_hopper_forward" in text


def test_a_wrong_implementation_is_refused(monkeypatch):
    monkeypatch.setattr(decode, "run_sdpa", lambda backend, Q, K, V: Q + 1)
    problem, options = decode.Problem(1, 2, 2, 32, d=16), {"device": "cpu", "backend": "torch", "timer": fake_timer}
    rows = decode.measure(problem, 16, lambda: None, rounds=1, **options)
    assert all("refused: WRONG" in row["skipped"] for row in rows if row["implementation"].startswith("sdpa"))


@pytest.mark.skipif(import_triton() is None, reason="triton is not installed (it exists for Linux only)")
def test_the_sweep_has_a_row_for_each_tile_and_number_of_chunks(monkeypatch, capsys):
    monkeypatch.setattr(decode, "multiprocessors", lambda device: 4)
    monkeypatch.setattr(decode, "HEADS", {"gqa": (2, 1)})
    results = decode.sweep(16, device="cpu", timer=fake_timer, tiles=[(32, 4, 2)], sizes=[(1, 64)])
    assert [row["splits"] for row in results["rows"]] == [4, 8, 12, 16, 24, 8] and results["rows"][-1]["paged"]
    assert all(row["tb_s"] > 0 or row["ms"] == 2.0 for row in results["rows"]) and "B 1 N 64" in capsys.readouterr().out


def test_no_size_outgrows_the_gpu():
    sizes = decode.problems()
    assert decode.Problem(1, 32, 4, 65536) in sizes and decode.Problem(32, 16, 16, 131072) not in sizes
    assert all(2 * size.bytes <= decode.MOST_BYTES for size in sizes)
