"""The backward Hopper kernel without a Hopper: warpgroups are Python threads, see hopper_stand_in.py."""

import itertools

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab.oracle import attention, judge_gradients
from flashlab.triton_mode import interpreted

pytest.importorskip("flashlab.kernels.launch", reason="triton is not installed (it exists for Linux only)")
pytest.importorskip("triton.experimental.gluon", reason="this Triton has no Gluon")
pytestmark = [pytest.mark.skipif(not interpreted(), reason="the kernels around it are interpreted"),
              pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")]     # numpy's, of exp2 of what a mask then hides

import hopper_stand_in  # noqa: E402
from hopper_stand_in import edited, kernels  # noqa: E402

from flashlab.kernels import groups  # noqa: E402

TWO, THREE = {"consumers": 2, "stages": 3}, {"consumers": 3, "stages": 4}


def inputs(N_q, N_k, d, B=1, H_q=1, H_kv=1, logits=1):
    g = torch.Generator().manual_seed(N_q)
    sizes = (N_q, H_q), (N_k, H_kv), (N_k, H_kv), (N_q, H_q)
    Q, K, V, dO = (torch.randn(B, N, H, d, generator=g).to(torch.float16).transpose(1, 2) for N, H in sizes)
    return Q * logits, K, V, dO


def run(monkeypatch, tensors, causal, choice, scale=None, **options):
    Q, K, V, dO = tensors
    O, L = attention(Q, K, V, causal=causal, scale=scale)
    grads = hopper_stand_in.run_backward(monkeypatch, Q, K, V, O.to(Q.dtype), dO, L.float(), causal, choice, scale, **options)
    return judge_gradients(*grads, Q, K, V, dO, causal=causal, scale=scale)


CASES = {
    "d 64": (inputs(384, 384, 64), False, TWO),
    "d 128 causal": (inputs(384, 384, 128), True, TWO),
    "three consumers, causal": (inputs(384, 384, 64), True, THREE),
    "ragged": (inputs(200, 333, 64), False, TWO),
    "ragged, three consumers, batches, shared key heads": (inputs(100, 250, 64, 2, 4, 2), False, THREE),
    "causal, one row and a bit, shared key heads": (inputs(65, 65, 128, 1, 3, 1), True, TWO),
    "bottom-right, the diagonal crosses tiles": (inputs(301, 444, 64, 1, 2, 2), True, TWO),
    "bottom-right, three consumers": (inputs(130, 390, 64), True, THREE),
    "heads of a group shared out, causal": (inputs(150, 150, 64, 2, 8, 1), True, TWO),
    "heads of a group shared out": (inputs(70, 190, 128, 1, 6, 1), False, TWO),
    "rows that see no key": (inputs(300, 70, 64), True, TWO),
    "one query": (inputs(1, 200, 128, 2, 2, 1), True, TWO),
    "few keys": (inputs(200, 7, 64), False, THREE),
    "large logits": (inputs(128, 128, 64, logits=60), True, TWO),
}


@pytest.mark.parametrize("case", CASES)
def test_warpgroups_take_turns_and_get_it_right(monkeypatch, case):
    """Fails if a ring index, a parity, a count, a mask or the order of dQ is wrong: as a deadlock, a wrong value, or a NaN."""
    tensors, causal, choice = CASES[case]
    verdict = run(monkeypatch, tensors, causal, choice)
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize("programs, group, enough, parts", [
    (256, 8, 528, 4), (2048, 1, 528, 1), (10, 6, 528, 2), (528, 8, 528, 1), (1, 8, 528, 8)])
def test_a_group_is_shared_out_until_there_are_enough_programs(programs, group, enough, parts):
    assert groups.how_many_parts(programs, group, enough) == parts


@pytest.mark.parametrize("case, parts", [
    ("heads of a group shared out, causal", 8), ("heads of a group shared out", 2), ("d 64", 1)])
def test_parts_have_memory_of_their_own(case, parts):
    """Fails if the cases above do not share out what they say, or two programs write the same dK."""
    (Q, K, V, dO), causal, _ = CASES[case]
    launches = kernels.backward.launch(Q, K, V, Q, dO, Q[..., 0].float(), None, Q, K, V, causal=causal, scale=1.0)
    main = next(arguments for kernel, _, arguments in launches if kernel is kernels.backward.hopper_backward_kernel)
    assert main["parts"] == parts and main["dK"].base.shape[1] == main["H_kv"] == K.shape[1] * parts
    assert main["group"] * main["H_kv"] == Q.shape[1] and (launches[-1][0] is groups.add_parts_kernel) == (parts > 1)


@pytest.mark.parametrize("scale", [0.0, -0.3])
def test_scale(monkeypatch, scale):
    """Fails if a hidden score is scaled to plus infinity, or to NaN."""
    verdict = run(monkeypatch, inputs(70, 70, 64), True, TWO, scale=scale)
    assert verdict.ok, str(verdict)


def test_scores_far_below_zero(monkeypatch):
    """Every L is about -600: a key past the end, whose score is 0, must not come into dQ as exp(0 + 600) * 0."""
    Q, K, V, dO = inputs(100, 100, 64)
    verdict = run(monkeypatch, (Q.abs() * 5, -K.abs() * 5, V, dO), False, TWO)
    assert verdict.ok, str(verdict)


def test_any_strides(monkeypatch):
    """Fails if what TMA cannot read is not copied: columns that are no neighbours, a scalar that was expanded."""
    Q, K, V, dO = inputs(65, 65, 64, 1, 2, 1)
    tensors = Q.mT.contiguous().mT, torch.cat([K, K], -1)[..., 1:65], V, dO[..., :1, :1].expand_as(dO)
    verdict = run(monkeypatch, tensors, True, TWO)
    assert verdict.ok, str(verdict)


# ---- the same bits each time


@pytest.mark.parametrize("case", ["d 64", "ragged, three consumers, batches, shared key heads", "bottom-right, three consumers",
                                  "rows that see no key", "d 128 causal", "heads of a group shared out, causal"])
def test_in_order_every_tile_has_each_turn_once(monkeypatch, case):
    """Fails if two programs have the same turn at a tile, or one is nobody's: the adders would wait for ever."""
    tensors, causal, choice = CASES[case]
    turns = {}
    noted = lambda number, value, seen: turns.setdefault(int(number.at), []).append(int(value))
    monkeypatch.setattr(kernels.backward_pipeline, "wait_for", noted)
    verdict = run(monkeypatch, tensors, causal, choice, ordered=True)
    assert verdict.ok, str(verdict)
    assert all(sorted(of_a_tile) == list(range(len(of_a_tile))) for of_a_tile in turns.values())
    assert max(map(len, turns.values())) == -(-tensors[1].shape[2] // (64 * choice["consumers"]))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("N_q, N_k", [(1024, 1024), (300, 9000), (9000, 300), (16384, 16384), (10000, 20000), (64, 40000)])
@pytest.mark.parametrize("consumers", [2, 3])
def test_nobody_waits_for_ever(monkeypatch, N_q, N_k, causal, consumers):
    """A GPU that runs TOGETHER programs at a time and starts them in the order of their numbers gets through, heads and all.

    And in order costs little: where there are no more blocks than that, nearly every adder finds that it is its turn.
    """
    module, block = kernels.backward_pipeline, 64 * consumers
    together, blocks, heads, done, waited, steps = module.TOGETHER, -(-N_k // block), 3, {}, 0, 0
    sizes = module.Sizes(N_q, N_k, blocks, 1, 1, None, None, None, 0, 1, 1, consumers, block, 0, causal, causal, True)
    waiting, running = [], {}
    for program in range(heads * blocks):
        monkeypatch.setattr(hopper_stand_in, "MACHINE", hopper_stand_in.Machine(program, heads * blocks))
        waiting.append(module.block_of(sizes))
    assert sorted((one.head, one.j) for one in waiting) == [(head, j) for head in range(heads) for j in range(blocks)]
    while waiting or running:
        while waiting and len(running) < together:
            running[waiting.pop(0)] = 0
        moved = False
        for one, k in sorted(running.items(), key=lambda item: (item[0].head, item[0].j)):
            if k >= one.end - one.first:
                del running[one]
                moved = True
                continue
            n = module.round_at(k, one.j, one.first, one.end, causal, True)
            mine = module.turn(one.j, n, N_q, N_k, one.end, causal, block)
            assert mine >= done.get((one.head, n), 0), "its turn is over"
            steps += 1
            if done.get((one.head, n), 0) == mine:
                running[one], moved = k + 1, True
            else:
                waited += 1
        for one, k in running.items():                 # what was added in this round of steps, the next one sees
            if k:
                n = module.round_at(k - 1, one.j, one.first, one.end, causal, True)
                turn = module.turn(one.j, n, N_q, N_k, one.end, causal, block)
                done[one.head, n] = max(done.get((one.head, n), 0), turn + 1)
        assert moved, "everybody waits"
    if N_q == N_k and blocks <= together:
        assert waited <= 0.1 * steps


# ---- windows and packed sequences

WINDOWS = {
    "d 64, whole blocks": (inputs(640, 640, 64), (256, 0), TWO),
    "d 128, edges within blocks": (inputs(450, 450, 128, 1, 2, 1), (200, 30), TWO),
    "three consumers": (inputs(700, 700, 64), (300, 17), THREE),
    "one key a row": (inputs(200, 200, 64), (0, 0), TWO),
    "narrower than a tile": (inputs(333, 333, 64), (20, 3), TWO),
    "no limit at the left": (inputs(300, 333, 128), (333, 40), TWO),
    "no limit at the right": (inputs(300, 333, 64), (33, 300), TWO),
    "rows that see no key": (inputs(500, 77, 64, 1, 2, 2), (30, 9), TWO),
    "keys that no row sees": (inputs(130, 900, 128, 1, 2, 1), (100, 10), TWO),
}


@pytest.mark.parametrize("case", WINDOWS)
def test_a_window(monkeypatch, case):
    """Fails if a query tile is left out that sees the keys, if none is masked at an edge, or if producer and consumers disagree."""
    (Q, K, V, dO), (left, right), choice = WINDOWS[case]
    O, L = attention(Q, K, V, window=(left, right))
    grads = hopper_stand_in.run_backward(monkeypatch, Q, K, V, O.to(Q.dtype), dO, L.float(), False, choice,
                                         few={"left": left, "right": right})
    verdict = judge_gradients(*grads, Q, K, V, dO, window=(left, right))
    assert verdict.ok, str(verdict)


def test_a_window_skips_tiles(monkeypatch):
    """Queries from 512 on see no key before 384: NaN in those queries stays out of the first 256 keys' gradients."""
    Q, K, V, dO = inputs(768, 768, 64)
    O, L = attention(Q, K, V, window=(128, 0))
    Q[:, :, 512:], dO[:, :, 512:] = torch.nan, torch.nan
    few = {"left": 128, "right": 0}
    dQ, dK, dV = hopper_stand_in.run_backward(monkeypatch, Q, K, V, O.to(Q.dtype), dO, L.float(), False, TWO, few=few)
    assert all(T[:, :, :256].isfinite().all() and T[:, :, 512:].isnan().any() for T in (dQ, dK, dV))


LENGTHS = [130, 1, 0, 64, 200, 9], [70, 300, 64, 0, 200, 128]                      # queries, keys
PACKED = {
    "d 64": (64, TWO, False, None), "d 64 causal": (64, TWO, True, None), "three consumers": (64, THREE, False, None),
    "d 128 causal": (128, TWO, True, None), "a window": (64, TWO, False, (90, 20)), "a window, d 128": (128, TWO, False, (150, 0)),
}


@pytest.mark.parametrize("alone", range(-1, len(LENGTHS[0])))
@pytest.mark.parametrize("case", PACKED)
def test_packed_sequences(monkeypatch, case, alone):
    """Each has its own gradients: where all but one hold NaN, that one's come out as ever. -1: none of them does."""
    d, choice, causal, window = PACKED[case]
    cu_q, cu_k = (torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32) for lengths in LENGTHS)
    Q, K, V, dO = inputs(int(cu_q[-1]) + 30, int(cu_k[-1]) + 9, d, 1, 2, 1)        # some rows more than the sequences have
    O, L = torch.zeros_like(Q), torch.full(Q.shape[:3], -torch.inf)
    parts = [(slice(*cu_q[s:s + 2]), slice(*cu_k[s:s + 2])) for s in range(len(LENGTHS[0]))]
    for q, k in parts:
        O[:, :, q], L[:, :, q] = attention(Q[:, :, q], K[:, :, k], V[:, :, k], causal=causal, window=window)
    whole = [T.clone() for T in (Q, K, V, dO)]
    if alone >= 0:
        for T, rows in ((Q, 0), (K, 1), (V, 1), (dO, 0), (O, 0), (L, 0)):
            mine = parts[alone][rows]
            T[:, :, :mine.start], T[:, :, mine.stop:] = torch.nan, torch.nan
    few = {"cu_seqlens_q": cu_q, "cu_seqlens_k": cu_k, "batch": len(LENGTHS[0])}
    few |= {"left": window[0], "right": window[1]} if window else {}
    grads = hopper_stand_in.run_backward(monkeypatch, Q, K, V, O, dO, L, causal, choice, few=few)
    for s, (q, k) in enumerate(parts):
        if alone in (-1, s):
            one = [T[:, :, rows] for T, rows in zip(whole, (q, k, k, q), strict=True)]
            verdict = judge_gradients(*(T[:, :, rows] for T, rows in zip(grads, (q, k, k), strict=True)), *one, causal=causal,
                                      window=window)
            assert verdict.ok, f"sequence {s}: {verdict}"
    if alone < 0:
        assert all((T[:, :, cu[-1]:] == 0).all() for T, cu in zip(grads, (cu_q, cu_k, cu_k), strict=True))


# ---- a broken protocol is seen


BACK, PIPELINE = kernels.backward, kernels.backward_pipeline
SLEEP, FREE = "        __import__('time').sleep(0.01)\n", "        arrive(slot + SLOT_FREE, consumers * 128 + 32)\n"
WAIT = "        dK, dV = warpgroup_mma_wait(0, deps=[dK, dV])\n"
BROKEN = {
    "a ring's phase": [(kernels.words.Position, "following",
                        lambda at, stages: kernels.words.Position((at.slot + 1) % stages, at.phase))],
    "the owner does not wait": [(BACK, "step", edited(BACK.step, ("sync(DS_READY + owner", "arrive(DS_READY + owner")))],
    "one set of dS for all owners": [
        (BACK, "step", edited(BACK.step, ("dS_s.index(owner * consumers + me", "dS_s.index(me"))),
        (BACK, "dQ_of_tile", edited(BACK.dQ_of_tile, ("dS_s.index(owner * consumers + c", "dS_s.index(c")))],
    "dQ_s is written too early": [
        (BACK, "adder", edited(PIPELINE.adder, ("    if tiles > 0:\n        arrive(DQ_FREE, 160)\n", ""),
                               ("            arrive(DQ_FREE, 160)\n", "            pass\n"),
                               ("        add_by_tma(", SLEEP + "        add_by_tma("))),
        (BACK, "step", edited(BACK.step, ("        sync(DQ_FREE, 160)\n", "")))],
    "a slot is released too early": [(BACK, "step", edited(BACK.step, (WAIT + FREE, FREE + SLEEP + WAIT)))],
    "no mask past the end": [(BACK, "without_hidden", lambda P, *_: P)],
    "K_s becomes dK too early": [
        (BACK, "consumer", edited(BACK.consumer, ("    sync(K_READ, sizes.consumers * 128)\n", "")))],
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_protocol_is_seen(monkeypatch, name):
    """The stand-in is worth something."""
    monkeypatch.setattr(hopper_stand_in, "PATIENCE", 1)
    for change in BROKEN[name]:
        monkeypatch.setattr(*change)
    Q, K, V, dO = inputs(640, 200, 64)
    for _ in range(20):                                # threads may happen to take turns all the same
        try:
            verdict = run(monkeypatch, (Q.abs() * 5, -K.abs() * 5, V, dO), False, TWO)
        except AssertionError as error:
            assert "deadlock" in str(error) or "barrier" in str(error) or "waited" in str(error)
            return
        if not verdict.ok:
            return
    raise AssertionError("twenty runs came out right")
