"""What split_kv_forward has and the ladder has not: any number of splits, chunks that nobody sees, two kernels."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashlab import cost
from flashlab.memory import Memory
from flashlab.oracle import judge
from flashlab.rungs import split_kv
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.split_kv import split_kv_forward
from flashlab_course.player import play, record
from flashlab_course.player.tensors import span_looks

sizes = st.integers(1, 40)


def inputs(N_q, N_k, d=8, d_v=6, dtype=torch.float32):
    g = torch.Generator().manual_seed(0)
    return [torch.randn(n, x, generator=g).to(dtype) for n, x in ((N_q, d), (N_k, d), (N_k, d_v))]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(N_q=sizes, N_k=sizes, splits=st.integers(1, 50), B_r=st.integers(1, 20), B_c=st.integers(1, 12),
       causal=st.booleans(), dtype=st.sampled_from([torch.float16, torch.float32, torch.float64]))
def test_any_number_of_splits_is_right_and_moves_what_the_formula_says(N_q, N_k, splits, B_r, B_c, causal, dtype):
    """A chunk merged twice or dropped, a chunk without a visible key that makes NaN, bytes that nobody counted."""
    Q, K, V = inputs(N_q, N_k, dtype=dtype)
    how = {"splits": splits, "B_r": B_r, "B_c": B_c, "causal": causal}
    with Memory() as mem:
        O, L = split_kv_forward(Q, K, V, **how)
    assert judge(O, L, Q, K, V, causal=causal).ok
    formula = cost.split_kv_forward(N_q, N_k, 8, 6, element_size=dtype.itemsize, **how)
    assert (mem.read, mem.written, mem.matmul_flops) == formula


def test_chunks_are_whole_key_blocks_and_none_is_empty():
    for splits, chunks in ((1, 1), (2, 2), (4, 4), (5, 5), (7, 7), (100, 7)):
        with Memory() as mem:
            split_kv_forward(*inputs(1, 100), splits=splits, B_c=16)
        assert sum(event.name == "O_part" and event.kind == "store" for event in mem.log) == chunks
        keys = [event.rows for event in mem.log if event.name == "K"]
        assert keys == [(n, min(n + 16, 100)) for n in range(0, 100, 16)], "every key once, in whole blocks"


def test_programs_do_not_know_of_one_another(monkeypatch):
    """Chunks in any order give the same bits: on a GPU they run at the same time."""
    Q, K, V = inputs(3, 60)
    O, L = split_kv_forward(Q, K, V, splits=5, B_c=8)
    program, merge, calls = split_kv._program, split_kv._merge, []

    def all_programs_then_merge(*call):
        for one in reversed(calls):
            program(*one)
        merge(*call)

    monkeypatch.setattr(split_kv, "_program", lambda *call: calls.append(call))
    monkeypatch.setattr(split_kv, "_merge", all_programs_then_merge)
    O_reversed, L_reversed = split_kv_forward(Q, K, V, splits=5, B_c=8)
    assert torch.equal(O, O_reversed) and torch.equal(L, L_reversed)


def test_bad_splits_are_named():
    for splits, error in ((0, ValueError), (-1, ValueError), (1.5, TypeError), (None, TypeError)):
        with pytest.raises(error, match="splits must be an integer >= 1"):
            split_kv_forward(*inputs(2, 5), splits=splits)


def test_the_player_shows_what_the_chunks_leave():
    """Below the grid, a row for each chunk: stored by its program, loaded by the merge."""
    recording = record(split_kv_forward, *inputs(1, 16, d=4, d_v=4), splits=2, B_r=1, B_c=4, sram_bytes=1024)
    assert not any(step.tile for step in recording.steps if step.phase == "merge"), "tiles of the kernel before"
    assert list(span_looks(recording, "O_part")) == [((0, 1), (0, 4)), ((1, 2), (0, 4))]
    assert list(span_looks(recording, "L_part")) == [((0, 1), ()), ((1, 2), ())]
    names = {item.text: item for item in play(recording).scenes[0].items if "name" in item.look}
    assert names["O_part"].y > names["K"].y and names["L_part"].x > names["O_part"].x
    recording = record(fa2_forward, *inputs(1, 16, d=4, d_v=4), B_r=1, B_c=4, sram_bytes=1024)
    assert not {"O_part", "L_part"} & {item.text for item in play(recording).scenes[0].items if "name" in item.look}
