"""The benchmark without a GPU: its logic with fake functions and clocks, what it writes, and what it reads back."""

import json
import sys
import time
import types
from functools import partial
from importlib.machinery import ModuleSpec

import pytest
import torch

import flashlab  # noqa: F401
from flashlab import cost, oracle
from flashlab.ladder import PEERS
from flashlab.memory import Memory
from flashlab_course.bench import forward, launch, passes, peers, problems, timing
from flashlab_course.bench.forward import FORWARD
from flashlab_course.bench.problems import Implementation, Problem, naive_over_heads
from flashlab_course.bench.results import ROOT, load_results, save
from flashlab_course.bench.rows import Row, as_json, read, table

SMALL = Problem(24, 8, False, "float32", 2, 3)
RECORD = {"device": "NVIDIA H100 80GB HBM3", "date": "2026-11-20T10:00:00+00:00", "torch": "2.11.0", "triton": "3.6.0",
          "commit": "0123456789abcdef-dirty"}
KEYS = {"implementation", "pass", "dtype", "B", "H", "N", "d", "causal", "ms", "ms_low", "ms_high", "tflops", "peak_bytes", "error",
        "skipped"}
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


def right(Q, K, V, causal):
    return oracle.attention(Q, K, V, causal=causal, dtype=Q.dtype)


def wrong(Q, K, V, causal):
    O, L = right(Q, K, V, causal)
    O[-1, -1, -1, -1] += 1e-3                             # one element of one head
    return O, L


def nan(Q, K, V, causal):
    return Q * float("nan"), None


def hungry(Q, K, V, causal):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 32.00 GiB.\nmore")


def broken(Q, K, V, causal):
    raise ValueError("d must be at most 256, got 512")


def timed(log, ms=2.0):
    """A timer that runs nothing; it notes which function it was given."""
    def timer(function):
        log.append(function.func)
        return [ms, 2 * ms, 3 * ms]
    return timer


def by_name(rows):
    return {row.implementation: row for row in rows}


@pytest.fixture
def small_ceilings(monkeypatch):
    monkeypatch.setattr(timing, "MATMUL_SIZE", 16)
    monkeypatch.setattr(timing, "COPY_BYTES", 1024)


# ---- what is measured -------------------------------------------------------------------------------------------------


def test_naive_over_heads_moves_what_naive_forward_moves_in_as_many_launches_as_for_one_head():
    Q, K, V = problems.inputs(SMALL._replace(dtype="bfloat16"), "cpu")
    with Memory() as mem:
        problems.naive_over_heads(Q, K, V, False)
    one = cost.naive_forward(24, 24, 8, element_size=2)
    assert (mem.read, mem.written) == (6 * one.read, 6 * one.written)
    assert [event.kernel for event in mem.log] == ["bmm", "mul", "_softmax", "bmm", "logsumexp", "_to_copy"]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("share", [1, 3])
@pytest.mark.parametrize("name", ["naive_forward", "sdpa_math", "sdpa_flash"])
def test_implementations_that_run_here_pass_their_check(name, share, causal):
    tensors = problems.inputs(SMALL._replace(share=share), "cpu")
    assert [T.shape[1] for T in tensors] == [3, 3 // share, 3 // share]
    verdict = forward.check(problems.implementations()[name].forward, *tensors, causal)
    assert verdict.ok, verdict


def test_the_triton_rung_runs_and_its_L_is_checked_too():
    pytest.importorskip("triton")
    kernel = problems.implementations()["fa2_triton_forward"].forward
    device = "cuda" if torch.cuda.is_available() else "cpu"
    verdict = forward.check(kernel, *problems.inputs(SMALL._replace(d=16), device), True)
    assert verdict.ok and verdict.bounds["L"] > 0, verdict


def test_all_the_names_that_results_and_figures_use():
    assert set(problems.implementations()) >= {"naive_forward", "fa2_triton_forward", "sdpa_math", "sdpa_efficient", "sdpa_flash",
                                            "sdpa_cudnn"}


def test_every_peer_of_the_ladder_is_measured():
    assert set(peers.BACKENDS) < set(peers.peers()) <= {peer.name for peer in PEERS}


def test_flash_attention_4_is_a_peer_where_it_is_installed(monkeypatch):
    """A stand-in for its package, which keeps heads behind tokens and returns O and L."""
    theirs = types.ModuleType("flash_attn.cute")

    def flash_attn_func(q, k, v, causal):
        assert [T.shape for T in (q, k, v)] == [(2, 24, 3, 8)] * 3
        return naive_over_heads(*(T.transpose(1, 2) for T in (q, k, v)), causal)[0].transpose(1, 2), None

    theirs.flash_attn_func, theirs.__spec__ = flash_attn_func, ModuleSpec("flash_attn.cute", None)
    package = types.ModuleType("flash_attn")
    package.__spec__, package.__path__ = ModuleSpec("flash_attn", None, is_package=True), []
    assert "fa4" not in peers.peers()
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    monkeypatch.setitem(sys.modules, "flash_attn.cute", theirs)
    assert forward.check(peers.peers()["fa4"], *problems.inputs(SMALL, "cpu"), True).ok


def test_the_hosts_time_of_a_call():
    """Fails if waiting counts, or if it is not the time of one call."""
    slow = lambda: time.sleep(2e-3)
    def broken():
        raise ValueError("no kernel")

    least, failed = launch.host_us({"slow": slow, "broken": broken}, calls=5, rounds=2, wait=lambda: time.sleep(0.1))
    assert least.keys() == {"slow"} and 2000 <= least["slow"] < 12000 and failed == {"broken": "ValueError: no kernel"}


def test_default_problems_keep_tokens_and_width_constant():
    grid = problems.problem_grid()
    assert len(grid) == 24 and {p.N for p in grid} == {512 * 2**i for i in range(6)}
    assert {p.B * p.N for p in grid} == {16384} and {p.H * p.d for p in grid} == {2048}
    assert Problem(4096, 128, True, "bfloat16", 4, 16).flops == 2 * 4 * 16 * 4096**2 * 128      # half of 4BHN²d


@pytest.mark.parametrize("kwargs, words", [({"N": [0]}, "N must be an integer >= 1, got 0"),
                                           ({"d": ["64"]}, "d must be an integer >= 1, got '64'")])
def test_bad_sizes_are_named(kwargs, words):
    with pytest.raises((TypeError, ValueError), match=words):
        problems.problem_grid(**kwargs)


def test_inputs_are_the_same_for_every_implementation_and_not_zero():
    first, again = problems.inputs(SMALL, "cpu"), problems.inputs(SMALL, "cpu")
    assert all(torch.equal(a, b) and a.abs().min() > 0 for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[1], first[2])


# ---- correct first ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scores", [24 * 24, 24 * 5, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_a_check_of_only_some_heads_and_rows_is_still_right(monkeypatch, scores, causal):
    monkeypatch.setattr(passes, "CHECKED_SCORES", scores)
    tensors = problems.inputs(SMALL, "cpu")
    assert forward.check(right, *tensors, causal).ok
    assert not forward.check(wrong, *tensors, causal).ok


def test_what_is_wrong_fails_or_runs_out_of_memory_is_not_timed_and_its_row_says_why():
    functions = [right, wrong, nan, hungry, broken]
    log = []
    rows = by_name(forward.measure(SMALL, [Implementation(f.__name__, f) for f in functions], device="cpu", timer=timed(log)))
    assert set(log) == {right}
    assert rows["right"].skipped is None and rows["right"].error < 1e-6
    assert rows["wrong"].skipped.startswith("refused: WRONG: O off by 1.00e-03")
    assert rows["wrong"].error == pytest.approx(1e-3, rel=0.01)
    assert rows["nan"].skipped.startswith("refused") and rows["nan"].error is None
    assert rows["hungry"].skipped == "out of memory"
    assert rows["broken"].skipped == "ValueError: d must be at most 256, got 512"
    assert all(row.ms is None and row.tflops is None for name, row in rows.items() if name != "right")


def test_inputs_that_do_not_fit_skip_every_row():
    starved = FORWARD._replace(inputs=lambda problem, device: hungry(None, None, None, None))
    rows = passes.measure(starved, SMALL, [Implementation("right", right)], device="cpu", timer=timed([]))
    assert rows[0].skipped.startswith("out of memory")


# ---- then time --------------------------------------------------------------------------------------------------------


def test_functions_take_turns_in_changing_order_and_a_failed_one_gets_no_second_turn():
    log = []
    functions = {name: partial(print, name) for name in "abcd"}

    def timer(function):
        (name,) = function.args
        log.append(name)
        if name == "c":
            raise torch.OutOfMemoryError("no room")
        return [float(len(log))]

    times, failed = timing.interleaved_times(functions, timer, 3, lambda: False)
    rounds = [log[:4], log[4:7], log[7:]]
    assert [sorted(turns) for turns in rounds] == [list("abcd"), list("abd"), list("abd")] and rounds[1] != rounds[2]
    assert {name: len(ms) for name, ms in times.items()} == {"a": 3, "b": 3, "c": 0, "d": 3}
    assert failed == {"c": "out of memory"}


def test_a_row_holds_median_spread_rate_and_ratio():
    chosen = [Implementation("sdpa_flash", right), Implementation("naive_forward", lambda *args: right(*args))]
    timer = lambda function: [1.0, 2.0, 3.0] if function.func is right else [8.0] * 5
    flash, naive = forward.measure(SMALL, chosen, device="cpu", timer=timer, rounds=2)
    assert (flash.ms, flash.ms_low, flash.ms_high, flash.runs) == (2.0, 1.0, 3.0, 6)
    assert flash.tflops == round(SMALL.flops / 2e-3 / 1e12, 3) and flash.vs_sdpa_flash == 1.0
    assert naive.vs_sdpa_flash == 0.25
    assert (naive.B, naive.H, naive.N, naive.d, naive.dtype, naive.pass_) == (2, 3, 24, 8, "float32", "forward")


def test_without_the_baseline_there_is_no_ratio():
    (row,) = forward.measure(SMALL, [Implementation("right", right)], device="cpu", timer=timed([]))
    assert row.ms == 4.0 and row.vs_sdpa_flash is None


def test_what_comes_after_the_budget_is_recorded_as_skipped(small_ceilings):
    now = [0.0]

    def timer(function):
        now[0] += 10
        return [1.0]

    results = forward.run([SMALL, SMALL._replace(N=16), SMALL._replace(N=8)], [Implementation("right", right)], device="cpu",
                          timer=timer, rounds=3, expired=timing.deadline(55, clock=lambda: now[0]))
    first, second, third = results["rows"]                # 20 s go to the ceilings, 30 to the first, 10 to the second
    assert (first["runs"], second["runs"], third["runs"]) == (3, 1, None)
    assert third["skipped"] == timing.OUT_OF_TIME and results["complete"]


def test_on_a_cpu_there_is_no_peak(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert timing.peak_bytes(lambda: 1 / 0) is None


# ---- what is written and shown ----------------------------------------------------------------------------------------


def test_the_file_of_a_forward_run(tmp_path, small_ceilings):
    out = tmp_path / "new/forward_x.json"
    results = forward.run([SMALL], [Implementation("right", right)], out=out, command="the command", device="cpu",
                          timer=lambda function: [0.001])
    assert json.loads(out.read_text()) == results and [p.name for p in out.parent.iterdir()] == ["forward_x.json"]
    assert results["what"] == "forward" and results["complete"]
    assert results["ceilings"] == {"matmul_tflops": round(2 * 16**3 / 1e-6 / 1e12, 3), "copy_tb_s": round(2048 / 1e-6 / 1e12, 4)}
    assert results["provenance"]["command"] == "the command"
    assert all(set(row) >= KEYS for row in results["rows"])


def test_a_run_that_is_cut_off_keeps_what_it_had(tmp_path, small_ceilings):
    calls = []

    def timer(function):
        calls.append(function)
        if len(calls) > 3:                                # two ceilings, the first problem
            raise KeyboardInterrupt
        return [1.0]

    out = tmp_path / "forward_x.json"
    with pytest.raises(KeyboardInterrupt):
        forward.run([SMALL, SMALL], [Implementation("right", right)], out=out, device="cpu", timer=timer, rounds=1)
    kept = json.loads(out.read_text())
    assert len(kept["rows"]) == 1 and kept["rows"][0]["ms"] == 1.0 and not kept["complete"]


@pytest.mark.parametrize("path", sorted(ROOT.glob("results/forward_*.json")) or [None], ids=lambda p: p.stem if p else "none")
def test_recorded_forward_results_are_whole(path):
    if path is None:
        pytest.skip("nothing recorded yet")
    results = json.loads(path.read_text())
    assert results["complete"] and results["provenance"]["commit"] not in ("unknown", "")
    for row in results["rows"]:
        assert set(row) >= KEYS
        assert row["skipped"] or (row["ms_low"] <= row["ms"] <= row["ms_high"] and row["error"] is not None), row


def test_the_recorded_rows_go_through_a_Row_and_come_out_the_same():
    for name in ("forward_h200", "backward_h200"):
        for record in load_results(name)["rows"]:
            again = as_json(read(Row, record))
            assert again == record and (name == "backward_h200" or list(again) == list(record))


def test_a_key_that_this_version_does_not_know_does_not_break_reading():
    record = as_json(passes.empty_row(FORWARD, "naive_forward", SMALL))
    assert as_json(read(Row, record | {"joules": 3.0})) == record


def test_live_where_there_is_a_gpu_recorded_elsewhere_and_it_says_which(tmp_path, monkeypatch):
    results = {"what": "forward", "provenance": RECORD, "rows": []}
    save(results, tmp_path / "results/forward_h200.json")
    monkeypatch.setattr("flashlab_course.bench.results.ROOT", tmp_path)
    monkeypatch.setattr(forward, "why_no_gpu", lambda: "no GPU")
    found, words = forward.live_or_recorded()
    assert found == results
    assert words == "recorded on NVIDIA H100 80GB HBM3, 2026-11-20, torch 2.11.0, triton 3.6.0, commit 01234567-dirty"
    monkeypatch.setattr(forward, "why_no_gpu", lambda: "")
    monkeypatch.setattr(forward, "quick_forward", lambda seconds: {"provenance": RECORD | {"device": f"a GPU for {seconds} s"}})
    found, words = forward.live_or_recorded(seconds=5)
    assert words.startswith("measured here on a GPU for 5 s, 2026-11-20")


def test_a_row_of_a_triton_rung_names_its_tiles():
    best_tiles = pytest.importorskip("flashlab.kernels.launch").best_tiles
    for causal in (False, True):
        problem = Problem(64, 64, causal, "bfloat16")
        row = passes.empty_row(FORWARD, "fa2_triton_forward", problem)
        assert (row.B_r, row.B_c) == best_tiles(64, torch.bfloat16, causal)[:2]
        assert "B_r" in as_json(row) and "B_r" not in as_json(passes.empty_row(FORWARD, "sdpa_flash", problem))


def test_the_table_shows_rates_ratios_and_reasons():
    rows = forward.measure(SMALL, [Implementation("sdpa_flash", right), Implementation("naive_forward", hungry)], device="cpu",
                         timer=lambda function: [1e-6])
    text = table({"what": "forward", "rows": [as_json(row) for row in rows], "ceilings": {"matmul_tflops": 797.0}})
    title, line, ceiling, skipped = text.splitlines()
    assert title.split()[-2:] == ["sdpa_flash", "naive_forward"]
    assert line.startswith("float32 d 8 N 24") and line.endswith("-") and "(1.00x)" in line
    assert "797.0" in ceiling and skipped.startswith("skipped: naive_forward, float32 d 8 N 24: out of memory")


def test_a_check_judges_whole_groups_of_heads_that_share_keys():
    assert passes.judged_part(16, 1024, 1, 2**28) == (16, 16) and passes.judged_part(16, 16384, 1, 2**28) == (1, 1)
    assert passes.judged_part(16, 4096, 8, 2**28) == (16, 2) and passes.judged_part(16, 16384, 8, 2**28) == (8, 1)


def test_the_cards_clocks_are_read_while_it_works(monkeypatch):
    """Fails if an idle card is asked, or what it does not know becomes a number."""
    calls, asked = [], []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("waited"))
    monkeypatch.setattr(timing, "ask_driver", lambda *fields: asked.append(list(calls)) or ["1755", "3201", "[N/A]", "688.10"])
    assert timing.card_under(lambda: calls.append("launched"), 100.0) == {"sm_mhz": 1755.0, "memory_mhz": 3201.0, "watts": 688.1}
    assert asked == [["launched"] * 3] and calls[-1] == "waited"
    monkeypatch.setattr(timing, "ask_driver", lambda *fields: [])
    assert timing.card_under(lambda: None, 1.0) is None
