"""Windows and packed sequences beside what they replace: the same numbers, refused where wrong, a row for each pass."""

import json

import torch

from flashlab_course.bench import spans
from flashlab_course.bench.spans import Problem


def test_packed_and_batched_are_one_computation():
    Q, K, V = (torch.randn(2, 33, 3, 16) for _ in range(3))
    batched = Problem(2, 3, 33, 16, causal=True)
    packed, cu_seqlens = batched._replace(packed=True), torch.tensor([0, 33, 66], dtype=torch.int32)
    assert torch.allclose(spans.attend(batched, None, Q, K, V), spans.attend(packed, cu_seqlens, Q, K, V), atol=1e-6)


def test_the_full_set_has_a_window_and_four_packed_calls_for_each_width():
    found = spans.pairs()
    assert [it.left for it, _ in found] == [2048, None, None, None, None] * 2
    assert all(it == beside._replace(packed=True) and not beside.packed for it, beside in found if not it.left)
    assert all(it.B * it.N == 16384 and it.H * it.d == 2048 for it, _ in found)


def test_rows_say_what_was_timed_beside_what(tmp_path):
    times = iter([[2.0], [8.0]] * 2)
    pair = (Problem(1, 2, 64, 16, left=8), Problem(1, 2, 64, 16, causal=True))
    results = spans.run([pair], out=tmp_path / "spans_x.json", command="it", device="cpu", timer=lambda call: next(times), rounds=1)
    assert json.loads((tmp_path / "spans_x.json").read_text()) == results and results["complete"]
    forward, backward = results["rows"]
    assert (forward["pass"], backward["pass"]) == ("forward", "backward") and forward["left"] == 8
    assert {forward["times_faster"], backward["times_faster"]} <= {0.25, 4.0}
    assert forward["beside"] == "d 16 N 64 B 1 causal batched"


def test_a_wrong_call_is_not_timed(monkeypatch):
    real = spans.flash_attention_varlen
    monkeypatch.setattr(spans, "flash_attention_varlen", lambda *tensors, **options: 1.1 * real(*tensors, **options))
    pair = (Problem(2, 1, 40, 16, packed=True), Problem(2, 1, 40, 16))
    rows = spans.measure(pair, device="cpu", timer=lambda call: [1.0], rounds=1)
    assert all("refused: d 16 N 40 B 2 packed" in row["skipped"] and row["ms"] is None for row in rows)
