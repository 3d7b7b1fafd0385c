"""The backward benchmark without a GPU: its checks, its rows and its file, with fake timers on small problems."""

import json

import pytest
import torch

import flashlab  # noqa: F401
from flashlab import oracle
from flashlab.ladder import BACKWARD_KERNELS
from flashlab_course.bench import backward, cli, passes, timing
from flashlab_course.bench.problems import Implementation, Problem
from flashlab_course.bench.results import ROOT, load_results
from flashlab_course.bench.rows import table

SMALL = Problem(24, 16, True, "float32", 2, 3)


def right(Q, K, V, causal):
    return oracle._attention(Q, K, V, causal=causal)[0], None


def wrong(Q, K, V, causal):
    return right(Q.detach(), K, V, causal)[0] + 0 * Q.sum(), None   # dQ is lost


def hungry(Q, K, V, causal):
    raise torch.OutOfMemoryError("CUDA out of memory")


def rows_of(*functions, problem=SMALL, **options):
    chosen = [Implementation(name, function) for name, function in functions]
    options = {"device": "cpu", "timer": lambda function: [function() and 2.0, 4.0, 6.0]} | options
    return {row.implementation: row for row in backward.measure(problem, chosen, **options)}


@pytest.mark.parametrize("name", ["naive_backward", "fa2_triton_backward", "fa2_atomic_backward", "sdpa_math", "sdpa_flash"])
@pytest.mark.parametrize("share, causal", [(1, False), (1, True), (3, True)])
def test_implementations_that_run_here_pass_their_check(name, share, causal):
    """SDPA's mask is top-left: the same, as N_q = N_k."""
    if "triton" in name:
        pytest.importorskip("triton")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = "bfloat16" if (name, device) == ("sdpa_flash", "cuda") else SMALL.dtype                     # it takes no float32 there
    problem = SMALL._replace(dtype=dtype, share=share)
    verdict = backward.check(backward.implementations()[name].forward, *backward.inputs(problem, device), causal)
    assert verdict.ok, verdict


def test_each_kernel_rung_is_timed_under_its_own_name(monkeypatch):
    """Fails if a row's kernel is not the one that runs, or may be refused because somebody asked for the same bits each time."""
    pytest.importorskip("triton")
    asked = []
    monkeypatch.setattr(backward, "flash_attention", lambda Q, K, V, **options: asked.append(options))
    found = backward.implementations()
    for kernel in BACKWARD_KERNELS:
        found[kernel.name].forward(None, None, None, True)
    assert [options["backend"] for options in asked] == [kernel.name for kernel in BACKWARD_KERNELS]
    assert all(options["deterministic"] is False for options in asked)
    backward.implementations(deterministic=True)["fa2_hopper_backward"].forward(None, None, None, True)
    assert asked[-1]["deterministic"] is True


def test_what_a_backward_kernel_forgets_to_write_is_seen():
    """Fails if the check is not on poisoned outputs: memory that was just freed often holds the right numbers."""
    def forgets(Q, K, V, causal):
        O = right(Q, K, V, causal)[0]
        O.register_hook(lambda dO: torch.empty_like(dO))
        return O, None

    assert not backward.check(forgets, *backward.inputs(SMALL, "cpu"), True).ok


def test_what_is_wrong_or_fails_is_not_timed_and_its_row_says_why():
    rows = rows_of(("sdpa_flash", right), ("wrong", wrong), ("hungry", hungry))
    good, bad, none = rows["sdpa_flash"], rows["wrong"], rows["hungry"]
    assert good.skipped is None and good.ms == 4.0 and good.pass_ == "backward" and good.vs_sdpa_flash == 1.0
    assert good.tflops == round(2.5 * SMALL.flops / 4e-3 / 1e12, 3)
    assert good.error == max(good.error_dQ, good.error_dK, good.error_dV) < 1e-5
    assert bad.skipped.startswith("refused: WRONG: dQ off by") and bad.ms is None
    assert none.skipped == "out of memory" and none.error is None


def test_a_check_of_only_some_heads_is_still_right(monkeypatch):
    monkeypatch.setattr(passes, "CHECKED_SCORES", 2 * 24 * 24)
    tensors = backward.inputs(SMALL, "cpu")
    assert backward.check(right, *tensors, True).ok
    assert not backward.check(wrong, *tensors, True).ok


def test_the_file_and_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "MATMUL_SIZE", 16)
    monkeypatch.setattr(timing, "COPY_BYTES", 1024)
    out = tmp_path / "backward_x.json"
    results = backward.run([SMALL], [Implementation("sdpa_flash", right)], out=out, command="the command", device="cpu",
                                 timer=lambda function: [1.0])
    assert json.loads(out.read_text()) == results
    assert results["what"] == "backward" and results["complete"] and results["provenance"]["command"] == "the command"
    assert "TFLOP/s (x sdpa_flash, x cudnn)" in table(results) and "(1.00x)" in table(results)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_the_command_says_so(capsys):
    assert cli.main(["backward", "--quick"]) == 2
    assert "sees no NVIDIA GPU" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["backward", "--N", "0"])
    assert "expected an integer >= 1, got '0'" in capsys.readouterr().err


def test_a_missing_backward_result_says_how_to_make_it():
    with pytest.raises(FileNotFoundError, match="python -m flashlab bench backward --out results/backward_b200.json"):
        load_results("backward_b200")


RECORDED = sorted(ROOT.glob("results/backward_*.json")) or [None]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem if path else "none")
def test_recorded_backward_results_are_whole(path):
    if path is None:
        pytest.skip("nothing recorded yet")
    results = json.loads(path.read_text())
    assert results["complete"] and results["provenance"]["commit"] not in ("unknown", "")
    for row in results["rows"]:
        assert row["skipped"] or (row["ms_low"] <= row["ms"] <= row["ms_high"] and row["error"] is not None), row
