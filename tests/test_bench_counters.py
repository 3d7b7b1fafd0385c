"""The hardware's counters without a GPU: ncu's command, its log, and the rows that `bench counters` makes of it."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import flashlab  # noqa: F401
from flashlab import oracle
from flashlab_course.bench import counters, ncu, problems, results, rows, timing
from flashlab_course.bench.problems import Implementation, Problem

SMALL = Problem(24, 8, False, "float32", 2, 3)


def right(Q, K, V, causal):
    return oracle.attention(Q, K, V, causal=causal, dtype=Q.dtype)


def wrong(Q, K, V, causal):
    O, L = right(Q, K, V, causal)
    O[-1, -1, -1, -1] += 1e-3                             # one element of one head
    return O, L


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
    first, second = ncu.parse(ncu_log(TWO_KERNELS[::-1]), counters.BYTES)          # listed backwards: the kernel's number decides
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
        ncu.parse(text, counters.BYTES)


def test_counters_name_the_tiles_that_the_kernel_picked():
    pytest.importorskip("triton")
    from flashlab.kernels.launch import best_tiles

    assert problems.tiles("naive_forward", SMALL) == {}
    assert tuple(problems.tiles("fa2_triton_forward", Problem(1024, 128)).values()) == best_tiles(128, torch.bfloat16)[:2]


def fake_ncu(log, code=0, stderr=""):
    def run(command, **kwargs):
        Path(command[command.index("--log-file") + 1]).write_text(log)
        assert kwargs["env"]["LC_ALL"] == "C" and kwargs["cwd"] == results.ROOT
        return SimpleNamespace(returncode=code, stdout="", stderr=stderr)
    return run


def test_ncu_gets_one_launch_to_look_at_and_its_failure_is_told():
    problem = Problem(1024, 64)
    command = ncu.command(counters.METRICS, counters.child("naive_forward", problem), "log")
    assert command[0] == "ncu" and ",".join(counters.METRICS) in command
    assert command[-1].endswith("launch_once('naive_forward', (1024, 64, False, 'bfloat16', 1, 16, 1))")
    compile(command[-1], "child", "exec")
    exec(command[-1].split(";")[0])                       # the import alone
    assert len(counters.count_bytes("naive_forward", problem, run=fake_ncu(ncu_log(TWO_KERNELS)))) == 2
    with pytest.raises(ValueError, match="no .*l2_bytes.* for kernel"):
        counters.count_bytes("naive_forward", problem, run=fake_ncu(ncu_log(TWO_KERNELS[:2])))
    with pytest.raises(RuntimeError, match="refused: WRONG"):
        counters.count_bytes("naive_forward", problem, run=fake_ncu("==PROF== Connected\n", 1, "Traceback\nrefused: WRONG: O off"))
    with pytest.raises(RuntimeError, match="ERR_NVGPUCTRPERM"):
        counters.count_bytes("naive_forward", problem, run=fake_ncu("==ERROR== ERR_NVGPUCTRPERM", 1, "a\nb\nc\n"))


def test_the_profiled_launch_is_checked_first_and_alone_between_start_and_stop(monkeypatch):
    log, on_cpu = [], problems.inputs
    monkeypatch.setattr(counters, "inputs", lambda problem, device: on_cpu(problem, "cpu"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: log.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: log.append("stop"))

    def launch(*args):
        log.append("launch")
        return function(*args)

    monkeypatch.setattr(counters, "implementations", lambda: {"it": Implementation("it", launch)})
    function = right
    counters.launch_once("it", tuple(SMALL))
    assert log == ["launch", "start", "launch", "stop"]
    function = wrong
    with pytest.raises(SystemExit, match="refused: WRONG"):
        counters.launch_once("it", tuple(SMALL))
    assert log[4:] == ["launch"]


def test_the_file_of_a_counters_run(tmp_path):
    def count(name, problem):
        if name == "broken":
            raise RuntimeError("refused")
        return ncu.parse(ncu_log(TWO_KERNELS), counters.BYTES)

    out = tmp_path / "counters_x.json"
    found = counters.run([Problem(1024, 64)], ["naive_forward", "broken"], out=out, count=count)
    assert json.loads(out.read_text()) == found and found["complete"] and found["what"] == "counters"
    assert "--clock-control none" in found["provenance"]["ncu"]
    good, bad = found["rows"]
    assert [good[key] for key in ("implementation", "N", "B", "H", "d", "dtype")] == ["naive_forward", 1024, 1, 16, 64, "bfloat16"]
    assert (good["dram_read"], good["dram_written"], good["l2_bytes"]) == (16_781_849, 512_500_000, 1_250_001_500)
    assert len(good["kernels"]) == 2 and good["skipped"] is None
    assert bad["skipped"] == "RuntimeError: refused" and bad["dram_read"] is None and bad["kernels"] == []
    late = counters.run([Problem(1024, 64)], ["naive_forward"], count=count, expired=lambda: True)
    assert late["rows"][0]["skipped"] == timing.OUT_OF_TIME


def test_the_table_shows_megabytes():
    counted = counters.run([Problem(64, 8)], ["naive_forward"], count=lambda *_: ncu.parse(ncu_log(TWO_KERNELS), counters.BYTES))
    assert rows.table(counted).splitlines()[1].endswith("16.8 + 512.5, 1250.0")


def test_the_recorded_rows_go_through_a_CounterRow_and_come_out_the_same():
    for record in results.load_results("counters_h100")["rows"]:
        again = rows.as_json(rows.read(rows.CounterRow, record))
        assert again == record and list(again) == list(record)
