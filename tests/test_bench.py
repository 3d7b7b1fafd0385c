"""The benchmark without a GPU: its logic with fake functions and clocks, what it writes, and what it reads back."""

import json
import os
import subprocess
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import flashlab  # noqa: F401
from flashlab import cost, oracle
from flashlab.bench import forward as bench
from flashlab.bench.forward import Implementation, Problem
from flashlab.memory import Memory

SMALL = Problem(24, 8, False, "float32", 2, 3)
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
    return {row["implementation"]: row for row in rows}


@pytest.fixture
def small_ceilings(monkeypatch):
    monkeypatch.setattr(bench, "MATMUL_SIZE", 16)
    monkeypatch.setattr(bench, "COPY_BYTES", 1024)


# ---- what is measured ----------------------------------------------------------------------------------------------


def test_naive_over_heads_moves_what_naive_forward_moves_in_as_many_launches_as_for_one_head():
    Q, K, V = bench.inputs(SMALL._replace(dtype="bfloat16"), "cpu")
    with Memory() as mem:
        bench.naive_over_heads(Q, K, V, False)
    one = cost.naive_forward(24, 24, 8, element_size=2)
    assert (mem.read, mem.written) == (6 * one.read, 6 * one.written)
    assert [event.kernel for event in mem.log] == ["bmm", "mul", "_softmax", "bmm", "logsumexp", "_to_copy"]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["naive_forward", "sdpa_math", "sdpa_flash"])
def test_implementations_that_run_here_pass_their_check(name, causal):
    verdict = bench.check(bench.implementations()[name].forward, *bench.inputs(SMALL, "cpu"), causal)
    assert verdict.ok, verdict


def test_the_triton_rung_runs_and_its_L_is_checked_too():
    pytest.importorskip("triton")
    forward = bench.implementations()["fa2_triton_forward"].forward
    device = "cuda" if torch.cuda.is_available() else "cpu"
    verdict = bench.check(forward, *bench.inputs(SMALL._replace(d=16), device), True)
    assert verdict.ok and verdict.bound_L > 0, verdict


def test_all_the_names_that_results_and_figures_use():
    assert set(bench.implementations()) >= {"naive_forward", "fa2_triton_forward", "sdpa_math", "sdpa_efficient", "sdpa_flash",
                                            "sdpa_cudnn"}


def test_default_problems_keep_tokens_and_width_constant():
    problems = bench.forward_problems()
    assert len(problems) == 24 and {p.N for p in problems} == {512 * 2**i for i in range(6)}
    assert {p.B * p.N for p in problems} == {16384} and {p.H * p.d for p in problems} == {2048}
    assert Problem(4096, 128, True, "bfloat16", 4, 16).flops == 2 * 4 * 16 * 4096**2 * 128      # half of 4BHN²d


@pytest.mark.parametrize("kwargs, words", [({"N": [0]}, "N must be an integer >= 1, got 0"),
                                           ({"d": ["64"]}, "d must be an integer >= 1, got '64'")])
def test_bad_sizes_are_named(kwargs, words):
    with pytest.raises((TypeError, ValueError), match=words):
        bench.forward_problems(**kwargs)


def test_inputs_are_the_same_for_every_implementation_and_not_zero():
    first, again = bench.inputs(SMALL, "cpu"), bench.inputs(SMALL, "cpu")
    assert all(torch.equal(a, b) and a.abs().min() > 0 for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[1], first[2])


# ---- correct first -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scores", [24 * 24, 24 * 5, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_a_check_of_only_some_heads_and_rows_is_still_right(monkeypatch, scores, causal):
    monkeypatch.setattr(bench, "CHECKED_SCORES", scores)
    tensors = bench.inputs(SMALL, "cpu")
    assert bench.check(right, *tensors, causal).ok
    assert not bench.check(wrong, *tensors, causal).ok


def test_what_is_wrong_fails_or_runs_out_of_memory_is_not_timed_and_its_row_says_why():
    functions = [right, wrong, nan, hungry, broken]
    log = []
    rows = by_name(bench.measure(SMALL, [Implementation(f.__name__, f) for f in functions], device="cpu", timer=timed(log)))
    assert set(log) == {right}
    assert rows["right"]["skipped"] is None and rows["right"]["error"] < 1e-6
    assert rows["wrong"]["skipped"].startswith("refused: WRONG: O off by 1.00e-03")
    assert rows["wrong"]["error"] == pytest.approx(1e-3, rel=0.01)
    assert rows["nan"]["skipped"].startswith("refused") and rows["nan"]["error"] is None
    assert rows["hungry"]["skipped"] == "out of memory"
    assert rows["broken"]["skipped"] == "ValueError: d must be at most 256, got 512"
    assert all(row["ms"] is None and row["tflops"] is None for name, row in rows.items() if name != "right")


def test_inputs_that_do_not_fit_skip_every_row(monkeypatch):
    monkeypatch.setattr(bench, "inputs", lambda problem, device: hungry(None, None, None, None))
    rows = bench.measure(SMALL, [Implementation("right", right)], device="cpu", timer=timed([]))
    assert rows[0]["skipped"].startswith("out of memory")


# ---- then time -----------------------------------------------------------------------------------------------------


def test_functions_take_turns_in_changing_order_and_a_failed_one_gets_no_second_turn():
    log = []
    functions = {name: partial(print, name) for name in "abcd"}

    def timer(function):
        (name,) = function.args
        log.append(name)
        if name == "c":
            raise torch.OutOfMemoryError("no room")
        return [float(len(log))]

    times, failed = bench.interleaved_times(functions, timer, 3, lambda: False)
    assert log == list("abcd") + list("adb") + list("dab")
    assert {name: len(ms) for name, ms in times.items()} == {"a": 3, "b": 3, "c": 0, "d": 3}
    assert failed == {"c": "out of memory"}


def test_a_row_holds_median_spread_rate_and_ratio():
    chosen = [Implementation("sdpa_flash", right), Implementation("naive_forward", lambda *args: right(*args))]
    timer = lambda function: [1.0, 2.0, 3.0] if function.func is right else [8.0] * 5
    flash, naive = bench.measure(SMALL, chosen, device="cpu", timer=timer, rounds=2)
    assert (flash["ms"], flash["ms_low"], flash["ms_high"], flash["runs"]) == (2.0, 1.0, 3.0, 6)
    assert flash["tflops"] == round(SMALL.flops / 2e-3 / 1e12, 3) and flash["vs_sdpa_flash"] == 1.0
    assert naive["vs_sdpa_flash"] == 0.25
    assert (naive["B"], naive["H"], naive["N"], naive["d"], naive["dtype"], naive["pass"]) == (2, 3, 24, 8, "float32", "forward")


def test_without_the_baseline_there_is_no_ratio():
    (row,) = bench.measure(SMALL, [Implementation("right", right)], device="cpu", timer=timed([]))
    assert row["ms"] == 4.0 and row["vs_sdpa_flash"] is None


def test_what_comes_after_the_budget_is_recorded_as_skipped(small_ceilings):
    now = [0.0]

    def timer(function):
        now[0] += 10
        return [1.0]

    results = bench.run_forward([SMALL, SMALL._replace(N=16), SMALL._replace(N=8)], [Implementation("right", right)], device="cpu",
                                timer=timer, rounds=3, expired=bench.deadline(55, clock=lambda: now[0]))
    first, second, third = results["rows"]                # 20 s go to the ceilings, 30 to the first, 10 to the second
    assert (first["runs"], second["runs"], third["runs"]) == (3, 1, None)
    assert third["skipped"] == bench.OUT_OF_TIME and results["complete"]


def test_on_a_cpu_there_is_no_peak(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert bench.peak_bytes(lambda: 1 / 0) is None


# ---- what is written -----------------------------------------------------------------------------------------------


def test_the_file_of_a_forward_run(tmp_path, small_ceilings):
    out = tmp_path / "new/forward_x.json"
    results = bench.run_forward([SMALL], [Implementation("right", right)], out=out, command="the command", device="cpu",
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
        bench.run_forward([SMALL, SMALL], [Implementation("right", right)], out=out, device="cpu", timer=timer, rounds=1)
    kept = json.loads(out.read_text())
    assert len(kept["rows"]) == 1 and kept["rows"][0]["ms"] == 1.0 and not kept["complete"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    out = tmp_path / "x.json"
    bench.save({"rows": []}, out)
    with pytest.raises(ValueError):
        bench.save({"rows": [float("nan")]}, out)         # not JSON
    assert json.loads(out.read_text()) == {"rows": []}


def test_provenance_says_where_a_number_comes_from():
    record = bench.provenance("make bench")
    assert set(record) >= {"device", "capability", "torch", "triton", "cuda", "driver", "python", "date", "commit", "command"}
    assert record["torch"] == torch.__version__ and record["command"] == "make bench" and record["date"].endswith("+00:00")
    json.dumps(record)


def test_commit_is_heads_with_a_flag_for_changed_code(tmp_path, monkeypatch):
    def git(*words):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(["git", *identity, *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    monkeypatch.setenv("FLASHLAB_COMMIT", "from elsewhere")
    assert bench.commit(tmp_path) == "from elsewhere"     # a copy that has no history, or a foreign one
    monkeypatch.delenv("FLASHLAB_COMMIT")
    (tmp_path / "flashlab").mkdir()
    (tmp_path / "flashlab/a.py").write_text("1")
    git("init")
    git("add", ".")
    assert bench.commit(tmp_path) == "unknown"            # nothing committed yet
    git("commit", "-m", "a")
    assert bench.commit(tmp_path) == git("rev-parse", "HEAD")
    (tmp_path / "results.json").write_text("{}")
    assert not bench.commit(tmp_path).endswith("-dirty")  # a result is not code
    (tmp_path / "flashlab/new.py").write_text("1")
    assert bench.commit(tmp_path) == git("rev-parse", "HEAD") + "-dirty"
    assert bench.commit(tmp_path / "flashlab") == "unknown"


@pytest.mark.parametrize("path", sorted(bench.ROOT.glob("results/forward_*.json")) or [None], ids=lambda p: p.stem if p else "none")
def test_recorded_forward_results_are_whole(path):
    if path is None:
        pytest.skip("nothing recorded yet")
    results = json.loads(path.read_text())
    assert results["complete"] and results["provenance"]["commit"] not in ("unknown", "")
    for row in results["rows"]:
        assert set(row) >= KEYS
        assert row["skipped"] or (row["ms_low"] <= row["ms"] <= row["ms_high"] and row["error"] is not None), row


# ---- what is read back ---------------------------------------------------------------------------------------------


RECORD = {"device": "NVIDIA H100 80GB HBM3", "date": "2026-11-20T10:00:00+00:00", "torch": "2.11.0", "triton": "3.6.0",
          "commit": "0123456789abcdef-dirty"}


def test_results_are_found_from_the_package_or_the_notebooks_folder(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    bench.save({"what": "forward", "rows": [1]}, tmp_path / "results/forward_x.json")
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    assert bench.load_results("forward_x")["rows"] == [1]
    monkeypatch.setattr(bench, "ROOT", tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path / "notebooks")
    assert bench.load_results("forward_x")["rows"] == [1]


@pytest.mark.parametrize("name, what", [("forward_b200", "forward"), ("counters_b200", "counters")])
def test_a_missing_result_is_named_with_how_to_make_it(tmp_path, monkeypatch, name, what):
    bench.save({}, tmp_path / "results/forward_x.json")
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    with pytest.raises(FileNotFoundError) as error:
        bench.load_results(name)
    assert f"(forward_x), got '{name}'" in str(error.value)
    assert f"python -m flashlab bench {what} --out results/{name}.json" in str(error.value)


def test_live_where_there_is_a_gpu_recorded_elsewhere_and_it_says_which(tmp_path, monkeypatch):
    results = {"what": "forward", "provenance": RECORD, "rows": []}
    bench.save(results, tmp_path / "results/forward_h100.json")
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    monkeypatch.setattr(bench, "why_no_gpu", lambda: "no GPU")
    found, words = bench.live_or_recorded()
    assert found == results
    assert words == "recorded on NVIDIA H100 80GB HBM3, 2026-11-20, torch 2.11.0, triton 3.6.0, commit 01234567-dirty"
    monkeypatch.setattr(bench, "why_no_gpu", lambda: "")
    monkeypatch.setattr(bench, "quick_forward", lambda seconds: {"provenance": RECORD | {"device": f"a GPU for {seconds} s"}})
    found, words = bench.live_or_recorded(seconds=5)
    assert words.startswith("measured here on a GPU for 5 s, 2026-11-20")


# ---- the hardware's counters ---------------------------------------------------------------------------------------


HEAD = ('"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",'
        '"Section Name","Metric Name","Metric Unit","Metric Value"')
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_64x6_nn_align8>(Params)"
MUL = ("void at::native::vectorized_elementwise_kernel<8, at::native::AUnaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
       "at::native::binary_internal::MulFunctor<float>>, std::array<char *, 2>>(int, T2, T3)")


def ncu_log(cells):
    """The log of `ncu --csv --log-file`: (kernel's number, name, metric, unit, value) a line, ncu's own messages around."""
    lines = ["==PROF== Connected to process 4711 (/usr/bin/python3.12)", '==PROF== Profiling "Kernel2": 0%....50%....100% - 1 pass',
             "==PROF== Disconnected from process 4711", HEAD]
    lines += [f'"{n}","4711","python3.12","127.0.0.1","{name}","1","7","(128, 1, 1)","(256, 1, 16)","0","9.0",'
              f'"Command line profiler metrics","{metric}","{unit}","{value}"' for n, name, metric, unit, value in cells]
    return "\n".join(lines) + "\n"


TWO_KERNELS = [
    (0, GEMM, "dram__bytes_read.sum", "byte", "16,781,312"), (0, GEMM, "dram__bytes_write.sum", "Mbyte", "512.5"),
    (0, GEMM, "lts__t_bytes.sum", "Gbyte", "1.25"),
    (10, MUL, "dram__bytes_read.sum", "byte", "537"), (10, MUL, "dram__bytes_write.sum", "byte", "0"),
    (10, MUL, "lts__t_bytes.sum", "Kbyte", "1.5"), (10, MUL, "gpu__time_duration.sum", "ns", "7"),
]


def test_the_bytes_of_each_kernel_are_read_whatever_their_unit():
    first, second = bench.parse_ncu(ncu_log(TWO_KERNELS[::-1]))          # listed backwards: the kernel's number decides
    assert first == {"name": GEMM.removeprefix("void "), "dram_read": 16_781_312, "dram_written": 512_500_000,
                     "l2_bytes": 1_250_000_000}
    assert (second["dram_read"], second["dram_written"], second["l2_bytes"]) == (537, 0, 1500)
    assert second["name"].startswith("vectorized_elementwise_kernel<8, AUnaryFunctor<BFloat16") and "MulFunctor" in second["name"]


@pytest.mark.parametrize("text, words", [
    ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access the counters", "ERR_NVGPUCTRPERM"),
    ("==WARNING== No kernels were profiled.\n", "No kernels were profiled"),
    ("", "nothing at all"),
    (HEAD, "no table"),
    (ncu_log(TWO_KERNELS[:2]), "no l2_bytes for kernel cutlass"),
    (ncu_log([(0, GEMM, "dram__bytes_read.sum", "", "n/a")]), "must be a number of bytes, got 'n/a' in unit ''"),
    (ncu_log([(0, GEMM, "dram__bytes_read.sum", "sector", "12")]), "got '12' in unit 'sector'"),
])
def test_a_log_without_all_the_bytes_is_an_error(text, words):
    with pytest.raises(ValueError, match=words):
        bench.parse_ncu(text)


def test_counters_name_the_tiles_that_the_kernel_picked():
    pytest.importorskip("triton")
    from flashlab.kernels.fa2 import best_tiles

    assert bench.tiles("naive_forward", SMALL) == {}
    assert tuple(bench.tiles("fa2_triton_forward", Problem(1024, 128)).values()) == best_tiles(128, torch.bfloat16)[:2]


def fake_ncu(log, code=0, stderr=""):
    def run(command, **kwargs):
        Path(command[command.index("--log-file") + 1]).write_text(log)
        assert kwargs["env"]["LC_ALL"] == "C" and kwargs["cwd"] == bench.ROOT
        return SimpleNamespace(returncode=code, stdout="", stderr=stderr)
    return run


def test_ncu_gets_one_launch_to_look_at_and_its_failure_is_told():
    problem = Problem(1024, 64)
    command = bench.ncu_command("naive_forward", problem, "log")
    assert command[0] == "ncu" and "dram__bytes_read.sum,dram__bytes_write.sum,lts__t_bytes.sum" in command
    assert command[-1].endswith("launch_once('naive_forward', (1024, 64, False, 'bfloat16', 1, 16))")
    compile(command[-1], "child", "exec")
    assert len(bench.count_bytes("naive_forward", problem, run=fake_ncu(ncu_log(TWO_KERNELS)))) == 2
    with pytest.raises(RuntimeError, match="refused: WRONG"):
        bench.count_bytes("naive_forward", problem, run=fake_ncu("==PROF== Connected\n", 1, "Traceback\nrefused: WRONG: O off"))
    with pytest.raises(RuntimeError, match="ERR_NVGPUCTRPERM"):
        bench.count_bytes("naive_forward", problem, run=fake_ncu("==ERROR== ERR_NVGPUCTRPERM", 1, "a\nb\nc\n"))


def test_the_profiled_launch_is_checked_first_and_alone_between_start_and_stop(monkeypatch):
    log, on_cpu = [], bench.inputs
    monkeypatch.setattr(bench, "inputs", lambda problem, device: on_cpu(problem, "cpu"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: log.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: log.append("stop"))

    def launch(*args):
        log.append("launch")
        return function(*args)

    monkeypatch.setattr(bench, "implementations", lambda: {"it": Implementation("it", launch)})
    function = right
    bench.launch_once("it", tuple(SMALL))
    assert log == ["launch", "start", "launch", "stop"]
    function = wrong
    with pytest.raises(SystemExit, match="refused: WRONG"):
        bench.launch_once("it", tuple(SMALL))
    assert log[4:] == ["launch"]


def test_the_file_of_a_counters_run(tmp_path):
    def count(name, problem):
        if name == "broken":
            raise RuntimeError("refused")
        return bench.parse_ncu(ncu_log(TWO_KERNELS))

    out = tmp_path / "counters_x.json"
    results = bench.run_counters([Problem(1024, 64)], ["naive_forward", "broken"], out=out, count=count)
    assert json.loads(out.read_text()) == results and results["complete"] and results["what"] == "counters"
    assert "--clock-control none" in results["provenance"]["ncu"]
    good, bad = results["rows"]
    assert [good[key] for key in ("implementation", "N", "B", "H", "d", "dtype")] == ["naive_forward", 1024, 1, 16, 64, "bfloat16"]
    assert (good["dram_read"], good["dram_written"], good["l2_bytes"]) == (16_781_849, 512_500_000, 1_250_001_500)
    assert len(good["kernels"]) == 2 and good["skipped"] is None
    assert bad["skipped"] == "RuntimeError: refused" and bad["dram_read"] is None and bad["kernels"] == []
    late = bench.run_counters([Problem(1024, 64)], ["naive_forward"], count=count, expired=lambda: True)
    assert late["rows"][0]["skipped"] == bench.OUT_OF_TIME


# ---- the command line ----------------------------------------------------------------------------------------------


@no_gpu
@pytest.mark.parametrize("argv", [[], ["forward"], ["counters"], ["--quick"]])
def test_without_a_gpu_it_says_what_to_do_and_writes_nothing(argv, tmp_path, capsys):
    out = tmp_path / "deeper/x.json"
    assert bench.main([*argv, "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert "no NVIDIA GPU" in said and "results/" in said and "flashlab doctor" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("argv, words", [
    (["--N", "0"], "argument --N: expected an integer >= 1, got '0'"),
    (["--d", "64.5"], "argument --d: expected an integer >= 1, got '64.5'"),
    (["--budget-seconds", "nan"], "argument --budget-seconds: expected a number of seconds > 0, got 'nan'"),
    (["--implementations", "fa9"], "argument --implementations: invalid choice: 'fa9' (choose from"),
    (["--causal", "maybe"], "argument --causal: invalid choice: 'maybe'"),
    (["--dtype", "float8"], "argument --dtype: invalid choice: 'float8'"),
    (["--out", "/tmp"], "argument --out: expected the path of a .json file, got '/tmp'"),
    (["sideways"], "argument what: invalid choice: 'sideways'"),
])
def test_bad_arguments_are_named_with_what_was_expected(argv, words, capsys):
    with pytest.raises(SystemExit) as stop:
        bench.main(argv)
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    """A machine that seems to have an H100 and ncu. Nothing is measured: what would be is noted in the dict."""
    asked = {}

    def fake_run(what, problems, chosen, **kwargs):
        asked.update(kwargs, problems=problems, names=[getattr(c, "name", c) for c in chosen])
        bench.save({}, kwargs["out"])
        return {"what": what, "rows": [bench._empty_row("naive_forward", problems[0]) | {"skipped": "fake"}]}

    monkeypatch.setattr(bench, "ROOT", tmp_path)
    monkeypatch.setattr(bench, "why_no_gpu", lambda: "")
    monkeypatch.setattr(bench.shutil, "which", lambda name: name)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(bench, "run_forward", partial(fake_run, "forward"))
    monkeypatch.setattr(bench, "run_counters", partial(fake_run, "counters"))
    return asked


def test_the_full_forward_set_is_written_under_the_gpus_name(gpu, tmp_path, capsys):
    assert bench.main([]) == 1                            # its only row was skipped
    assert (tmp_path / "results/forward_h100.json").exists()
    assert len(gpu["problems"]) == 24 and gpu["names"] == list(bench.implementations()) and gpu["rounds"] == 3
    assert gpu["command"] == "python -m flashlab bench"
    assert "skipped: naive_forward, bfloat16 d 64 N 512: fake" in capsys.readouterr().out


def test_the_full_counters_set_is_written_under_the_gpus_name(gpu, tmp_path):
    assert bench.main(["counters"]) == 1
    assert (tmp_path / "results/counters_h100.json").exists()
    assert gpu["names"][:2] == ["naive_forward", "fa2_triton_forward"]
    assert gpu["problems"] == [Problem(N, 64, False, "bfloat16", 1, 16) for N in (1024, 2048, 4096, 8192, 16384)]


@pytest.mark.parametrize("argv", [["--quick"], ["--N", "512"], ["--implementations", "sdpa_flash"], ["--causal", "yes"]])
def test_a_part_is_written_nowhere_unless_out_says_so(gpu, tmp_path, argv, capsys):
    bench.main(argv)
    assert list(tmp_path.iterdir()) == [] and "nothing written" in capsys.readouterr().out
    out = str(tmp_path / "mine.json")
    bench.main([*argv, "--out", out])
    assert Path(out).exists() and gpu["command"].split()[4:] == [*argv, "--out", out]


def test_counters_need_ncu(gpu, monkeypatch, capsys):
    monkeypatch.setattr(bench.shutil, "which", lambda name: None)
    assert bench.main(["counters"]) == 2
    assert "ncu (Nsight Compute" in capsys.readouterr().err


@pytest.mark.parametrize("name, slug", [("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA A100-SXM4-40GB", "a100"), ("Tesla T4", "t4"),
                                        ("NVIDIA GeForce RTX 4090", "4090"), ("Graphics", "graphics")])
def test_a_gpus_short_name(name, slug):
    assert bench.gpu_slug(name) == slug


def test_the_interpreter_is_not_timed_on_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(os.environ, "TRITON_INTERPRET", "1")
    assert "unset it" in bench.why_no_gpu()
    monkeypatch.setitem(os.environ, "TRITON_INTERPRET", "0")
    if bench.import_triton():
        assert bench.why_no_gpu() == ""


def test_a_gpu_without_triton_is_not_timed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(os.environ, "TRITON_INTERPRET", "0")
    monkeypatch.setattr(bench, "import_triton", lambda: None)
    assert "Triton is not installed" in bench.why_no_gpu()


def test_a_row_of_a_triton_rung_names_its_tiles():
    best_tiles = pytest.importorskip("flashlab.kernels.fa2").best_tiles
    for causal in (False, True):
        problem = Problem(64, 64, causal, "bfloat16")
        row = bench._empty_row("fa2_triton_forward", problem)
        assert (row["B_r"], row["B_c"]) == best_tiles(64, torch.bfloat16, causal)[:2]
        assert "B_r" not in bench._empty_row("sdpa_flash", problem)


def test_the_table_shows_rates_ratios_and_reasons():
    rows = bench.measure(SMALL, [Implementation("sdpa_flash", right), Implementation("naive_forward", hungry)], device="cpu",
                         timer=lambda function: [1e-6])
    text = bench.table({"what": "forward", "rows": rows, "ceilings": {"matmul_tflops": 797.0}})
    title, line, ceiling, skipped = text.splitlines()
    assert title.split()[-2:] == ["sdpa_flash", "naive_forward"]
    assert line.startswith("float32 d 8 N 24") and line.endswith("-") and "(1.00x)" in line
    assert "797.0" in ceiling and skipped.startswith("skipped: naive_forward, float32 d 8 N 24: out of memory")
    counted = bench.run_counters([Problem(64, 8)], ["naive_forward"], count=lambda *_: bench.parse_ncu(ncu_log(TWO_KERNELS)))
    assert bench.table(counted).splitlines()[1].endswith("16.8 + 512.5, 1250.0")
