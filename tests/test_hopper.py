"""The forward Hopper kernel without a Hopper: see hopper_stand_in.py. The table of blocks, and the door to Gluon."""

import itertools
import re
from pathlib import Path

import pytest
import torch

import flashlab  # before triton: it decides whether kernels are interpreted
from flashlab import oracle

pytest.importorskip("flashlab.kernels.launch", reason="triton is not installed (it exists for Linux only)")
pytest.importorskip("triton.experimental.gluon", reason="this Triton has no Gluon")

import hopper_stand_in  # noqa: E402
import triton  # noqa: E402
from hopper_stand_in import WINDOWS, edited, inputs, kernels, packed, poisoned, run  # noqa: E402

from flashlab.kernels import gluon_adapter  # noqa: E402
from flashlab_course.gpu.warps import Mistake  # noqa: E402

TWO = {"keys": 128, "consumers": 2, "stages": 2, "unrolled": False}
THREE = TWO | {"consumers": 3}
FOUR = {"keys": 64, "consumers": 4, "stages": 3, "unrolled": False}
WIDE = TWO | {"keys": 64}


CASES = {
    "d 64": (inputs(640, 640, 64), False, THREE),
    "d 64 causal, three slots": (inputs(640, 640, 64), True, THREE | {"stages": 3}),
    "d 128 causal": (inputs(512, 512, 128), True, TWO),
    "unrolled, an odd and an even number of blocks": (inputs(512, 896, 128), True, TWO | {"unrolled": True}),
    "ragged, shared key heads, batches": (inputs(333, 333, 64, 2, 4, 2), False, THREE),
    "causal, one row and a bit": (inputs(65, 65, 128, 1, 2, 1), True, TWO | {"unrolled": True}),
    "bottom-right, the diagonal crosses blocks": (inputs(301, 700, 64, 1, 2, 2), True, THREE | {"stages": 3}),
    "one query": (inputs(1, 200, 128, 2, 2, 1), True, TWO),
    "four consumers, 64 keys": (inputs(512, 512, 64, 1, 2, 1), True, FOUR),
    "four consumers, 64 keys, ragged, crossing": (inputs(301, 333, 64), True, FOUR),
    "d 80": (inputs(200, 333, 80, 1, 2, 1), True, TWO), "d 40": (inputs(200, 333, 40), False, THREE),
    "d 256": (inputs(300, 333, 256, 1, 2, 1), True, WIDE), "d 192": (inputs(300, 200, 192, 1, 2, 2), False, WIDE),
}


@pytest.mark.parametrize("case", CASES)
def test_warpgroups_take_turns_and_get_it_right(monkeypatch, case):
    """Fails if a ring index, a phase, a count or a mask is wrong: as a deadlock, a wrong value, or a NaN."""
    (Q, K, V, _), causal, choice = CASES[case]
    verdict = oracle.judge(*run(monkeypatch, Q, K, V, causal, choice), Q, K, V, causal=causal)
    assert verdict.ok, str(verdict)


def forgets_phase(at, stages):
    return kernels.words.Position((at.slot + 1) % stages, at.phase)


FREE = "    shared.V.release(at.slot)\n"
EARLY = edited(kernels.forward.step, (FREE, ""), ("    S = wgmma_wait", FREE + "    S = wgmma_wait"))
BROKEN = {
    "a ring's phase": (kernels.words.Position, "following", forgets_phase),
    "no turns for blocks that are passed over": (kernels.pipeline, "pass_over", lambda count, at, *_: at),
    "a slot is free before the product that reads it is done": (kernels.forward, "step", EARLY),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_protocol_is_seen(monkeypatch, name):
    """The stand-in is worth something."""
    monkeypatch.setattr(*BROKEN[name])
    Q, K, V, _ = inputs(640, 640, 64)
    try:
        O, L = run(monkeypatch, Q, K, V, True, THREE)
    except Mistake as error:
        assert "deadlock" in str(error) or "barrier" in str(error)
    else:
        assert not oracle.judge(O, L, Q, K, V, causal=True).ok


# ---- windows and packed sequences

@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("case", WINDOWS)
def test_a_window(monkeypatch, case, more):
    """Fails if a consumer skips a block that it sees, masks none at an edge, or leaves the others waiting."""
    sizes, (left, right) = WINDOWS[case]
    choice = TWO | {"unrolled": more} if sizes[2] == 128 else FOUR if more else THREE
    Q, K, V, _ = inputs(*sizes)
    O, L = run(monkeypatch, Q, K, V, False, choice, left=left, right=right)
    verdict = oracle.judge(O, L, Q, K, V, window=(left, right))
    assert verdict.ok, str(verdict)


def test_a_window_skips_blocks(monkeypatch):
    """Keys that lie in no block of any row's window are never read: NaN there stays there."""
    Q, K, V, _ = inputs(768, 768, 64)
    K[:, :, :256], V[:, :, :256] = torch.nan, torch.nan
    O, L = run(monkeypatch, Q, K, V, False, FOUR, left=128, right=0)
    assert O[:, :, 512:].isfinite().all() and L[:, :, 512:].isfinite().all() and O[:, :, :256].isnan().all()


PACKED = {
    "d 64": (64, THREE, False, None), "d 64 causal, shared key heads": (64, FOUR, True, None),
    "d 128": (128, TWO, False, None), "d 128 causal, unrolled": (128, TWO | {"unrolled": True}, True, None),
    "a window": (64, FOUR, False, (90, 20)), "a window, d 128": (128, TWO, False, (150, 0)),
    "a window, d 192": (192, WIDE, False, (150, 0)), "d 96 causal": (96, TWO, True, None),
}


@pytest.mark.parametrize("poison", [None, 0, 1])
@pytest.mark.parametrize("case", PACKED)
def test_packed_sequences(monkeypatch, case, poison):
    """Each is attended to by itself: NaN in every second sequence stays out of the others."""
    d, choice, causal, window = PACKED[case]
    whole, few, rows = packed(d, window)
    O, L = run(monkeypatch, *poisoned(whole[:3], rows, (0, 1, 1), poison), causal, choice, **few)
    for s, (q, k) in enumerate(rows):
        if poison is None or s % 2 != poison:
            one = (T[:, :, at] for T, at in zip(whole, (q, k, k), strict=False))
            verdict = oracle.judge(O[:, :, q], L[:, :, q], *one, causal=causal, window=window)
            assert verdict.ok, f"sequence {s}: {verdict}"
    rest = rows[-1][0].stop
    assert (O[:, :, rest:] == 0).all() and (L[:, :, rest:] == -torch.inf).all()


def test_a_batch_of_no_sequence(monkeypatch):
    """No row belongs to a sequence: fails if one is left unwritten, or a warp waits for blocks that are not there."""
    (Q, K, V, _), cu = inputs(150, 70, 64, 1, 2, 1), torch.zeros(1, dtype=torch.int32)
    O, L = run(monkeypatch, Q, K, V, False, THREE, cu_seqlens_q=cu, cu_seqlens_k=cu, batch=0)
    assert (O == 0).all() and (L == -torch.inf).all()


TABLES = {
    "as above": hopper_stand_in.LENGTHS[0], "none": [], "one": [300], "only empty ones": [0, 0, 0],
    "whole blocks": [128, 256, 64],
    "more than one look": [int(n) for n in torch.randint(0, 40, (130,), generator=torch.Generator().manual_seed(0))],
}


@pytest.mark.parametrize("lengths", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("rest", [0, 70])
def test_the_table_of_blocks(lengths, rest):
    """Every block of every sequence once, in line, none empty; the rows after the last sequence see nothing."""
    B, others = 64, [n // 2 + 1 for n in lengths]
    cu, other = (torch.tensor([0, *itertools.accumulate(n)], dtype=torch.int32) for n in (lengths, others))
    N = int(cu[-1]) + rest
    table, (kernel, grid, arguments) = kernels.spans.table_of_blocks(cu, other, N, int(other[-1]), B)
    kernel[grid](**arguments)
    expected = [[i, int(cu[s]), n, int(other[s]), others[s], s]
                for s, n in enumerate(lengths) for i in range(-(-n // B))]
    expected += [[i, int(cu[-1]), rest, int(other[-1]), 0, len(lengths)] for i in range(-(-rest // B))]
    assert int(table[0]) == len(expected) and table[1:].view(-1, 6)[:len(expected)].tolist() == expected
    assert (table[1:].view(-1, 6)[len(expected):, [2, 4]] == 0).all(), "blocks that are not there have rows"


@pytest.mark.parametrize("numbers", [[0, 40, 20], [-9, 16, 99], [2**30, 7, -(2**30)], [0, 32, 0, 32, 0, 32]], ids=str)
def test_a_table_from_wrong_numbers_stays_inside(numbers):
    """What a GPU is not asked: numbers that fall, are negative or too large."""
    cu = torch.tensor(numbers, dtype=torch.int32)
    table, (kernel, grid, arguments) = kernels.spans.table_of_blocks(cu, cu, 32, 32, 16)
    guarded = torch.full((len(table) + 60,), -7, dtype=torch.int32)
    kernel[grid](**arguments | {"table": guarded})
    rows = guarded[1:len(table)].view(-1, 6)
    assert 0 <= guarded[0] <= len(rows) and (guarded[len(table):] == -7).all()
    for start, length in ((rows[:, 1], rows[:, 2]), (rows[:, 3], rows[:, 4])):
        assert (start >= 0).all() and (length >= 0).all() and (start + length <= 32).all()
    assert ((rows[:, 5] >= 0) & (rows[:, 5] < len(numbers))).all()


# ---- the door to Gluon


def test_the_adapter_is_the_only_door_to_gluon():
    """Fails if another module of flashlab imports what Triton may rename."""
    package = Path(flashlab.__file__).parent
    private = [path.name for path in package.rglob("*.py")
               if re.search(r"(from|import) triton\.(experimental|_C)", path.read_text())]
    assert private == ["gluon_adapter.py"]


def test_the_adapter_knows_this_version_of_triton():
    """Fails with a new Triton: compile the kernels with it, compare them, and add it to VERSIONS."""
    assert ".".join(triton.__version__.split(".")[:2]) in gluon_adapter.VERSIONS


def test_an_aggregate_with_other_fields_is_another_kernel():
    """Fails if Triton takes a compiled kernel from its cache although an aggregate's fields have changed."""
    keys = []
    for fields in ("slot phase", "phase slot"):
        made = gluon_adapter.aggregate(type("Position", (), {"fields": fields}))
        keys.append([one.cache_key for one in made.hash_attrs])
    assert keys[0] != keys[1]
