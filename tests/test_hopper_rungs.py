"""The six rungs between TMA and the Hopper kernel, without a Hopper: see flashlab_course/lesson/stand_in.py."""

import itertools
import re
from pathlib import Path

import pytest
import torch

import flashlab  # noqa: F401           before triton: it decides whether kernels are interpreted
from flashlab import ladder, oracle

pytest.importorskip("triton.experimental.gluon", reason="triton with Gluon is not installed")

from flashlab.kernels import hopper_persistent, hopper_ring, hopper_turns, launch  # noqa: E402
from flashlab_course.bench import hopper  # noqa: E402
from flashlab_course.bench.parts import variant  # noqa: E402
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
    "an error in a line": ("turns", "K_s.index(0))])", "K_s.index(2))])", "with size 2, in\n"),
    "S is used before it is there": ("ring", "        S = wgmma_wait(0, deps=[S])\n", "", "nobody has waited for"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_line_is_seen(name):
    """The stand-in is worth something: each ends as a deadlock, a barrier that counts too many, or a wrong value."""
    rung, old, new, words = MISTAKES[name]
    said = outcome(RUNGS[rung].home, [(old, new)])
    assert not said.startswith("ok") and words in said


CHAPTER = Path(flashlab.__path__[0], "../notebooks/src/12b_the_hopper_kernel.py").read_text(encoding="utf-8")


def answer(name):
    """The pairs of lines that the chapter gives as an answer to a cell of the learner's."""
    block = re.search(rf"# ```python\n((?:# (?!```).*\n)*?# {name} \+= (?:.*\n)*?)# ```", CHAPTER)[1]
    scope = {name: []}
    exec("".join(re.findall("FETCH_K = .*\n", CHAPTER)) + block.replace("\n# ", "\n").removeprefix("# "), scope)
    return scope[name]


slots = lambda n: ("SLOTS = gl.constexpr(2)", f"SLOTS = gl.constexpr({n})")
keys = lambda n: ("KEYS = gl.constexpr(128)", f"KEYS = gl.constexpr({n})")
NO_FETCH = ("            fetch(K, [first_key + (j + SLOTS) * KEYS, 0], K_full.index(slot), K_s.index(slot))\n", "")
FIRST = ("    if me == 1:\n        arrive(TURN, 256) ", "    if me == 0:\n        arrive(TURN + 1, 256) ")
ANSWERS = {                            # rung, its lines, and at which d they must compile
    "the ring with one slot": (hopper_ring, [slots(1), NO_FETCH, *answer("MY_RING")], (128,)),
    "consumer 1 begins": (hopper_turns, [FIRST], (128,)),
    "256 keys in the last rung": (hopper_persistent, [keys(256), *answer("MY_LARGE")], (64,)),
    "the last rung with one slot": (hopper_persistent, [slots(1), *answer("MY_LINES")], (64, 128)),
}
CHANGED = {                            # a rung, lines of it, and what its outcome says
    **{name: (*change[:2], "ok") for name, change in ANSWERS.items()},
    "a third slot": (hopper_persistent, [slots(3)], "ok"),
    "one slot": (hopper_persistent, [slots(1)], "deadlock: "),
    "no fetch of K": (hopper_ring, [slots(1), NO_FETCH], "deadlock: the program waits for K_full[0]"),
    "a first block that consumer 0 sees nothing of": (hopper_persistent, [keys(64)], "NaN in 640 of 1280 rows; WRONG"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_becomes_of_a_change(name):
    """Chapter 12b asks for these, and shows what each does: fails if a learner's change is not what runs."""
    module, lines, words = CHANGED[name]
    assert outcome(module, lines).startswith(words)


REFUSED = {"N_q = N_k, a multiple of 128": inputs(130, 130, 64), "contiguous": inputs(128, 128, 64, 1, 2, 2),
           "d = d_v = 64 or 128": inputs(128, 128, 96)}


@pytest.mark.parametrize("words", REFUSED)
def test_what_a_rung_does_not_take(monkeypatch, words):
    """In words, and before anything is launched."""
    monkeypatch.setattr(launch, "capability", lambda T: (9, 0))
    assert words in ladder.HOPPER_RUNGS[0].why_not(*REFUSED[words][:3])


def test_rungs_compile_without_spills(tmp_path, sampled):
    """The rungs and the chapter's answers. Fails if registers run out, if shared memory does, or if the bench changes
    a line that is not there. A sample has each rung at d = 128, which needs more registers."""
    jobs, L = [], torch.empty(1, 4, 1024, device="meta")
    modules = sampled([(one.home, d) for one, d in itertools.product(ladder.HOPPER_RUNGS, (64, 128))], 2)
    answers = [(variant(module, lines, tmp_path), d) for module, lines, dims in ANSWERS.values() for d in dims]
    modules += sampled(answers, 3)
    for module, d in modules:
        T = torch.empty(1, 4, 1024, d, dtype=torch.bfloat16, device="meta")
        jobs.append((module.KERNEL, module.launch(T, T, T, T, L, causal=True, scale=0.1)[1], 90))
    made = compile_all(jobs)
    assert [gpu.spills for gpu in made] == [0] * len(made) and not any(gpu.warnings for gpu in made)
    assert max(gpu.shared_bytes for gpu in made) <= SHARED_LIMIT[90]
    assert len(hopper.forwards(tmp_path)) == len(ladder.HOPPER_RUNGS) + len(hopper.CHANGES) + 3
