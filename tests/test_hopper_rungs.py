"""The six rungs between TMA and the Hopper kernel, without a Hopper: see flashlab_course/lesson/stand_in.py."""

import itertools
from pathlib import Path

import pytest
import torch

import flashlab  # noqa: F401           before triton: it decides whether kernels are interpreted
from flashlab import ladder, oracle

pytest.importorskip("triton.experimental.gluon", reason="triton with Gluon is not installed")

from flashlab.kernels import hopper_persistent, launch  # noqa: E402
from flashlab_course.bench import hopper  # noqa: E402
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, compile_all  # noqa: E402
from flashlab_course.lesson.stand_in import changed, inputs, outcome, run_rung  # noqa: E402

RUNGS = {one.module.rpartition("_")[2]: one for one in ladder.HOPPER_RUNGS}
CASES = {"d 64, one block": inputs(128, 128, 64), "d 128, shared key heads": inputs(640, 640, 128, 1, 2, 1),
         "d 64, batches, bfloat16": inputs(384, 384, 64, 2, 4, 2, dtype=torch.bfloat16)}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rung", RUNGS)
def test_a_rung_is_right(rung, case, causal):
    """Fails if a slot, a phase, a count or a mask is wrong: as a deadlock, a wrong value, or a NaN."""
    Q, K, V, _ = CASES[case]
    with changed(RUNGS[rung].home) as module:
        verdict = oracle.judge(*run_rung(module, Q, K, V, causal), Q, K, V, causal=causal)
    assert verdict.ok, str(verdict)


FREE, WAIT_O = "        release(V_free.index(before))\n", "        O_i = wgmma_wait(0, deps=[O_i])\n"
MISTAKES = {                           # rung, a line, what stands in its place, and what the stand-in says
    "the first wait for a free slot never ends": (
        "producer", "phase ^ 1)", "phase)", "deadlock: consumer waits for K_full[0] to end a phase of parity 0; it is "
        "in phase 0;\nproducer waits for K_free[0] to end a phase of parity 0; it is in phase 0"),
    "a slot is never freed": ("producer", "        release(V_free.index(slot))\n", "", "producer waits for V_free[0]"),
    "free counts one arrival of two": ("consumers", "mbarriers(SLOTS, CONSUMERS))\n", "mbarriers(SLOTS, 1))\n", ""),
    "freed before the product has read it": ("overlap", WAIT_O + FREE, FREE + WAIT_O, "WRONG"),
    "nobody begins": ("turns", "        arrive(TURN, 256) ", "        pass ", "256 threads at named barrier 12"),
    "the turn is kept": ("turns", "    arrive(TURN + 1 - me, 256)\n", "", "256 threads at named barrier"),
    "the rings begin anew": ("persistent", "        n, turn = n + end, turn + 1\n        mb",
                             "        n, turn = 0, turn + 1\n        mb", ""),
    "Q is never freed": ("persistent", "    release(Q_free.index(0))\n", "", "producer waits for Q_free[0]"),
    "no last number": ("persistent", "    lay_down(number, -1) ", "    pass ", ""),
    "S is used before it is there": ("ring", "        S = wgmma_wait(0, deps=[S])\n", "", "nobody has waited for"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_line_is_seen(name):
    """The stand-in is worth something: each ends as a deadlock, a barrier that counts too many, or a wrong value."""
    rung, old, new, words = MISTAKES[name]
    said = outcome(RUNGS[rung].home, [(old, new)])
    assert not said.startswith("ok") and words in said


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
def test_what_becomes_of_a_change(name):
    """Chapter 12b asks for these, and shows what each does: fails if a learner's change is not what runs."""
    lines, words = CHANGED[name]
    assert outcome(hopper_persistent, lines).startswith(words)


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
