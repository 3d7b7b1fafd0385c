"""The backward Hopper kernel without a Hopper: warpgroups are Python threads, see hopper_stand_in.py."""

import inspect
import types

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab.compiler import interpreted
from flashlab.oracle import attention, judge_gradients

pytest.importorskip("flashlab.kernels.launch", reason="triton is not installed (it exists for Linux only)")
pytest.importorskip("triton.experimental.gluon", reason="this Triton has no Gluon")
pytestmark = [pytest.mark.skipif(not interpreted(), reason="the kernels around it are interpreted"),
              pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")]     # numpy's, of exp2 of what a mask then hides

import hopper_stand_in  # noqa: E402

from flashlab.kernels import fa2_hopper_backward  # noqa: E402

TWO, THREE = {"consumers": 2, "stages": 3}, {"consumers": 3, "stages": 4}


def inputs(N_q, N_k, d, B=1, H_q=1, H_kv=1, logits=1):
    g = torch.Generator().manual_seed(N_q)
    sizes = (N_q, H_q), (N_k, H_kv), (N_k, H_kv), (N_q, H_q)
    Q, K, V, dO = (torch.randn(B, N, H, d, generator=g).to(torch.float16).transpose(1, 2) for N, H in sizes)
    return Q * logits, K, V, dO


def run(monkeypatch, tensors, causal, choice, **broken):
    Q, K, V, dO = tensors
    O, L = attention(Q, K, V, causal=causal, scale=broken.get("scale"))
    grads = hopper_stand_in.run_backward(monkeypatch, Q, K, V, O.to(Q.dtype), dO, L.float(), causal, choice, **broken)
    return judge_gradients(*grads, Q, K, V, dO, causal=causal, scale=broken.get("scale"))


CASES = {
    "d 64": (inputs(384, 384, 64), False, TWO),
    "d 128 causal": (inputs(384, 384, 128), True, TWO),
    "three consumers, causal": (inputs(384, 384, 64), True, THREE),
    "ragged": (inputs(200, 333, 64), False, TWO),
    "ragged, three consumers, batches, shared key heads": (inputs(100, 250, 64, 2, 4, 2), False, THREE),
    "causal, one row and a bit, shared key heads": (inputs(65, 65, 128, 1, 3, 1), True, TWO),
    "bottom-right, the diagonal crosses tiles": (inputs(301, 444, 64, 1, 2, 2), True, TWO),
    "bottom-right, three consumers": (inputs(130, 390, 64), True, THREE),
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
                                  "rows that see no key", "d 128 causal"])
def test_in_order_every_tile_has_each_turn_once(monkeypatch, case):
    """Fails if two programs have the same turn at a tile, or one is nobody's: the adders would wait for ever."""
    tensors, causal, choice = CASES[case]
    turns = {}
    verdict = run(monkeypatch, tensors, causal, choice, ordered=True,
                  wait_for=lambda number, value, seen: turns.setdefault(int(number.at), []).append(int(value)))
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
    kernel, together = fa2_hopper_backward, fa2_hopper_backward.TOGETHER.value
    machine = hopper_stand_in.Machine(0)
    monkeypatch.setattr(kernel, "gl", hopper_stand_in.language(machine, 0))
    for name in ("ROWS", "TOGETHER"):
        monkeypatch.setattr(kernel, name, getattr(kernel, name).value)
    blocks, heads, done, waited, steps = -(-N_k // (64 * consumers)), 3, {}, 0, 0
    waiting, running = [], {}
    for machine.program in range(heads * blocks):
        j, head = kernel.place.fn(64 * consumers, N_k, 1, causal)
        waiting.append((head, j))
    assert sorted(waiting) == [(head, j) for head in range(heads) for j in range(blocks)]
    while waiting or running:
        while waiting and len(running) < together:
            running[waiting.pop(0)] = 0
        moved = False
        for (head, j), k in sorted(running.items()):
            first, _, end = kernel.rounds.fn(j, N_q, N_k, causal, consumers)
            if k >= end - first:
                del running[head, j]
                moved = True
                continue
            n = kernel.round_at.fn(k, j, first, end, causal, True)
            mine = kernel.turn.fn(j, n, N_q, N_k, end, causal, consumers)
            assert mine >= done.get((head, n), 0), "its turn is over"
            steps += 1
            if done.get((head, n), 0) == mine:
                running[head, j], moved = k + 1, True
            else:
                waited += 1
        for (head, j), k in running.items():           # what was added in this round of steps, the next one sees
            if k:
                first, _, end = kernel.rounds.fn(j, N_q, N_k, causal, consumers)
                n = kernel.round_at.fn(k - 1, j, first, end, causal, True)
                done[head, n] = max(done.get((head, n), 0), kernel.turn.fn(j, n, N_q, N_k, end, causal, consumers) + 1)
        assert moved, "everybody waits"
    if N_q == N_k and blocks <= together:
        assert waited <= 0.1 * steps


# ---- a broken protocol is seen


def edited(name, *changes):
    """A function of the kernel as it stands, but for some of its text."""
    text = inspect.getsource(getattr(fa2_hopper_backward, name).fn)
    text = text[text.index("def "):]
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    found = {}
    exec(text, vars(fa2_hopper_backward), found)
    return types.FunctionType(found[name].__code__, vars(fa2_hopper_backward))


FREE = "        arrive(slot + SLOT_FREE, consumers * 128 + 32)\n"
BROKEN = {
    "a parity": {"following": lambda slot, phase, stages: ((slot + 1) % stages, phase)},
    "the owner does not wait": {"step": edited("step", ("sync(DS_READY + owner", "arrive(DS_READY + owner"))},
    "one set of dS for all owners": {"step": edited(
        "step", ("dS_s.index(owner * consumers + me", "dS_s.index(me"), ("dS_s.index(owner * consumers + c", "dS_s.index(c"))},
    "dQ_s is written too early": {"adder": edited(
        "adder", ("    if tiles > 0:\n        arrive(DQ_FREE, 160)\n", ""),
        ("            arrive(DQ_FREE, 160)\n", "            pass\n"),
        ("        add_by_tma(", "        __import__('time').sleep(0.01)\n        add_by_tma(")),
                                  "step": edited("step", ("        sync(DQ_FREE, 160)\n", ""))},
    "a slot is let go too early": {"step": edited(
        "step", ("        dK, dV = warpgroup_mma_wait(0, deps=[dK, dV])\n" + FREE,
                 FREE + "        dK, dV = warpgroup_mma_wait(0, deps=[dK, dV])\n"))},
    "no mask past the end": {"only_visible": lambda P, *_: P},
    "K_s becomes dK too early": {"consumer": edited("consumer", ("    sync(K_READ, consumers * 128)\n", ""))},
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_protocol_is_seen(monkeypatch, name):
    """The stand-in is worth something."""
    monkeypatch.setattr(hopper_stand_in, "PATIENCE", 1)
    Q, K, V, dO = inputs(640, 200, 64)
    for _ in range(20):                                # threads may happen to take turns all the same
        try:
            verdict = run(monkeypatch, (Q.abs() * 5, -K.abs() * 5, V, dO), False, TWO, **BROKEN[name])
        except AssertionError as error:
            assert "deadlock" in str(error) or "barrier" in str(error) or "waited" in str(error)
            return
        if not verdict.ok:
            return
    raise AssertionError("twenty runs came out right")
