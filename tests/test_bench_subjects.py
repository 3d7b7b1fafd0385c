"""`python -m flashlab bench` and its subjects without a GPU: options, files, and their rows on next to nothing."""

import json
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab import oracle
from flashlab.operator import fp8
from flashlab.triton_mode import import_triton, interpreted
from flashlab_course import gpt
from flashlab_course.bench import (
    backward,
    checks,
    cli,
    counters,
    decode,
    forward,
    launch,
    parts,
    results,
    spans,
    timing,
    tune,
)
from flashlab_course.bench import fp8 as bench_fp8
from flashlab_course.bench import gpt as bench_gpt
from flashlab_course.bench import ring as bench_ring
from flashlab_course.bench.basics import sections
from flashlab_course.bench.basics.here import Here
from flashlab_course.bench.problems import Problem, implementations
from flashlab_course.gpu import cuda, simt

ROOT = Path(__file__).resolve().parent.parent
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
needs_triton = pytest.mark.skipif(not import_triton(), reason="triton is not installed (it exists for Linux only)")
needs_interpreter = pytest.mark.skipif(not interpreted(), reason="with a GPU the measurements themselves run")


def args(what, *words, **more):
    """The options of a subject, as the command has them."""
    found = cli.parsers()[0].parse_args([what, *words])
    vars(found).update({"expired": timing.never, "own": {}} | more)
    return found


def collected(pieces):
    return json.loads(json.dumps(results.collect({"rows": []}, pieces, say=lambda *_, **__: None)))


def timer(call):
    call()
    return [2.0, 2.0]


# ---- the command

@no_gpu
@pytest.mark.parametrize("argv", [[], *([name] for name in cli.SUBJECTS), ["--N", "512"]])
def test_without_a_gpu_it_says_what_to_do_and_writes_nothing(argv, tmp_path, capsys):
    assert cli.main([*argv, "--out", str(tmp_path / "deeper/x.json")]) == 2
    said = capsys.readouterr().err
    assert "no NVIDIA GPU" in said and "results/" in said and "flashlab doctor" in said and not list(tmp_path.iterdir())


def test_bad_arguments_are_named_with_what_was_expected(capsys):
    for argv, words in (
            (["--N", "0"], "argument --N: expected an integer >= 1, got '0'"),
            (["--budget-seconds", "nan"], "argument --budget-seconds: expected a number of seconds > 0, got 'nan'"),
            (["--implementations", "fa9"], "argument --implementations: invalid choice: 'fa9' (choose from"),
            (["--out", "/tmp"], "argument --out: expected the path of a .json file, got '/tmp'"),
            (["sideways"], "argument what: invalid choice: 'sideways' (choose from 'forward', 'backward', 'counters'")):
        with pytest.raises(SystemExit) as stop:
            cli.main(argv)
        assert stop.value.code == 2 and words in capsys.readouterr().err


def test_help_names_every_subject(capsys):
    for argv, words in ((["--help"], cli.SUBJECTS), (["tune", "--help"], ("--budget-seconds", "--label"))):
        with pytest.raises(SystemExit) as stop:
            cli.main(argv)
        said = capsys.readouterr().out
        assert stop.value.code == 0 and all(word in said for word in ("usage: python -m flashlab bench", *words)), said


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    """A machine that seems to have an H100 and ncu. Nothing is measured: what would be is noted in the dict."""
    asked = {}

    def measure(problem, forwards, **options):
        asked.setdefault("problems", []).append(problem)
        asked.update(options, names=list(forwards))
        return [{"implementation": "naive_forward", "ms": None, "skipped": "fake"}]

    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(results, "why_no_gpu", lambda: "")
    monkeypatch.setattr(results, "driver_version", lambda: "")
    monkeypatch.setattr(counters, "why_not", lambda: "")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(timing, "ceilings", lambda **_: {})
    monkeypatch.setattr(forward, "measure", measure)
    monkeypatch.setattr(backward, "measure", measure)
    monkeypatch.setattr(counters, "counted", lambda name, problem, _: measure(problem, [name])[0] | {"ms": 1.0})
    monkeypatch.setattr(sections, "rows_here", lambda name, here: [{"ms": 1.0}])
    return asked


def test_the_full_set_is_written_under_the_gpus_name_and_the_label_all(gpu, tmp_path, capsys):
    file = lambda what: results.read(tmp_path / f"results/{what}_h100.json")
    assert cli.main([]) == 1 and file("forward")[0]["label"] == "all"      # its only rows were skipped
    assert len(gpu["problems"]) == 24 and gpu["names"] == list(implementations()) and not gpu.get("rounds")
    assert file("forward")[0]["provenance"]["command"] == "python -m flashlab bench"
    assert "implementation naive_forward, skipped fake" in capsys.readouterr().out
    assert cli.main(["backward", "--budget-seconds", "9"]) == 1 and gpu["names"] == list(backward.implementations())
    gpu.clear()
    assert cli.main(["counters"]) == 0 and file("counters")[0]["rows"]
    assert set(gpu["problems"]) == {Problem(N, 64, False, "bfloat16", 1, 16) for N in (1024, 2048, 4096, 8192, 16384)}
    assert cli.main(["basics", "--label", "again"]) == 0
    assert file("basics")[0]["label"] == "again" and list(file("basics")[0]["sections"]) == list(sections.SECTIONS)


@pytest.mark.parametrize("argv", [["--N", "512"], ["backward", "--deterministic"], ["basics", "--sections", "softmax"]])
def test_a_part_is_written_nowhere_unless_out_says_so(gpu, tmp_path, argv, capsys):
    cli.main(argv)
    assert list(tmp_path.iterdir()) == [] and "nothing written" in capsys.readouterr().out
    out = tmp_path / "mine.json"
    cli.main([*argv, "--out", str(out)])
    cli.main([*argv, "--out", str(out), "--label", "mine"])
    first, second = results.read(out)
    assert first["label"] == " ".join([*argv, "--out", str(out)]) and second["label"] == "mine"
    out.write_text("{}")
    with pytest.raises(ValueError, match="must be JSON with a list of runs"):
        cli.main([*argv, "--out", str(out)])


def test_yours_and_counters_are_refused_before_they_can_be_measured(gpu, monkeypatch, capsys):
    assert cli.main(["--yours"], lambda what: {"yours": what}) == 1 and gpu["names"][-1] == "yours"
    with pytest.raises(SystemExit):
        cli.main(["--yours"], lambda what: {})
    assert "your forward kernel has not passed yet" in capsys.readouterr().err
    monkeypatch.setattr(counters, "why_not", lambda: "ncu is missing")
    assert cli.main(["counters"]) == 2 and "on this machine ncu is missing" in capsys.readouterr().err


# ---- ncu

LOG = """==PROF== Connected to process 4711
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","4711","gemm(Params)","dram__bytes_read.sum","byte","16,781,312"
"0","4711","gemm(Params)","dram__bytes_write.sum","byte","512,500,000"
"0","4711","gemm(Params)","lts__t_bytes.sum","byte","1250000000"
"0","4711","gemm(Params)","gpu__time_duration.sum","ns","(!) n/a"
"10","4711","void at::native::vectorized<8, c10::BFloat16>(int, T2, T3)","dram__bytes_read.sum","byte","537"
"10","4711","void at::native::vectorized<8, c10::BFloat16>(int, T2, T3)","dram__bytes_write.sum","byte","0"
"10","4711","void at::native::vectorized<8, c10::BFloat16>(int, T2, T3)","lts__t_bytes.sum","byte","1,500"
==PROF== Disconnected
"""


def fake_ncu(log, code=0, stderr=""):
    def run(command, **kwargs):
        Path(command[command.index("--log-file") + 1]).write_text(log)
        assert kwargs["env"]["LC_ALL"] == "C" and kwargs["cwd"] == results.ROOT
        exec(command[-1].split(";")[0])                # what the child imports is there
        return SimpleNamespace(returncode=code, stdout="", stderr=stderr)

    return run


def test_a_log_becomes_kernels_in_order_of_launch_in_bytes():
    assert counters.parse(LOG) == [
        {"name": "gemm(Params)", "dram_read": 16781312, "dram_written": 512500000, "l2_bytes": 1250000000},
        {"name": "vectorized<8, BFloat16>(int, T2, T3)", "dram_read": 537, "dram_written": 0, "l2_bytes": 1500}]
    for text, words in (("==ERROR== no permission", "no table: ==ERROR== no permission"),
                        (LOG.replace('"byte","537"', '"sector","537"'), "got '537' in unit 'sector'")):
        with pytest.raises(ValueError, match=words):
            counters.parse(text)


def test_a_counters_row_sums_its_kernels_and_a_failure_is_told():
    asked = args("counters", "--N", "1024", "--implementations", "naive_forward")
    row, = collected(counters.pieces(asked, fake_ncu(LOG)))["rows"]
    assert (row["dram_read"], row["dram_written"], row["l2_bytes"]) == (16781849, 512500000, 1250001500)
    assert len(row["kernels"]) == 2 and row["skipped"] is None and row["N"] == 1024
    for run, words in ((fake_ncu(LOG.replace("lts__t", "others")), "no l2_bytes for kernel gemm"),
                       (fake_ncu("", 1, "Traceback\nrefused: O off"), "RuntimeError: Traceback / refused: O off"),
                       (fake_ncu("==ERROR== ERR_NVGPUCTRPERM", 1, "a\nb\nc\n"), "ERR_NVGPUCTRPERM")):
        assert words in collected(counters.pieces(asked, run))["rows"][0]["skipped"]


def test_the_profiled_launch_is_checked_first_and_alone_between_start_and_stop(monkeypatch):
    log, on_cpu, problem = [], counters.inputs, tuple(Problem(24, 8, False, "float32", 2, 3))
    off = iter([0.0, 0.0, 0.0, 1e-3])                  # checked, run again for its memory, profiled; then another

    def it(Q, K, V, causal):
        log.append("launch")
        O, L = oracle.attention(Q, K, V, causal=causal, dtype=Q.dtype)
        return O + next(off), L

    monkeypatch.setattr(counters, "inputs", lambda problem, device: on_cpu(problem, "cpu"))
    monkeypatch.setattr(counters, "implementations", lambda: {"it": it})
    monkeypatch.setattr(checks, "peak_bytes", lambda call: call() and None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for name in ("start", "stop"):
        monkeypatch.setattr(torch.cuda.profiler, name, lambda name=name: log.append(name))
    counters.launch_once("it", problem)
    assert log == ["launch", "launch", "start", "launch", "stop"]
    with pytest.raises(SystemExit, match="refused: WRONG"):
        counters.launch_once("it", problem)
    assert len(log) == 6


# ---- basics

OF_PRODUCTS = ("key_loading", "matmul", "matmul_tiles", "matmul_order", "precision")
SHRINK = {"coalescing": 512, "vector_addition": 2**15} | dict.fromkeys(OF_PRODUCTS, 128)


def here(section=None):
    return Here("cpu", lambda function: [function() is None, 2.0, 3.0], SHRINK.get(section, 2**12))


@needs_interpreter
@pytest.mark.parametrize("name", sections.SECTIONS)
def test_each_section_measures_all_its_rows(name, monkeypatch):
    """CUDA kernels with a twin run in the SIMT interpreter, the others do nothing."""
    def kernel(name):
        twin = getattr(simt, name, None)
        return lambda grid, block: simt.launch(twin, grid, block, shared=1024) if twin else (lambda *arguments: None)

    monkeypatch.setattr(cuda, "kernel", kernel)
    section = collected(sections.pieces(args("basics", "--sections", name), here(name)))["sections"][name]
    assert section["question"] and not section["skipped"]
    assert section["rows"] and not [row for row in section["rows"] if "skipped" in row]


def test_a_wrong_or_failing_case_or_section_leaves_the_others(monkeypatch):
    one = torch.ones(3)
    cases = {"right": (lambda: one, one), "wrong": (lambda: one + 1, one), "nan": (lambda: one * torch.nan, one, 1.0),
             "error": (lambda: one @ torch.ones(4),)}
    rows = [here().timed({"case": name}, *case, moved=12) for name, case in cases.items()]
    assert rows[0]["ms"] == 2.0 and rows[0]["error"] == 0 and "skipped" not in rows[0]
    assert rows[1]["skipped"].startswith("AssertionError: wrong: off by 1") and "ms" not in rows[1]
    assert "nan" in rows[2]["skipped"] and "RuntimeError" in rows[3]["skipped"]

    def broken(here):
        """Why?"""
        raise RuntimeError("no such unit")
        yield

    def fine(here):
        """How?"""
        yield {"case": 1, "ms": 1.0}

    monkeypatch.setattr(sections, "SECTIONS", {"broken": broken, "fine": fine})
    asked = SimpleNamespace(sections=["broken", "fine"], expired=timing.never)
    found = collected(sections.pieces(asked, here()))["sections"]
    assert found["broken"]["skipped"] == "RuntimeError: no such unit"
    assert found["fine"]["rows"] == [{"case": 1, "ms": 1.0}]


def test_rows_measured_here_do_only_with_those_that_are_needed(monkeypatch):
    """A tile that does not fit this GPU leaves no row; the recorded ones then stand in, all of them."""
    monkeypatch.setattr(sections, "why_no_gpu", lambda: "")
    monkeypatch.setattr(sections.torch.cuda, "get_device_name", lambda: "a small GPU")
    seen = [{"how": "block", "ms": 1.0}, {"how": "element", "skipped": "no room"}]
    monkeypatch.setitem(sections.MEASURED_HERE, "atomics", seen)
    rows, words = sections.numbers("atomics", needs=[{"how": "block"}])
    assert rows == [{"how": "block", "ms": 1.0}] and words == "Measured here, on a small GPU."
    rows, words = sections.numbers("atomics", needs=[{"how": "block"}, {"how": "element"}])
    assert len(rows) > 2 and words.startswith("Recorded on")
    assert sections.numbers("timing_ways", "basics_h200", live=False)[0], "in any run of the file"
    assert sections.numbers("atomics", "basics_b200", live=False)[1].startswith("Not recorded yet")


# ---- decoding, FP8, spans

def test_a_decode_size_is_checked_then_timed(monkeypatch):
    problem = decode.Problem(2, 8, 1, 48, d=16)
    options = {"device": "cpu", "backend": "torch", "timer": timer, "rounds": 1}
    monkeypatch.setattr(timing, "COPY_BYTES", 1024)
    rows = {row["implementation"]: row for row in decode.measure(problem, 16, **options)}
    assert {"decode", "decode, paged", "sdpa_flash", *decode.FORWARD} == set(rows) - {"sdpa_efficient", "sdpa_cudnn"}
    row = rows["decode, paged"]
    assert row["page_size"] == 16 and row["bytes"] == 2 * 2 * 48 * 16 * 2 == problem.bytes and row["ms"] == 2.0
    assert "copy_tb_s" in row and "of_copy" in row
    assert "Hopper" in rows["fa2_hopper_forward"]["skipped"] or torch.cuda.is_available()
    monkeypatch.setattr(decode, "run_sdpa", lambda backend, Q, K, V, causal: (Q + 1, None))
    rows = decode.measure(problem, 16, **options)
    assert all("refused: WRONG" in row["skipped"] for row in rows if row["implementation"].startswith("sdpa"))
    sizes = decode.problems()
    assert decode.Problem(1, 32, 4, 65536) in sizes and all(2 * size.bytes <= decode.MOST_BYTES for size in sizes)


def test_fp8_rows_of_what_is_right_and_what_is_wrong():
    problem = Problem(256, 64, True, H=2)
    g = torch.Generator().manual_seed(0)
    Q, K, V = (torch.randn(1, 2, 256, 64, generator=g).bfloat16() for _ in range(3))
    calls = {bench_fp8.BASELINE: lambda: oracle.attention(Q, K, V, causal=True)[0],
             bench_fp8.WHOLE: lambda: fp8.flash_attention_fp8(Q, K, V, causal=True), bench_fp8.QUANTISING: lambda: None,
             "nothing": lambda: torch.full_like(Q, torch.nan), "not causal": lambda: fp8.flash_attention_fp8(Q, K, V)}
    rows = bench_fp8.measure(problem, calls, (Q, K, V), rounds=2, timer=lambda call: [1.0])
    rows = {row["implementation"]: row for row in rows}
    assert {name for name, row in rows.items() if "refused" in (row["skipped"] or "")} == {"nothing", "not causal"}
    assert 0.03 < rows[bench_fp8.WHOLE]["error"] < 0.06
    assert "error" not in rows[bench_fp8.QUANTISING] and "tflops" not in rows[bench_fp8.QUANTISING]


def test_spans_are_timed_beside_what_they_replace_and_a_wrong_one_is_not(monkeypatch):
    found = list(spans.pairs())
    assert [it.left for it, _ in found] == [2048, None, None, None, None] * 2
    assert all(it == beside._replace(packed=True) and not beside.packed for it, beside in found if not it.left)
    assert all(it.B * it.N == 16384 and it.H * it.d == 2048 for it, _ in found)
    Q, K, V = (torch.randn(2, 33, 3, 16).transpose(1, 2) for _ in range(3))
    batched, cu_seqlens = spans.Problem(2, 3, 33, 16, causal=True), torch.tensor([0, 33, 66], dtype=torch.int32)
    packed = batched._replace(packed=True)
    assert torch.allclose(spans.attend(batched, None, Q, K, V), spans.attend(packed, cu_seqlens, Q, K, V), atol=1e-6)
    windowed = spans.Problem(1, 2, 64, 16, left=8)
    rows = list(spans.measure(windowed, windowed._replace(left=None, causal=True), device="cpu", timer=timer, rounds=1))
    assert [row["pass"] for row in rows] == ["forward", "backward"] and all(row["times_faster"] == 1 for row in rows)
    real = spans.flash_attention_varlen
    monkeypatch.setattr(spans, "flash_attention_varlen", lambda *tensors, **options: 1.1 * real(*tensors, **options))
    for row in spans.measure(packed, batched, device="cpu", timer=timer, rounds=1):
        assert row["skipped"].startswith("refused: WRONG") and row["ms"] is None


# ---- parts, tune, launch

@needs_interpreter
@needs_triton
def test_parts_have_a_row_each_and_a_line_that_is_gone_is_an_error():
    found = parts.rows_of(Problem(32, 16, False, "float32", 1, 1), device="cpu", timer=timer, rounds=1)
    assert [row["left_out"] for row in found] == list(parts.LEFT_OUT) and all(row["ms"] == 2.0 for row in found)
    with pytest.raises(ValueError, match="must have this line once, it has it 0 times: l_i = what it was"):
        parts.variant(parts.rung(parts.KERNEL).home, [("l_i = what it was", "")], None)


@needs_interpreter
@needs_triton
def test_a_search_checks_before_it_times_and_the_kernel_takes_the_fastest(monkeypatch, tmp_path):
    """Fails if a wrong candidate is timed, other tiles run than are tried, or the next call takes not the winner."""
    from flashlab.kernels import fa2_split, fa2_split_backward, tuning

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tuning.tables.cache_clear()
    small = Problem(64, 16, True, "float16", 1, 1)
    grid = [tuning.Tiles(64, B_c, 4, stages) for B_c, stages in ((32, 1), (64, 2), (16, 3))]
    real, launched = fa2_split.launch_tuned, []

    def spoil(Q, K, V, O, L, tiles=None, **options):
        launched.append(tiles)
        L = torch.empty_like(L) if tiles and tiles.num_stages == 3 else L
        return real(Q, K, V, O, L, tiles=tiles, **options)

    def by_stages(call):
        call()
        return [{1: 3.0, 2: 2.0}[launched[-1].num_stages]]

    monkeypatch.setattr(fa2_split, "launch_tuned", spoil)                        # the third candidate leaves L unwritten
    options = {"device": "cpu", "limit": 2**20}
    table = tune.search("fa2_tuned_forward", small, timer=by_stages, grid=grid, **options)
    assert [(tuple(tiles), ms) for tiles, ms, _ in table] == [(grid[1], 2.0), (grid[0], 3.0), (grid[2], None)]
    assert table[2][2].startswith("refused: WRONG")
    Q = torch.randn(1, 1, 64, 16).half()
    arguments = real(Q, Q, Q, Q, Q[..., 0].float(), causal=True, scale=1.0)[1]
    assert (arguments["B_c"], arguments["num_stages"]) == (64, 2)
    real_backward, blocks = fa2_split_backward.launch_tuned, []

    def spy(*tensors, **options):
        launches = real_backward(*tensors, **options)
        blocks.append([arguments["B_c"] for _, _, arguments in launches[1:]])
        return launches

    monkeypatch.setattr(fa2_split_backward, "launch_tuned", spy)
    tune.search("fa2_tuned_backward", small, "queries", timer=lambda call: [3.0], grid=grid[:2], **options)
    assert {tuple(block) for block in blocks} == {(128, 32), (128, 64)}    # dK and dV's as picked by hand
    tuning.tables.cache_clear()


def test_the_hosts_time_of_a_call(monkeypatch):
    """Fails if waiting counts, or if it is not the time of one call."""
    ms, = launch.host_ms(lambda: time.sleep(2e-3), calls=5, wait=lambda: time.sleep(0.1))
    assert 2 <= ms < 12
    monkeypatch.setattr(launch, "functions", lambda *_: {"it": print, "broken": lambda: 1 / 0})
    it, broken = collected(launch.pieces(args("launch"), rounds=2, timer=lambda call: [0.005]))["rows"]
    assert (it["call"], it["us"]) == ("it", 5.0)
    assert broken["us"] is None and "ZeroDivisionError" in broken["skipped"]


# ---- gpt

TINY = gpt.Shape(layers=1, width=32, heads=2, kv_heads=2)
SIZES = bench_gpt.Sizes(TINY, 2, 16, 3, TINY, tokens=32, contexts=(16, 32, 64), prompts=(8,), batches=(1, 2), written=3)


def test_a_gpt_run(monkeypatch):
    """Of a tiny model, with an attention that has room for 16 tokens: it is not tried at longer contexts."""
    def narrow(Q, K, V, causal=True):
        if Q.shape[2] > 16:
            raise torch.OutOfMemoryError("no room")
        return gpt.ATTENTIONS["naive"](Q, K, V, causal)

    asked = args("gpt", "--implementations", "flash_attention", own={"narrow": narrow})
    limits = {"matmul_tflops": 0.1, "copy_tb_s": 0.01}
    run = collected(bench_gpt.pieces(asked, SIZES, "cpu", lambda: limits))
    assert run["ceilings"] == limits and run["shape"] == TINY._asdict()
    rows = {(row["implementation"], row["context"]): row for row in run["rows"]}
    assert rows["narrow", 16]["tokens_s"] > 0 and rows["narrow", 16]["batch"] == 2
    assert [rows["narrow", N]["skipped"] for N in (32, 64)] == ["out of memory", "out of memory at a shorter one"]
    row = rows["flash_attention", 32]
    assert row["mfu"] == pytest.approx(gpt.mfu(row["tokens_s"], TINY, 32, 1e11), abs=1e-4)
    flash, short = run["curves"]
    assert short["losses"] == pytest.approx(flash["losses"], abs=0.05) and len(flash["losses"]) == 3      # in bfloat16
    made = run["generation"]
    ways = [(batch, *way.values()) for batch in (1, 2) for way in bench_gpt.WAYS]
    assert [(row["batch"], row["cached"], row["graph"]) for row in made] == ways
    assert made[0]["bound_tokens_s"] == pytest.approx(1e10 / (gpt.weights(TINY) * 2 + 2 * 2 * 32 * 8), rel=1e-3)
    assert all("graph must be False" in row["skipped"] if row["graph"] else row["tokens_s"] for row in made)
    asked.expired = lambda: True
    late = collected(bench_gpt.pieces(asked, SIZES, "cpu", lambda: limits))
    assert {row["skipped"] for part in ("curves", "rows", "generation") for row in late[part]} == {timing.OUT_OF_TIME}


# ---- rings

SPOILT = """
import flashlab.operator.ring as ring
whole = ring.part
ring.part = lambda rank, step, *more, causal, **options: (
    None if rank and step and not causal else whole(rank, step, *more, causal=causal, **options))
from flashlab_course.bench.ring import main
from tests.ring_worker import in_ranks, sys
sys.exit(in_ranks(2, lambda rank: main(["--device", "cpu", "--N", "64", "--out", sys.argv[1]])))
"""


def test_a_ring_writes_rows_that_were_checked_and_no_time_for_a_wrong_one(tmp_path):
    """Without a mask, rank 1 leaves out the second step."""
    out = tmp_path / "ring_x.json"
    done = subprocess.run([sys.executable, "-c", SPOILT, out], cwd=ROOT, capture_output=True, text=True, timeout=240)
    said = done.stdout + done.stderr
    assert done.returncode and "ranks 2, skipped refused: O is" in said and "a ring is wrong" in said, said
    run, = results.read(out)
    assert run["what"] == "ring" and run["complete"] and "flashlab_course.bench.ring" in run["provenance"]["command"]
    rows = {(row["mode"], row["passes"], row["ranks"]): row for row in run["rows"]}
    both = product(("all", "causal, zig-zag"), bench_ring.PASSES, (1, 2))
    assert set(rows) == {*both, ("causal, in order", "forward", 2)}
    for (mode, _, ranks), row in rows.items():
        if (mode, ranks) == ("all", 2):
            assert row["ms"] is None and row["skipped"].startswith("refused"), row
        else:
            assert row["ms"] > 0 and row["skipped"] is None and row["speedup"] > 0 and row["peak_bytes"] > 0, row
    alone, slow = rows["causal, zig-zag", "forward", 1]["ms"], rows["causal, in order", "forward", 2]
    assert slow["speedup"] == pytest.approx(alone / slow["ms"], abs=1e-3)  # for one GPU every order is the same


def test_a_ring_says_what_it_cannot_measure(monkeypatch, capsys):
    for env, words in (({"RANK": "0", "WORLD_SIZE": "1"}, "it wants 2 processes or more, got 1"),
                       ({"WORLD_SIZE": "8"}, "--N must be a multiple of 16, two chunks for each rank, got 100")):
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit):
            bench_ring.arguments(["--N", "100"])
        assert words in capsys.readouterr().err
