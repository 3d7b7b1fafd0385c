"""The backward Hopper kernel without a Hopper: warpgroups are Python threads, see hopper_stand_in.py."""

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab.oracle import attention, judge_gradients
from flashlab.triton_mode import interpreted

pytest.importorskip("flashlab.kernels.launch", reason="triton is not installed (it exists for Linux only)")
pytest.importorskip("triton.experimental.gluon", reason="this Triton has no Gluon")
pytestmark = [pytest.mark.skipif(not interpreted(), reason="the kernels around it are interpreted"),
              pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")]     # numpy's, of exp2 of a hidden score

import hopper_stand_in  # noqa: E402
from hopper_stand_in import WINDOWS, edited, inputs, kernels, packed, poisoned, run_backward  # noqa: E402

from flashlab.kernels import launch as shared  # noqa: E402
from flashlab_course.gpu.warps import Mistake  # noqa: E402
from flashlab_course.lesson import stand_in  # noqa: E402

TWO, THREE = {"consumers": 2, "stages": 3}, {"consumers": 3, "stages": 4}


def run(monkeypatch, tensors, causal, choice, scale=None, window=None, **options):
    Q, K, V, dO = tensors
    O, L = attention(Q, K, V, causal=causal, scale=scale, window=window)
    options |= {"left": window[0], "right": window[1]} if window else {}
    grads = run_backward(monkeypatch, Q, K, V, O.to(Q.dtype), dO, L.float(), causal, choice, scale, **options)
    verdict = judge_gradients(*grads, Q, K, V, dO, causal=causal, scale=scale, window=window)
    assert verdict.ok, f"wrong: {verdict}"


CASES = {
    "d 64": (inputs(384, 384, 64), False, TWO),
    "d 128 causal": (inputs(384, 384, 128), True, TWO),
    "three consumers, causal": (inputs(384, 384, 64), True, THREE),
    "ragged, three consumers, batches, shared key heads": (inputs(100, 250, 64, 2, 4, 2), False, THREE),
    "causal, one row and a bit, shared key heads": (inputs(65, 65, 128, 1, 3, 1), True, TWO),
    "bottom-right, the diagonal crosses tiles": (inputs(301, 444, 64, 1, 2, 2), True, TWO),
    "bottom-right, three consumers": (inputs(130, 390, 64), True, THREE),
    "heads of a group shared out, causal": (inputs(150, 150, 64, 2, 8, 1), True, TWO),
    "heads of a group shared out": (inputs(70, 190, 128, 1, 6, 1), False, TWO),
    "rows that see no key": (inputs(300, 70, 64), True, TWO),
    "few keys": (inputs(200, 7, 64), False, THREE), "d 40": (inputs(200, 70, 40), False, THREE),
    "d 80, heads of a group shared out": (inputs(130, 150, 80, 1, 4, 1), True, TWO),
    "large logits": (inputs(128, 128, 64, logits=60), True, TWO),
}


@pytest.mark.parametrize("case", CASES)
def test_warpgroups_take_turns_and_get_it_right(monkeypatch, case):
    """Fails if a ring index, a phase, a count, a mask or the order of dQ is wrong: a deadlock, wrong values, NaN."""
    tensors, causal, choice = CASES[case]
    run(monkeypatch, tensors, causal, choice)


def test_a_group_is_shared_out_until_there_are_enough_programs():
    """(programs, group): parts"""
    parts = {(256, 8): 4, (2048, 1): 1, (10, 6): 2, (528, 8): 1, (1, 8): 8}
    assert {given: shared.how_many_parts(*given, 528) for given in parts} == parts


@pytest.mark.parametrize("case, parts", [
    ("heads of a group shared out, causal", 8), ("heads of a group shared out", 2), ("d 64", 1)])
def test_parts_have_memory_of_their_own(case, parts):
    """Fails if the cases above do not share out what they say, or two programs write the same dK."""
    (Q, K, V, dO), causal, _ = CASES[case]
    launches = kernels.backward.launch(Q, K, V, Q, dO, Q[..., 0].float(), None, Q, K, V, causal=causal, scale=1.0)
    main = next(arguments for kernel, _, arguments in launches if kernel is kernels.backward_pipeline.hopper_backward_kernel)
    assert main["parts"] == parts and main["dK"].base.shape[1] == main["H_kv"] == K.shape[1] * parts
    assert main["group"] * main["H_kv"] == Q.shape[1] and (launches[-1][0] is shared.add_parts_kernel) == (parts > 1)


@pytest.mark.parametrize("scale", [0.0, -0.3])
def test_scale(monkeypatch, scale):
    """Fails if a hidden score is scaled to plus infinity, or to NaN."""
    run(monkeypatch, inputs(70, 70, 64), True, TWO, scale=scale)


def test_scores_far_below_zero(monkeypatch):
    """Every L is about -600: a key past the end, whose score is 0, must not come into dQ as exp(0 + 600) * 0."""
    Q, K, V, dO = inputs(100, 100, 64)
    run(monkeypatch, (Q.abs() * 5, -K.abs() * 5, V, dO), False, TWO)
    K[:, :, 5] = -torch.inf                            # a key that weighs nothing: 0 times it is NaN
    O, L = attention(Q.abs(), K, V)
    _, dK, dV = run_backward(monkeypatch, Q.abs(), K, V, O.half(), dO, L.float(), False, TWO)
    assert dK.isfinite().all() and dV.isfinite().all() and (dK[:, :, 5] == 0).all()


def test_any_strides(monkeypatch):
    """Fails if what TMA cannot read is not copied: columns that are no neighbours, a scalar that was expanded."""
    Q, K, V, dO = inputs(65, 65, 64, 1, 2, 1)
    tensors = Q.mT.contiguous().mT, torch.cat([K, K], -1)[..., 1:65], V, dO[..., :1, :1].expand_as(dO)
    run(monkeypatch, tensors, True, TWO)


# ---- the same bits each time


@pytest.mark.parametrize("case", [
    "d 64", "ragged, three consumers, batches, shared key heads", "bottom-right, three consumers", "rows that see no key",
    "d 128 causal", "heads of a group shared out, causal"])
def test_in_order_every_tile_has_each_turn_once(monkeypatch, case):
    """Fails if two programs have the same turn at a tile, or one is nobody's: the adders would wait for ever."""
    tensors, causal, choice = CASES[case]
    turns = {}
    noted = lambda number, value, seen: turns.setdefault(int(number.at), []).append(int(value))
    monkeypatch.setattr(kernels.backward_pipeline, "wait_for", noted)
    run(monkeypatch, tensors, causal, choice, ordered=True)
    assert all(sorted(of_a_tile) == list(range(len(of_a_tile))) for of_a_tile in turns.values())
    assert max(map(len, turns.values())) == -(-tensors[1].shape[2] // (64 * choice["consumers"]))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("N_q, N_k", [(1024, 1024), (300, 9000), (9000, 300), (16384, 16384), (64, 40000)])
@pytest.mark.parametrize("consumers", [2, 3])
def test_nobody_waits_for_ever(monkeypatch, N_q, N_k, causal, consumers):
    """A GPU that runs TOGETHER programs at a time, started in the order of their numbers, gets through all heads.

    And turns cost little: where there are no more blocks than that, nearly every adder finds that it is its turn.
    """
    module, block = kernels.backward_pipeline, 64 * consumers
    together, blocks, heads, done, waited, steps = module.TOGETHER, -(-N_k // block), 3, {}, 0, 0
    sizes = module.Shared(N_q=N_q, N_k=N_k, blocks=blocks, H_kv=1, together=1, left=None, table=None, turns=True, group=1,
                          tiles_of_a_head=0, consumers=consumers, keys=block, causal=causal)
    waiting, running = [], {}
    for program in range(heads * blocks):
        monkeypatch.setattr(stand_in, "MACHINE", hopper_stand_in.Machine(program, heads * blocks))
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
            n = one.round_at(k, sizes)
            mine = one.turn(n, sizes)
            assert mine >= done.get((one.head, n), 0), "its turn is over"
            steps += 1
            if done.get((one.head, n), 0) == mine:
                running[one], moved = k + 1, True
            else:
                waited += 1
        for one, k in running.items():                 # what was added in this round of steps, the next one sees
            if k:
                n = one.round_at(k - 1, sizes)
                done[one.head, n] = max(done.get((one.head, n), 0), one.turn(n, sizes) + 1)
        assert moved, "everybody waits"
    if N_q == N_k and blocks <= together:
        assert waited <= 0.1 * steps


# ---- windows and packed sequences

@pytest.mark.parametrize("case", WINDOWS)
def test_a_window(monkeypatch, case):
    """Fails if a query tile is left out that sees the keys, if an edge has no mask, or if the warps disagree."""
    sizes, window = WINDOWS[case]
    run(monkeypatch, inputs(*sizes), False, THREE if case == "whole blocks" else TWO, window=window)


def test_a_window_skips_tiles(monkeypatch):
    """Queries from 512 on see no key before 384: NaN in those queries stays out of the first 256 keys' gradients."""
    Q, K, V, dO = inputs(768, 768, 64)
    O, L = attention(Q, K, V, window=(128, 0))
    Q[:, :, 512:], dO[:, :, 512:] = torch.nan, torch.nan
    grads = run_backward(monkeypatch, Q, K, V, O.to(Q.dtype), dO, L.float(), False, TWO, left=128, right=0)
    assert all(T[:, :, :256].isfinite().all() and T[:, :, 512:].isnan().any() for T in grads)


PACKED = {
    "d 64": (64, TWO, False, None), "d 64 causal": (64, TWO, True, None), "three consumers": (64, THREE, False, None),
    "d 128 causal": (128, TWO, True, None), "a window": (64, TWO, False, (90, 20)),
    "a window, d 128": (128, TWO, False, (150, 0)),
}


@pytest.mark.parametrize("poison", [None, 0, 1])
@pytest.mark.parametrize("case", PACKED)
def test_packed_sequences(monkeypatch, case, poison):
    """Each has its own gradients: NaN in every second sequence stays out of the others'."""
    d, choice, causal, window = PACKED[case]
    (Q, K, V, dO), few, rows = packed(d, window)
    O, L = torch.zeros_like(Q), torch.full(Q.shape[:3], -torch.inf)
    for q, k in rows:
        O[:, :, q], L[:, :, q] = attention(Q[:, :, q], K[:, :, k], V[:, :, k], causal=causal, window=window)
    given = poisoned((Q, K, V, O, dO, L), rows, (0, 1, 1, 0, 0, 0), poison)
    grads = run_backward(monkeypatch, *given, causal, choice, **few)
    for s, (q, k) in enumerate(rows):
        if poison is None or s % 2 != poison:
            tensors = zip((*grads, Q, K, V, dO), (q, k, k, q, k, k, q), strict=True)
            verdict = judge_gradients(*(T[:, :, at] for T, at in tensors), causal=causal, window=window)
            assert verdict.ok, f"sequence {s}: {verdict}"
    assert all((T[:, :, rows[-1][n].stop:] == 0).all() for T, n in zip(grads, (0, 1, 1), strict=True))


def test_a_batch_of_no_sequence(monkeypatch):
    """No row belongs to a sequence: fails if one is left unwritten, or a warp waits for blocks that are not there."""
    (Q, K, V, dO), cu = inputs(150, 70, 64, 1, 2, 1), torch.zeros(1, dtype=torch.int32)
    O, L, few = torch.zeros_like(Q), torch.full(Q.shape[:3], -torch.inf), {"cu_seqlens_q": cu, "cu_seqlens_k": cu}
    grads = run_backward(monkeypatch, Q, K, V, O, dO, L, False, THREE, batch=0, **few)
    assert all((T == 0).all() for T in grads)


# ---- a broken protocol is seen


BACK = kernels.backward_pipeline
SLEEP, FREE = "        __import__('time').sleep(0.01)\n", "        arrive(slot + SLOT_FREE, consumers * 128 + 32)\n"
WAIT = "        dK, dV = wgmma_wait(0, deps=[dK, dV])\n"
BROKEN = {
    "a ring's phase": [(kernels.words.Position, "following",
                        lambda at, stages: kernels.words.Position((at.slot + 1) % stages, at.phase))],
    "the owner does not wait": [
        (BACK, "step", edited(BACK.step, ("sync(DS_READY + owner", "arrive(DS_READY + owner")))],
    "one set of dS for all owners": [
        (BACK, "step", edited(BACK.step, ("dS_s.index(owner * consumers + me", "dS_s.index(me"))),
        (BACK, "dQ_of_tile", edited(BACK.dQ_of_tile, ("dS_s.index(owner * consumers + c", "dS_s.index(c")))],
    "dQ_s is written too early": [
        (BACK, "adder", edited(BACK.adder, ("    if tiles > 0:\n        arrive(DQ_FREE, 160)\n", ""),
                               ("            arrive(DQ_FREE, 160)\n", "            pass\n"),
                               ("        add_by_tma(", SLEEP + "        add_by_tma("))),
        (BACK, "step", edited(BACK.step, ("        sync(DQ_FREE, 160)\n", "")))],
    "a slot is released too early": [(BACK, "step", edited(BACK.step, (WAIT + FREE, FREE + SLEEP + WAIT)))],
    "no mask past the end": [(BACK, "without_hidden", lambda P, *_: P)],
    "K_s becomes dK too early": [
        (BACK, "consumer", edited(BACK.consumer, ("    sync(K_READ, shared.consumers * 128)\n", "")))],
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_protocol_is_seen(monkeypatch, name):
    """The stand-in is worth something."""
    for change in BROKEN[name]:
        monkeypatch.setattr(*change)
    Q, K, V, dO = inputs(640, 200, 64)
    for _ in range(20):                                # threads may happen to take turns all the same
        try:
            run(monkeypatch, (Q.abs() * 5, -K.abs() * 5, V, dO), False, TWO)
        except (AssertionError, Mistake) as error:
            assert any(word in str(error) for word in ("deadlock", "barrier", "waited", "wrong: "))
            return
    raise AssertionError("twenty runs came out right")
