"""The loop of all benchmarks without a GPU: what it refuses, how calls take turns, what is written and read back."""

import json
import subprocess
from functools import partial

import pytest
import torch

import flashlab  # noqa: F401
from flashlab import cost, oracle
from flashlab.ladder import BACKWARD_KERNELS, PEERS
from flashlab.memory import Memory
from flashlab_course.bench import backward, checks, forward, peers, problems, results, timing
from flashlab_course.bench.problems import Problem

SMALL = Problem(24, 16, False, "float32", 2, 3)
PASSES = {"forward": forward, "backward": backward}


def right(Q, K, V, causal):
    return oracle._attention(Q, K, V, causal=causal)[0], None


def wrong(Q, K, V, causal):
    """One element of the last head is off, and its gradient."""
    O = right(Q, K, V, causal)[0]
    spoilt = torch.zeros_like(O)
    spoilt[-1, -1, -1, -1] = 1e-3
    return O + spoilt * (1 + 1000 * Q), None


def nan(Q, K, V, causal):
    return (Q + K + V) * float("nan"), None


def hungry(Q, K, V, causal):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 32.00 GiB.\nmore")


def broken(Q, K, V, causal):
    raise ValueError("d must be at most 256, got 512")


def rows_of(what, *functions, problem=SMALL, **options):
    options = {"device": "cpu", "timer": lambda call: [call() and 2.0, 4.0, 6.0]} | options
    rows = PASSES[what].measure(problem, {function.__name__: function for function in functions}, **options)
    return {row["implementation"]: row for row in rows}


# ---- correct first

@pytest.mark.parametrize("what", PASSES)
def test_a_call_that_is_wrong_or_fails_is_not_timed_and_its_row_says_why(what):
    rows = rows_of(what, right, wrong, nan, hungry, broken)
    good = rows.pop("right")
    assert good["skipped"] is None and good["error"] < 1e-5 and good["pass"] == what
    flops = SMALL.flops * {"forward": 1, "backward": 2.5}[what]
    assert (good["ms"], good["runs"], good["tflops"]) == (4.0, 15, round(flops / 4e-3 / 1e12, 3))
    assert all(row["ms"] is None and "tflops" not in row for row in rows.values())
    assert rows["wrong"]["skipped"].startswith("refused: WRONG") and rows["wrong"]["error"] > 1e-4
    assert rows["nan"]["skipped"].startswith("refused") and rows["nan"]["error"] is None
    assert rows["hungry"]["skipped"] == "out of memory"
    assert rows["broken"]["skipped"] == "ValueError: d must be at most 256, got 512"


def test_a_size_that_fails_has_a_row_and_the_next_is_measured(monkeypatch):
    monkeypatch.setattr(timing, "ceilings", lambda: {"copy_tb_s": 3.0})
    full = SMALL._replace(N=48)
    found = timing.sweep([full, SMALL], lambda problem: hungry(1, 2, 3, 4) if problem is full else [{"ms": 1.0}])
    (_, ceilings), (_, first), (_, second) = found
    assert ceilings and first[0]["skipped"] == "out of memory" and first[0]["N"] == 48 and second == [{"ms": 1.0}]


@pytest.mark.parametrize("what", PASSES)
@pytest.mark.parametrize("scores", [24 * 24, 24 * 5, 3])
def test_a_check_of_only_some_heads_and_rows_is_still_right(monkeypatch, scores, what):
    """Whole groups of heads that share keys are judged."""
    for N, share, heads, rows in ((1024, 1, 16, 16), (16384, 1, 1, 1), (4096, 8, 16, 2), (16384, 8, 8, 1)):
        Q, K = (torch.empty(1, heads, N, 1, device="meta") for heads in (16, 16 // share))
        assert checks.judged_part(Q, K, 2**28) == (heads, rows)
    monkeypatch.setattr(checks, "CHECKED_SCORES", scores)
    rows = rows_of(what, right, wrong, problem=SMALL._replace(causal=True))
    assert rows["right"]["skipped"] is None and rows["wrong"]["skipped"]


def test_a_check_sees_an_output_that_was_never_written():
    """Fails if the check is not on poisoned outputs: memory that was just freed often holds the right numbers."""
    def forgets(Q, K, V, causal):
        O = right(Q, K, V, causal)[0]
        O.register_hook(lambda dO: torch.empty_like(dO))
        return O, None

    assert rows_of("backward", forgets)["forgets"]["skipped"]
    assert rows_of("forward", lambda Q, K, V, causal: (torch.empty_like(Q), None))["<lambda>"]["skipped"]
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("share, causal", [(1, False), (3, True)])
def test_implementations_that_run_here_pass_their_check(share, causal):
    """SDPA's mask is top-left: the same, as N_q = N_k."""
    problem = SMALL._replace(share=share, causal=causal)
    found = {"forward": problems.implementations(), "backward": backward.implementations()}
    for what, kernel in (("forward", "fa2_triton_forward"), ("backward", "fa2_atomic_backward")):
        names = [f"naive_{what}", "sdpa_math", "sdpa_flash", *([kernel] if problems.import_triton() else [])]
        chosen = {name: found[what][name] for name in names}
        for row in PASSES[what].measure(problem, chosen, device="cpu", timer=lambda call: [1.0], rounds=1):
            assert row["skipped"] is None, row


# ---- then time

def passed(call):
    return {"skipped": None}


def test_functions_take_turns_in_changing_order_and_a_failed_one_gets_no_second_turn():
    log = []

    def timer(function):
        log.append(*function.args)
        if log[-1] == "c" or len(log) == 11:
            raise torch.OutOfMemoryError("no room")
        return [float(len(log))]

    rows = timing.measure({name: partial(print, name) for name in "abcd"}, passed, 3, timer=timer)
    rounds = [log[:4], log[4:7], log[7:]]
    assert [sorted(turns) for turns in rounds] == [list("abcd"), list("abd"), list("abd")] and rounds[1] != rounds[2]
    assert rows["c"]["skipped"] == "out of memory" and [rows[name]["runs"] for name in "abd"] == [3, 3, 3]


def test_calls_after_the_budget_and_those_whose_check_says_nothing_are_not_timed():
    now = [0.0]

    def timer(function):
        now[0] += 10
        return [1.0]

    expired = timing.deadline(35, clock=lambda: now[0])
    sizes = [timing.measure({"it": print}, passed, 3, timer=timer, expired=expired)["it"] for _ in range(3)]
    assert [row.get("runs") for row in sizes] == [3, 1, None] and sizes[2]["skipped"] == timing.OUT_OF_TIME
    with pytest.raises(KeyError):
        timing.measure({"it": print}, lambda call: {"error": 0.0}, timer=lambda call: [1.0])


# ---- what is measured

def test_naive_over_heads_moves_what_naive_forward_moves_in_as_many_launches_as_for_one_head():
    Q, K, V = problems.inputs(SMALL._replace(dtype="bfloat16"), "cpu")
    with Memory() as mem:
        problems.naive_over_heads(Q, K, V, False)
    one = cost.naive_forward(24, 24, 16, element_size=2)
    assert (mem.read, mem.written) == (6 * one.read, 6 * one.written)
    assert [event.kernel for event in mem.log] == ["bmm", "mul", "_softmax", "bmm"]


def test_no_peer_that_can_be_installed_is_left_out(monkeypatch):
    assert "fa4" not in peers.peers() and set(peers.BACKENDS) < set(peers.peers())
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name, package=None: name)
    assert set(peers.peers()) == {peer.name for peer in PEERS}


@pytest.mark.parametrize("deterministic", [False, True])
def test_each_kernel_rung_is_timed_under_its_own_name(monkeypatch, deterministic):
    asked = []
    monkeypatch.setattr(backward, "flash_attention", lambda Q, K, V, **options: asked.append(options))
    names = [kernel.name for kernel in BACKWARD_KERNELS]
    for name in names:
        backward.implementations(deterministic)[name](None, None, None, True)
    assert asked == [{"causal": True, "backend": name, "deterministic": deterministic} for name in names]


def test_sizes_keep_tokens_and_width_constant_and_inputs_are_the_same_for_all():
    grid = problems.problem_grid()
    assert len(grid) == 24 and {p.N for p in grid} == {512 * 2**i for i in range(6)}
    assert {p.B * p.N for p in grid} == {16384} and {p.H * p.d for p in grid} == {2048}
    assert Problem(4096, 128, True, "bfloat16", 4, 16).flops == 2 * 4 * 16 * 4096**2 * 128      # half of 4BHN²d
    with pytest.raises(ValueError, match="share must divide the 32"):
        problems.problem_grid(share=3)
    first, again = (problems.inputs(SMALL._replace(share=3), "cpu") for _ in range(2))
    assert all(torch.equal(a, b) and a.abs().min() > 0 for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[1], first[2]) and [T.shape[1] for T in first] == [3, 1, 1]
    best_tiles = pytest.importorskip("flashlab.kernels.launch").best_tiles
    for causal in (False, True):
        problem = Problem(64, 64, causal, "bfloat16")
        found = tuple(problems.tiles("fa2_triton_forward", problem).values())
        assert found == best_tiles(64, torch.bfloat16, causal)[:2] and problems.tiles("sdpa_flash", problem) == {}
    row = SMALL._asdict() | {"ms": 1.0}
    assert problems.problem_of(row) == SMALL and row.pop("share") and problems.problem_of(row) == SMALL


# ---- what is written and read

def test_a_run_is_written_after_each_piece_and_replaces_the_one_of_its_label(tmp_path):
    """Fails if a run that is cut off keeps nothing, or if the others in its file are lost."""
    out, say = tmp_path / "new/forward_x.json", lambda *_, **__: None
    for label, ms in (("all", 1.0), ("other", 2.0), ("all", 3.0)):
        run = results.start("forward", "the command", label)
        rows = [("rows", [{"ms": ms}]), ("rows", [{"ms": ms, "skipped": "no room"}])]
        assert results.collect(run, [("ceilings", {"copy_tb_s": 3.0}), *rows], out, say) is run
    assert results.read(out)[0] == json.loads(json.dumps(run)) and [p.name for p in out.parent.iterdir()] == [out.name]
    assert run["provenance"]["command"] == "the command" and len(results.measured(run)) == 1

    def cut_off():
        yield "rows", [{"ms": 4.0}]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        results.collect(results.start("forward", label="cut off"), cut_off(), out, say)
    assert [(one["complete"], len(one["rows"])) for one in results.read(out)] == [(True, 2), (True, 2), (False, 1)]
    with pytest.raises(ValueError):
        results.save({"label": "all", "rows": [float("nan")]}, out)        # not JSON: the old file stays
    assert len(results.read(out)) == 3


def test_results_are_found_by_name_and_label(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    for label in ("all", "later"):
        results.save({"label": label, "rows": [label]}, tmp_path / "results/forward_x.json")
    monkeypatch.setattr(results, "ROOT", tmp_path)
    assert [results.load_results("forward_x", *label)["rows"] for label in ((), ("later",))] == [["all"], ["later"]]
    with pytest.raises(ValueError, match=r"label must be one of .* \('all', 'later'\), got 'sooner'"):
        results.load_results("forward_x", "sooner")
    words = r"\(forward_x\), got 'counters_b200'.*bench counters --out results/counters_b200"
    with pytest.raises(FileNotFoundError, match=words):
        results.load_results("counters_b200")
    monkeypatch.setattr(results, "ROOT", tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path / "notebooks")
    assert results.load_results("forward_x")["rows"] == ["all"]


def test_provenance_says_where_a_number_comes_from(tmp_path, monkeypatch):
    record = results.provenance("make bench")
    assert (record["torch"], record["command"], record["date"][-6:]) == (torch.__version__, "make bench", "+00:00")
    found, words = forward.live_or_recorded()
    assert found == results.load_results("forward_h100") or torch.cuda.is_available()
    assert words.startswith(("recorded on NVIDIA H100 80GB HBM3, 2026-", "measured here on"))
    there = {"device": "a GPU", "date": "2026-11-20T10:00:00+00:00", "torch": "2", "triton": "3",
             "commit": "0123456789abcdef-dirty"}
    assert results.where({"provenance": there}) == "a GPU, 2026-11-20, torch 2, triton 3, commit 01234567-dirty"

    def git(*words):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    monkeypatch.setenv("FLASHLAB_COMMIT", "from elsewhere")
    assert results.commit(tmp_path) == "from elsewhere"     # a copy that has no history, or a foreign one
    monkeypatch.delenv("FLASHLAB_COMMIT")
    (tmp_path / "flashlab").mkdir()
    (tmp_path / "flashlab/a.py").write_text("1")
    git("init")
    assert results.commit(tmp_path) == "unknown"            # nothing committed yet
    git("add", ".")
    git("commit", "-m", "a")
    (tmp_path / "results.json").write_text("{}")            # a result is not code
    assert results.commit(tmp_path) == git("rev-parse", "HEAD")
    (tmp_path / "flashlab/new.py").write_text("1")
    assert results.commit(tmp_path) == git("rev-parse", "HEAD") + "-dirty"


def test_a_gpus_short_name_and_why_nothing_is_measured(monkeypatch):
    names = {"NVIDIA A100-SXM4-40GB": "a100", "NVIDIA GeForce RTX 4090": "4090", "Graphics": "graphics"}
    assert {name: results.gpu_slug(name) for name in names} == names
    for gpu, interpreted, triton, words in ((False, False, True, "no NVIDIA GPU"), (True, True, True, "unset it"),
                                            (True, False, None, "Triton is not installed"), (True, False, True, "")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
        monkeypatch.setattr(results, "interpreted", lambda: interpreted)
        monkeypatch.setattr(results, "import_triton", lambda: triton)
        assert words in results.why_no_gpu() and bool(words) == bool(results.why_no_gpu())


def test_recorded_runs_are_whole():
    for path in results.ROOT.glob("results/*.json"):
        runs = results.read(path)
        assert len({run["label"] for run in runs}) == len(runs), path.stem
        for run in runs:
            assert run["complete"] and run["provenance"]["commit"] not in ("unknown", ""), (path.stem, run["label"])
            assert path.stem.startswith(run["what"])
            for row in results.measured(run) if run["what"] in PASSES else ():
                assert row["ms_low"] <= row["ms"] <= row["ms_high"] and row["error"] is not None, row
