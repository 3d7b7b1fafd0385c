"""What checks and tunes the kernels on a GPU, tried on the CPU: what it refuses, what it remembers."""

import json
from types import SimpleNamespace

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab import ladder
from flashlab.triton_mode import interpreted
from flashlab_course.bench import forward, passes, soundness, tune
from flashlab_course.bench.problems import Problem

tuning = pytest.importorskip("flashlab.kernels.tuning", reason="triton is not installed (it exists for Linux only)")
pytestmark = pytest.mark.skipif(not interpreted(), reason="on the CPU, by Triton's interpreter")

from flashlab.kernels import fa2_split, fa2_split_backward  # noqa: E402

GRID = [tuning.Tiles(64, 32, 4, 1), tuning.Tiles(64, 64, 4, 2), tuning.Tiles(64, 16, 4, 3)]
SMALL = Problem(64, 16, True, "float16", 1, 1)


def test_a_search_checks_before_it_times_and_the_kernel_takes_the_fastest(monkeypatch, tmp_path):
    """Fails if a wrong candidate is timed, or if the winner is not what the next call launches."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tuning.tables.cache_clear()
    real, times = fa2_split.launch_tuned, iter([[3.0], [2.0]])
    spoil = lambda Q, K, V, O, L, tiles=None, **options: real(
        Q, K, V, O, torch.empty_like(L) if tiles and tiles.num_stages == 3 else L, tiles=tiles, **options)
    monkeypatch.setattr(fa2_split, "launch_tuned", spoil)                      # the third candidate leaves L unwritten
    table = tune.search("fa2_tuned_forward", SMALL, device="cpu", timer=lambda call: next(times), limit=2**20, grid=GRID)
    assert [(tuple(tiles), ms) for tiles, ms, _ in table] == [(GRID[1], 2.0), (GRID[0], 3.0), (GRID[2], None)]
    assert table[2][2].startswith("refused: WRONG")
    Q = torch.randn(1, 1, 64, 16).half()
    arguments = real(Q, Q, Q, Q, Q[..., 0].float(), causal=True, scale=1.0)[1]
    assert (arguments["B_c"], arguments["num_stages"]) == (64, 2)
    tuning.tables.cache_clear()


def test_each_kernel_of_a_backward_pass_is_searched_by_itself(monkeypatch, tmp_path):
    """Fails if the tiles tried are not those that the kernel runs with, or if one kernel's winner is given to the other."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tuning.tables.cache_clear()
    real, launched = fa2_split_backward.launch_tuned, []

    def spy(*tensors, **options):
        launches = real(*tensors, **options)
        launched.append([arguments["B_c"] for _, _, arguments in launches[1:]])
        return launches

    monkeypatch.setattr(fa2_split_backward, "launch_tuned", spy)
    times = iter([[3.0], [2.0]])
    timer = lambda call: next(times)
    table = tune.search("fa2_tuned_backward", SMALL, "queries", device="cpu", timer=timer, limit=2**20, grid=GRID[:2])
    assert [(tuple(tiles), ms) for tiles, ms, _ in table] == [(GRID[1], 2.0), (GRID[0], 3.0)]
    assert launched == [[128, 32], [128, 64]]                            # dK and dV's as picked by hand
    X = torch.empty(1, 1, 64, 16, dtype=torch.float16)
    launches = real(X, X, X, X, X, X[..., 0].float(), None, X, X, X, causal=True, scale=1.0)
    assert [arguments["B_c"] for _, _, arguments in launches[1:]] == [128, 64]
    tuning.tables.cache_clear()


def test_soundness_judges_a_backward_kernel(monkeypatch):
    """dQ of the one that adds atomically may move, as far as its error bound; another's may not move at all."""
    none, shape = lambda what: None, (1, 2, 1, 20, 30, 16, 16, True)
    for name in ("fa2_split_backward", "fa2_atomic_backward"):
        good = soundness.try_shape(ladder.rung(name), shape, torch.float16, 1, "cpu", none)
        assert good["error"] <= good["bound"] and "wrong" not in good, good
    real, calls = soundness.gradients, iter(range(9))

    def moving(name, *call):
        found = real(name, *call)
        return found | {"dQ": found["dQ"] + 0.001 * next(calls) ** 4}

    monkeypatch.setattr(soundness, "gradients", moving)
    try_name = lambda name, repeats: soundness.try_shape(ladder.rung(name), shape, torch.float16, repeats, "cpu", none)
    assert "other bits" in try_name("fa2_split_backward", 1)["wrong"]
    calls = iter(range(9))
    assert 0 < try_name("fa2_atomic_backward", 1)["spread"] < 0.002
    assert "dQ moved by" in try_name("fa2_atomic_backward", 3)["wrong"]


def test_soundness_judges_a_kernel_or_says_why_not(monkeypatch):
    kernel, none = ladder.rung("fa2_tma_forward"), lambda what: None
    good = soundness.try_shape(kernel, (1, 2, 1, 20, 30, 16, 16, True), torch.float16, 1, "cpu", none)
    assert good["error"] <= good["bound"] and "wrong" not in good
    assert "118 bytes" in soundness.try_shape(kernel, (1, 1, 1, 20, 30, 59, 59, True), torch.float16, 1, "cpu", none)["skipped"]
    monkeypatch.setattr(soundness, "flash_attention", lambda Q, K, V, **_: (torch.empty_like(Q), torch.empty(Q.shape[:3])))
    assert "wrong" in soundness.try_shape(kernel, (1, 2, 1, 20, 30, 16, 16, True), torch.float16, 1, "cpu", none)


def test_a_wrong_kernel_fails_the_command_and_is_on_file(monkeypatch, tmp_path):
    monkeypatch.setattr(soundness, "try_shape", lambda kernel, *_, deterministic: {"kernel": kernel.name, "wrong": "O off"})
    asked = SimpleNamespace(implementations=["fa2_tma_forward"], budget_seconds=60, repeats=1, jobs=1)
    with pytest.raises(SystemExit, match="a kernel is wrong"):
        soundness.run_asked(asked, tmp_path / "soundness.json", "the command")
    rows = json.loads((tmp_path / "soundness.json").read_text())["rows"]
    assert len(rows) == 2 * len(soundness.SHAPES) and all(row["wrong"] == "O off" for row in rows)


def test_what_a_kernel_forgets_to_write_is_not_a_number():
    with forward.poisoned_outputs():
        assert torch.empty(3).isnan().all()
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_ratio_to_cudnn_is_taken_round_by_round():
    """Fails if clocks that drift between rounds count as a difference: here both take three times as long in the last."""
    turns = {"sdpa_cudnn": [1.0, 1.0, 3.0], "mine": [0.5, 0.5, 1.5]}
    assert passes.by_turns(turns, "sdpa_cudnn", "mine") == 2.0 and passes.by_turns({"mine": [1.0]}, "sdpa_cudnn", "mine") is None
