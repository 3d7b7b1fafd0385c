"""The run of ring attention in real processes: it is right, and each rank computes and sends what its formulas say.

Chapter 14 starts it by torchrun. Here one process imports PyTorch and forks the ranks.
"""

import json
import subprocess
import sys
from pathlib import Path

import torch

from flashlab.operator import ring
from flashlab_course import ring_check

N, R = 64, 4
RANKS = "from tests.ring_worker import in_ranks, sys; from flashlab_course import ring_check; " \
        "sys.exit(in_ranks(4, lambda rank: ring_check.main()))"


def test_four_processes_note_what_they_compute_and_send(tmp_path):
    log = tmp_path / "ring.json"
    command = [sys.executable, "-c", RANKS, "--N", str(N), "--json", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parent.parent)
    assert done.returncode == 0, done.stderr[-2000:]
    runs = json.loads(log.read_text(encoding="utf-8"))["runs"]
    places = torch.arange(N)[:, None]
    for name, (causal, zigzag) in ring_check.RUNS.items():
        owned = [ring.zigzag_shard(places, r, R) if zigzag else places.chunk(R)[r] for r in range(R)]
        owned = [rows[:, 0] for rows in owned]
        for rank, log in enumerate(runs[name]):
            parts = [ring.part(rank, step, R, N // R, causal=causal, zigzag=zigzag) for step in range(R)]
            assert log["calls"] == [{"queries": owned[rank][part.rows].tolist(), "causal": part.causal,
                                     "keys": owned[part.source][part.keys].tolist()} for part in parts if part]
            assert log["sent"] == list(ring.bytes_sent(R, N // R, ring_check.H_kv, ring_check.d, ring_check.d, 4))
