"""The Hopper kernel without a Hopper: warpgroups are Python threads, and their barriers tell a deadlock from a long wait."""

import itertools

import pytest
import torch

from flashlab import oracle

pytest.importorskip("flashlab.kernels.launch", reason="triton is not installed (it exists for Linux only)")
pytest.importorskip("triton.experimental.gluon", reason="this Triton has no Gluon")

import hopper_stand_in  # noqa: E402
from hopper_stand_in import edited, kernels  # noqa: E402

TWO = {"keys": 128, "consumers": 2, "stages": 2, "unrolled": False}
THREE = TWO | {"consumers": 3}
FOUR = {"keys": 64, "consumers": 4, "stages": 3, "unrolled": False}


def inputs(N_q, N_k, d, B=1, H_q=1, H_kv=1):
    g = torch.Generator().manual_seed(N_q)
    sizes = (N_q, H_q), (N_k, H_kv), (N_k, H_kv)
    return [torch.randn(B, N, H, d, generator=g).to(torch.bfloat16).transpose(1, 2) for N, H in sizes]


CASES = {
    "d 64": (inputs(640, 640, 64), False, THREE),
    "d 64 causal, three slots": (inputs(640, 640, 64), True, THREE | {"stages": 3}),
    "d 128": (inputs(512, 512, 128), False, TWO),
    "d 128 causal": (inputs(512, 512, 128), True, TWO),
    "unrolled, an odd and an even number of blocks": (inputs(512, 896, 128), True, TWO | {"unrolled": True}),
    "ragged, shared key heads, batches": (inputs(333, 333, 64, 2, 4, 2), False, THREE),
    "causal, one row and a bit": (inputs(65, 65, 128, 1, 2, 1), True, TWO | {"unrolled": True}),
    "bottom-right, the diagonal crosses blocks": (inputs(301, 700, 64, 1, 2, 2), True, THREE | {"stages": 3}),
    "bottom-right, crossing, unrolled": (inputs(333, 690, 128), True, TWO | {"unrolled": True}),
    "one query": (inputs(1, 200, 128, 2, 2, 1), True, TWO),
    "few keys": (inputs(200, 7, 64), False, THREE),
    "four consumers, 64 keys": (inputs(512, 512, 64, 1, 2, 1), True, FOUR),
    "four consumers, 64 keys, ragged, crossing": (inputs(301, 333, 64), True, FOUR),
    "three consumers, 64 keys": (inputs(333, 333, 64), True, THREE | {"keys": 64, "stages": 3}),
}


@pytest.mark.parametrize("case", CASES)
def test_warpgroups_take_turns_and_get_it_right(monkeypatch, case):
    """Fails if a ring index, a parity, a count or a mask is wrong: as a deadlock, a wrong value, or a NaN that nobody overwrote."""
    (Q, K, V), causal, choice = CASES[case]
    verdict = oracle.judge(*hopper_stand_in.run(monkeypatch, Q, K, V, causal, choice), Q, K, V, causal=causal)
    assert verdict.ok, str(verdict)


def forgets_phase(at, stages):
    return kernels.words.Position((at.slot + 1) % stages, at.phase)


EARLY = ("    shared.V.release(at.slot)\n", ""), ("    S = warpgroup_mma_wait", "    shared.V.release(at.slot)\n    S = warpgroup_mma_wait")
BROKEN = {
    "a ring's phase": (kernels.words.Position, "following", forgets_phase),
    "no turns for blocks that are passed over": (kernels.pipeline, "pass_over", lambda count, at, *_: at),
    "a slot is free before the product that reads it is done": (kernels.forward, "step", edited(kernels.forward.step, *EARLY)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_protocol_is_seen(monkeypatch, name):
    """The stand-in is worth something."""
    monkeypatch.setattr(hopper_stand_in, "PATIENCE", 1)
    monkeypatch.setattr(*BROKEN[name])
    Q, K, V = inputs(640, 640, 64)
    try:
        O, L = hopper_stand_in.run(monkeypatch, Q, K, V, True, THREE)
    except AssertionError as error:
        assert "deadlock" in str(error) or "barrier" in str(error)
    else:
        assert not oracle.judge(O, L, Q, K, V, causal=True).ok


# ---- windows and packed sequences

WINDOWS = {
    "d 64, whole blocks": (inputs(700, 700, 64), (256, 0), THREE),
    "d 128, edges within blocks": (inputs(520, 520, 128, 1, 2, 1), (200, 30), TWO),
    "unrolled": (inputs(700, 700, 128), (390, 17), TWO | {"unrolled": True}),
    "one key a row": (inputs(200, 200, 64), (0, 0), FOUR),
    "narrower than a block": (inputs(333, 333, 64), (20, 3), FOUR),
    "no limit at the left": (inputs(300, 333, 128), (333, 40), TWO),
    "no limit at the right": (inputs(300, 333, 64), (33, 300), THREE | {"keys": 64}),
    "rows that see no key": (inputs(500, 77, 64, 1, 2, 2), (30, 9), FOUR),
    "bottom-right, wide": (inputs(130, 900, 128), (500, 100), TWO | {"unrolled": True}),
}


@pytest.mark.parametrize("case", WINDOWS)
def test_a_window(monkeypatch, case):
    """Fails if a consumer skips a block that it sees, masks none at an edge, or leaves the others waiting for its turn."""
    (Q, K, V), (left, right), choice = WINDOWS[case]
    O, L = hopper_stand_in.run(monkeypatch, Q, K, V, False, choice, {"left": left, "right": right})
    verdict = oracle.judge(O, L, Q, K, V, window=(left, right))
    assert verdict.ok, str(verdict)


def test_a_window_skips_blocks(monkeypatch):
    """Keys that lie in no block of any row's window are never read: NaN there stays there."""
    Q, K, V = inputs(768, 768, 64)
    K[:, :, :256], V[:, :, :256] = torch.nan, torch.nan
    O, L = hopper_stand_in.run(monkeypatch, Q, K, V, False, FOUR, {"left": 128, "right": 0})
    assert O[:, :, 512:].isfinite().all() and L[:, :, 512:].isfinite().all() and O[:, :, :256].isnan().all()


LENGTHS = [130, 1, 0, 64, 200, 9], [70, 300, 64, 0, 200, 128]                      # queries, keys
PACKED = {
    "d 64": (64, THREE, False, None), "d 64 causal, shared key heads": (64, FOUR, True, None),
    "d 128": (128, TWO, False, None), "d 128 causal, unrolled": (128, TWO | {"unrolled": True}, True, None),
    "a window": (64, FOUR, False, (90, 20)), "a window, d 128": (128, TWO, False, (150, 0)),
}


def packed(T_q, T_k, d):
    return inputs(T_q, T_k, d, 1, 2, 1)


@pytest.mark.parametrize("alone", range(-1, len(LENGTHS[0])))
@pytest.mark.parametrize("case", PACKED)
def test_packed_sequences(monkeypatch, case, alone):
    """Each is attended to by itself: where all but one hold NaN, that one comes out as ever. -1: none of them does."""
    d, choice, causal, window = PACKED[case]
    cu_q, cu_k = (torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32) for lengths in LENGTHS)
    Q, K, V = packed(int(cu_q[-1]) + 30, int(cu_k[-1]) + 9, d)                     # some rows more than the sequences have
    whole = [T.clone() for T in (Q, K, V)]
    if alone >= 0:
        for T, cu in ((Q, cu_q), (K, cu_k), (V, cu_k)):
            T[:, :, :cu[alone]], T[:, :, cu[alone + 1]:] = torch.nan, torch.nan
    few = {"cu_seqlens_q": cu_q, "cu_seqlens_k": cu_k, "batch": len(LENGTHS[0])}
    few |= {"left": window[0], "right": window[1]} if window else {}
    O, L = hopper_stand_in.run(monkeypatch, Q, K, V, causal, choice, few)
    for s in range(len(LENGTHS[0])) if alone < 0 else [alone]:
        q, k = slice(cu_q[s], cu_q[s + 1]), slice(cu_k[s], cu_k[s + 1])
        verdict = oracle.judge(O[:, :, q], L[:, :, q], *(T[:, :, rows] for T, rows in zip(whole, (q, k, k), strict=True)),
                               causal=causal, window=window)
        assert verdict.ok, f"sequence {s}: {verdict}"
    assert (O[:, :, cu_q[-1]:] == 0).all() and (L[:, :, cu_q[-1]:] == -torch.inf).all()


TABLES = {
    "as above": LENGTHS[0], "one": [300], "only empty ones": [0, 0, 0], "whole blocks": [128, 256, 64],
    "more than one look": [int(n) for n in torch.randint(0, 90, (300,), generator=torch.Generator().manual_seed(0))],
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
    expected = [[i, int(cu[s]), n, int(other[s]), others[s], s] for s, n in enumerate(lengths) for i in range(-(-n // B))]
    expected += [[i, int(cu[-1]), rest, int(other[-1]), 0, len(lengths)] for i in range(-(-rest // B))]
    assert int(table[0]) == len(expected) and table[1:].view(-1, 6)[:len(expected)].tolist() == expected
    assert (table[1:].view(-1, 6)[len(expected):, [2, 4]] == 0).all(), "blocks that are not there have rows"


@pytest.mark.parametrize("numbers", [[0, 40, 20], [-9, 16, 99], [5, 2, 1], [2**30, 7, -(2**30)], [0, 32, 0, 32, 0, 32, 0]], ids=str)
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
