"""Ring attention: 2 and 4 processes over gloo against float64, calls wrong on some rank, ranks that are gone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flashlab.operator.ring import bytes_sent, merge, part, ring_attention, zigzag_shard, zigzag_unshard
from tests.ring_worker import CASES

ROOT = Path(__file__).resolve().parent.parent
REFUSALS = {
    "unequal": "Q must be alike on all ranks, got (1, 2, 8, 16) float32 on rank 0, (1, 2, 6, 16) float32 on rank 2",
    "other dtype": "got (1, 2, 8, 16) float32 on rank 0, (1, 2, 8, 16) float64 on rank 1",
    "other options": "ValueError: causal must be alike on all ranks, got False on rank 0, True on rank 3",
    "one wrong argument": "V must have K's sizes (1, 2, 8) before its last dimension",
    "not a tensor": "Q must be a torch.Tensor, got 'Q' (str)",
    "gradients on some": "ValueError: gradients must be alike on all ranks, got True on rank 0, False on rank 1",
    "odd": "ValueError: Q must have an even number of rows, two chunks as zigzag_shard gives, got a float32 tensor",
    "fewer keys": "ValueError: K must have as many rows as Q where causal, 8, got a float32 tensor of shape (1, 2, 6",
    "backend": "ValueError: backend must be one of auto, triton, torch or the name of a kernel, got 'best'",
    "heads": "ValueError: Q must have a number of heads that 4 ranks divide",
    "and after all that": "no error",
}


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """What four processes wrote down, {rank: found}. They start once, and rank 3 deserts at the end."""
    out = tmp_path_factory.mktemp("ring")
    run = subprocess.run([sys.executable, "-m", "tests.ring_worker", out], capture_output=True, text=True, timeout=180,
                         cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)})
    found = {rank: json.loads(file.read_text()) for rank in range(3) if (file := out / f"{rank}.json").exists()}
    assert len(found) == 3, run.stderr
    return found


@pytest.mark.parametrize("name", CASES)
def test_within_the_error_bound(four, name):
    ranks = range(min(CASES[name][0], 3))
    assert [four[rank]["cases"][name] for rank in ranks] == [None for _ in ranks]


@pytest.mark.parametrize("name", REFUSALS)
def test_all_ranks_are_told_what_is_wrong_on_one(four, name):
    assert [REFUSALS[name] in four[rank]["refusals"][name] for rank in range(3)] == [True] * 3


def test_the_rank_at_fault_is_named(four):
    told = [four[rank]["refusals"]["one wrong argument"] for rank in range(3)]
    assert told[0].startswith("ValueError: ring_attention was called wrongly on rank 1, so rank 0 stops too: V must")
    assert told[1].startswith("ValueError: V must")
    assert four[1]["refusals"]["not a tensor"].startswith("TypeError")


def test_a_rank_that_is_gone_leaves_nobody_waiting(four):
    """Rank 3 dies, and ranks 0 and 1 miss a block; before that rank 2 did not call within the group's timeout."""
    for rank in (0, 1):
        gone, absent = four[rank]["deserted"], four[rank]["absent"]
        assert gone.startswith(f"RuntimeError: ring_attention on rank {rank} in step ") and "process has ended" in gone
        assert absent.startswith(f"RuntimeError: ring_attention on rank {rank} before the first step: no message")
    assert "no message to rank 1 or from rank 3" in four[0]["deserted"]


def test_a_second_derivative_and_a_group_of_others_are_refused(four):
    assert four[0]["twice"].startswith("RuntimeError")
    assert four[2]["outside"].startswith("ValueError: group must be one that this process is in, global rank 2 is not")


def test_without_a_process_group_it_says_what_to_do():
    X = torch.randn(1, 1, 4, 16)
    with pytest.raises(RuntimeError, match="init_process_group first, in processes that torchrun starts"):
        ring_attention(X, X, X)


@pytest.mark.parametrize("causal, zigzag", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_the_parts_make_up_the_scores_each_once(world, causal, zigzag):
    n, N = 6, 6 * world
    where, times = torch.arange(N)[:, None], torch.zeros(N, N, dtype=torch.int)
    owned = [zigzag_shard(where, r, world)[:, 0] if zigzag else where[r * n:(r + 1) * n, 0] for r in range(world)]
    for rank in range(world):
        for step in range(world):
            if mine := part(rank, step, world, n, causal=causal, zigzag=zigzag):
                rows, keys = owned[rank][mine.rows], owned[mine.source][mine.keys]
                seen = torch.ones(len(rows), len(keys), dtype=torch.int)
                times[rows[:, None], keys] += seen.tril() if mine.causal else seen
    once = torch.ones_like(times)
    assert torch.equal(times, once.tril() if causal else once)


def test_zigzag_parts_are_equal_work_after_the_first_step():
    def work(rank, step, zigzag):
        mine = part(rank, step, 8, 12, causal=True, zigzag=zigzag)
        return len(range(12)[mine.rows]) * len(range(12)[mine.keys]) if mine else 0

    assert {work(rank, step, True) for rank in range(8) for step in range(1, 8)} == {72}
    assert [sum(work(rank, step, False) for step in range(8)) for rank in (0, 7)] == [144, 8 * 144]


def test_a_query_that_meets_no_key_stays_empty():
    """-inf − -inf is NaN; and a block without a visible key leaves what was there."""
    O, L = torch.tensor([[0.0], [2.0], [0.0]]), torch.tensor([-torch.inf, 1.0, -torch.inf])
    merge(O, L, torch.tensor([[0.0], [0.0], [3.0]]), torch.tensor([-torch.inf, -torch.inf, 2.0]))
    assert O[:, 0].tolist() == [0, 2, 3] and L.tolist() == [-torch.inf, 1, 2]


def test_what_is_sent():
    assert bytes_sent(1, 8, 2, 16, 16, 2) == (0, 0)
    assert bytes_sent(4, 8, 2, 16, 24, 2) == (3 * 8 * 2 * 40 * 2, 3 * 8 * 2 * 40 * 2 + 4 * 8 * 2 * 40 * 4)


def test_zigzag_shards_come_together_again():
    X = torch.randn(2, 3, 24, 5)
    assert torch.equal(zigzag_unshard([zigzag_shard(X, r, 4) for r in range(4)]), X)
    assert zigzag_shard(torch.arange(16), 1, 4, dim=0).tolist() == [2, 3, 12, 13]
    tokens = torch.arange(16).view(2, 8)
    assert torch.equal(zigzag_unshard([zigzag_shard(tokens, r, 2, dim=1) for r in range(2)], dim=1), tokens)


def test_a_length_that_does_not_divide_is_named():
    with pytest.raises(ValueError, match="X must have a length N that 2 x 4 chunks divide, .* got N = 20"):
        zigzag_shard(torch.randn(20, 3), 0, 4)
    with pytest.raises(ValueError, match=r"rank must lie in 0 to 3, as world is 4, got 4"):
        zigzag_shard(torch.randn(16, 3), 4, 4)
