"""The six rungs between TMA and the Hopper kernel, without a Hopper: see hopper_stand_in.py."""

import itertools
from pathlib import Path

import pytest
import torch

import flashlab  # noqa: F401           before triton: it decides whether kernels are interpreted
from flashlab import ladder, oracle

pytest.importorskip("triton.experimental.gluon", reason="triton with Gluon is not installed")

import hopper_stand_in  # noqa: E402
from hopper_stand_in import edited, inputs, kernels, run_rung  # noqa: E402

from flashlab.kernels import hopper_persistent, launch  # noqa: E402
from flashlab_course.bench import hopper  # noqa: E402
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, compile_all  # noqa: E402

RUNGS = [one.module.rpartition("_")[2] for one in ladder.HOPPER_RUNGS]
CASES = {"d 64, one block": inputs(128, 128, 64), "d 128, shared key heads": inputs(640, 640, 128, 1, 2, 1),
         "d 64, batches, bfloat16": inputs(384, 384, 64, 2, 4, 2, dtype=torch.bfloat16)}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rung", RUNGS)
def test_a_rung_is_right(rung, case, causal):
    """Fails if a slot, a phase, a count or a mask is wrong: as a deadlock, a wrong value, or a NaN."""
    Q, K, V, _ = CASES[case]
    verdict = oracle.judge(*run_rung(getattr(kernels, rung), Q, K, V, causal), Q, K, V, causal=causal)
    assert verdict.ok, str(verdict)


FREE = "        release(V_free.index(before))\n"
MISTAKES = {                           # rung, function, a line and what stands in its place
    "the first wait for a free slot never ends": ("producer", "fetch_when_free", "phase ^ 1)", "phase)"),
    "a slot is never freed": ("producer", "attend", "        release(V_free.index(slot))\n", ""),
    "free counts one arrival of two": ("consumers", "hopper_consumers_kernel", "(SLOTS, CONSUMERS), m",
                                       "(SLOTS, 1), m"),
    "freed before the product has read it": ("overlap", "attend", "        O_i = wgmma_wait(0, deps=[O_i])\n" + FREE,
                                             FREE + "        O_i = wgmma_wait(0, deps=[O_i])\n"),
    "nobody begins": ("turns", "attend", "        arrive(TURN, 256) ", "        pass "),
    "the turn is kept": ("turns", "issue_scores", "    arrive(TURN + 1 - me, 256)\n", ""),
    "the rings begin anew": ("persistent", "consumer", "n, turn = n + end", "n, turn = 0"),
    "Q is never freed": ("persistent", "attend", "    release(Q_free.index(0))\n", ""),
    "no last number": ("persistent", "producer", "    lay_down(number, -1) ", "    pass "),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_line_is_seen(monkeypatch, name):
    """The stand-in is worth something: each ends as a deadlock, a barrier that counts too many, or a wrong value."""
    rung, function, *change = MISTAKES[name]
    module = getattr(kernels, rung)
    monkeypatch.setattr(hopper_stand_in, "PATIENCE", 1)
    wrong = edited(getattr(module, function), change)
    monkeypatch.setattr(module, "KERNEL" if function.endswith("_kernel") else function, wrong)
    Q, K, V, _ = inputs(640, 640, 64, 1, 2, 2)
    try:
        O, L = run_rung(module, Q, K, V, True)
    except AssertionError as error:
        assert "deadlock" in str(error) or "barrier" in str(error)
    else:
        assert not oracle.judge(O, L, Q, K, V, causal=True).ok


CHAPTER = Path(flashlab.__path__[0], "../notebooks/src/12b_the_hopper_kernel.py").read_text(encoding="utf-8")
ANSWER = eval(CHAPTER.partition("# MY_LINES = ")[2].partition("# ```")[0].replace("\n#", "\n"))
CHANGED = {                            # lines of the last rung, and what its outcome says
    "nothing": ([], "ok"), "a third stage": ([("SLOTS = gl.constexpr(2)", "SLOTS = gl.constexpr(3)")], "ok"),
    "one slot": ([("SLOTS = gl.constexpr(2)", "SLOTS = gl.constexpr(1)")], "deadlock: "),
    "one slot, the chapter's answer": ([("SLOTS = gl.constexpr(2)", "SLOTS = gl.constexpr(1)"), *ANSWER], "ok"),
    "a first block that consumer 0 sees nothing of": ([("KEYS = gl.constexpr(128)", "KEYS = gl.constexpr(64)")],
                                                      "NaN in 640 of 1280 rows; WRONG"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_becomes_of_a_change(monkeypatch, name):
    """Chapter 12b asks for these, and shows what each does: fails if a learner's change is not what runs."""
    monkeypatch.setattr(hopper_stand_in, "PATIENCE", 1)
    lines, words = CHANGED[name]
    assert hopper_stand_in.outcome(hopper_persistent, lines).startswith(words)


REFUSED = {"N_q = N_k, a multiple of 128": inputs(130, 130, 64), "contiguous": inputs(128, 128, 64, 1, 2, 2),
           "d = d_v = 64 or 128": inputs(128, 128, 32)}


@pytest.mark.parametrize("words", REFUSED)
def test_what_a_rung_does_not_take(monkeypatch, words):
    """In words, and before anything is launched."""
    monkeypatch.setattr(launch, "capability", lambda T: (9, 0))
    assert words in ladder.HOPPER_RUNGS[0].why_not(*REFUSED[words][:3])


def test_rungs_compile_without_spills(tmp_path):
    """Fails if registers run out, if shared memory does, or if the bench changes a line that is not there."""
    jobs, L = [], torch.empty(1, 4, 1024, device="meta")
    for d, one in itertools.product((64, 128), ladder.HOPPER_RUNGS):
        T = torch.empty(1, 4, 1024, d, dtype=torch.bfloat16, device="meta")
        jobs.append((one.home.KERNEL, one.launch(T, T, T, T, L, causal=True, scale=0.1)[1], 90))
    made = compile_all(jobs)
    assert [gpu.spills for gpu in made] == [0] * len(made) and not any(gpu.warnings for gpu in made)
    assert max(gpu.shared_bytes for gpu in made) <= SHARED_LIMIT[90]
    assert len(hopper.forwards(tmp_path)) == len(ladder.HOPPER_RUNGS) + len(hopper.CHANGES) + 3
