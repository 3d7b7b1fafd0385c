"""The bench of rings, on two processes over gloo: what it writes, and that it refuses a ring that is wrong."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from flashlab_course.bench import ring as bench
from flashlab_course.bench.ring import Case, Team

ROOT = Path(__file__).resolve().parent.parent
SMALL = ["--device", "cpu", "--H", "1", "--head-dim", "16", "--dtype", "float32"]
SPOILT = """
import flashlab.operator.ring as ring
whole = ring.part
ring.part = lambda rank, step, *sizes, **options: whole(rank, step, *sizes, **options) if rank == 0 or step == 0 else None
from flashlab_course.bench.ring import main
main({arguments!r})
"""


def two(*words):
    """(exit status, output) of two processes that run Python with these words."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                        "WORLD_SIZE": "2"}
    started = [subprocess.Popen([sys.executable, *words], cwd=ROOT, env=env | {"RANK": str(rank)}, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(2)]
    said = []
    for process in started:
        try:
            said.append(process.communicate(timeout=120)[0])
        except subprocess.TimeoutExpired:
            process.kill()
            said.append(f"did not end\n{process.communicate()[0]}")
    return max(abs(process.returncode) for process in started), "\n".join(said)


def test_a_run_writes_rows_that_were_checked(tmp_path):
    out = tmp_path / "ring_x.json"
    status, said = two("-m", "flashlab_course.bench.ring", *SMALL, "--N", "64", "--out", str(out))
    assert status == 0, said
    results = json.loads(out.read_text())
    assert results["what"] == "ring" and results["complete"] and "flashlab_course.bench.ring" in results["provenance"]["command"]
    rows = {(row["mode"], row["passes"], row["ranks"]): row for row in results["rows"]}
    both = [(mode, passes, ranks) for mode in ("all", "causal, zig-zag") for passes in bench.PASSES for ranks in (1, 2)]
    assert set(rows) == {*both, ("causal, in order", "forward", 2)}
    for (_, _, ranks), row in rows.items():
        assert row["ms"] > 0 and row["error"] <= row["bound"] and row["speedup"] > 0 and row["peak_bytes"] > 0
        assert ranks == 1 or (row["compute_ms"] > 0 and row["send_ms"] > 0 and 0 <= row["hidden"] <= 1)
    alone, slow = rows["causal, zig-zag", "forward", 1]["ms"], rows["causal, in order", "forward", 2]
    assert slow["speedup"] == pytest.approx(alone / slow["ms"], abs=1e-3)  # for one GPU every order is the same


def test_a_ring_that_is_wrong_is_not_timed():
    """One rank leaves out what it should have computed in the second step."""
    arguments = [*SMALL, "--N", "64", "--modes", "all"]
    status, said = two("-c", SPOILT.format(arguments=arguments))
    assert status and "refused: Case(N=64" in said and "on 2 ranks is wrong" in said, said


def test_chunks_are_those_of_the_ring(monkeypatch):
    monkeypatch.setattr(bench.dist, "get_rank", lambda: 1)
    owned = {(ranks, mode): Team(ranks, 8, None, None, None).chunks(mode) for ranks in (2, 4) for mode in bench.MODES}
    assert owned[4, "causal, zig-zag"] == [1, 6] and owned[2, "causal, zig-zag"] == [2, 3, 4, 5]
    assert owned[4, "causal, in order"] == owned[4, "all"] == [2, 3] and owned[2, "all"] == [4, 5, 6, 7]


def test_flops_count_what_is_visible():
    of = {(mode, passes): Case(64, 2, 16, mode, passes, "float32").flops for mode in bench.MODES for passes in bench.PASSES}
    assert of["all", "forward"] == 4 * 2 * 64 * 64 * 16 and of["all", "forward+backward"] == 3.5 * of["all", "forward"]
    assert 0.5 <= of["causal, zig-zag", "forward"] / of["all", "forward"] < 0.51


@pytest.mark.parametrize("arguments, env, words", [
    ([], {}, "torchrun starts it"),
    (["--N", "100"], {"RANK": "0", "WORLD_SIZE": "8"}, "--N must be a multiple of 16, two chunks for each rank, got 100"),
    ([], {"RANK": "0", "WORLD_SIZE": "3"}, "it wants 1, 2, 4 or 8 processes, got 3")])
def test_what_cannot_be_measured_is_said(arguments, env, words, monkeypatch, capsys):
    monkeypatch.delenv("RANK", raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        bench.arguments(arguments)
    assert words in capsys.readouterr().err
