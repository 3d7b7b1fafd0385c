"""What a kernel touches: each load and store is seen, with its program and mask; a learner's answer too."""

import numpy as np
import pytest
import torch

import flashlab  # noqa: F401  before Triton: it decides whether kernels are interpreted

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from flashlab.triton_mode import interpreted  # noqa: E402
from flashlab_course.check import source  # noqa: E402
from flashlab_course.gpu.matrix_add import matrix_add  # noqa: E402
from flashlab_course.gpu.vector_add import vector_add  # noqa: E402
from flashlab_course.lesson.accesses import result_of, touched, touched_by  # noqa: E402

interpreted_only = pytest.mark.skipif(not interpreted(), reason="watches the interpreter's accesses")


@triton.jit
def careless_kernel(X, Out, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Out + i, tl.load(X + i))


@interpreted_only
def test_masked_places_and_their_programs():
    X, Y = torch.randn(10), torch.randn(10)
    seen = touched(lambda: vector_add(X, Y, B=4))
    assert {name: seen.kind(name) for name in seen.tensors} == {"X": "load", "Y": "load", "Out": "store"}
    assert seen.programs() == [(0,), (1,), (2,)]
    last = seen.of("Out")[-1]
    assert last.elements.tolist() == [8, 9, 10, 11] and last.mask.tolist() == [True, True, False, False]
    assert not any(seen.strays(access).any() for access in seen.accesses)
    assert all((seen.times(name) == 1).all() for name in seen.tensors)
    assert (touched(lambda: vector_add(vector_add(X, Y, B=4), Y, B=4)).times("X") == 2).all(), "one launch's names only"
    seen = touched(lambda: matrix_add(torch.randn(5, 7), torch.randn(7, 5).T, B_m=2, B_n=4))
    assert seen.programs() == [(i, j) for i in range(3) for j in range(2)] and (seen.times("Y") == 1).all()


@interpreted_only
def test_strays_are_seen_and_those_in_no_tensor_are_not_carried_out():
    room = torch.zeros(2, 10)
    room[0] = 1
    seen = touched(lambda: careless_kernel[(3,)](room[0], room[1], 4))
    strays = [(access.kind, access.tensor, access.elements[seen.strays(access)].tolist()) for access in seen.accesses]
    assert [stray for stray in strays if stray[2]] == [("load", "X", [10, 11]), ("store", "Out", [10, 11])]
    assert room[1, :8].eq(1).all()                          # within tensors everything happens
    out = torch.zeros(10)                                   # behind it lies nobody knows what: this must not be written
    assert len(touched(lambda: careless_kernel[(3,)](torch.ones(10), out, 4)).of("Out")) == 3


def test_where_nothing_is_drawn_it_says_why(monkeypatch):
    if interpreted():
        with monkeypatch.context() as patch, pytest.raises(Exception, match="too many to draw"):
            patch.setattr("flashlab_course.lesson.accesses.MAX_ACCESSES", 5)
            touched(lambda: vector_add(torch.ones(10), torch.ones(10), B=4))
    monkeypatch.setattr("flashlab_course.lesson.accesses.interpreted", lambda: False)
    seen = touched(lambda: 1 / 0)
    assert "TRITON_INTERPRET=1" in seen.problem and seen.accesses == []


# ---- a learner's file

def answer(sandbox, *swaps, name="ex09_vector_add"):
    text = source.solution_path(name).read_text()
    for old, new in swaps:
        assert old in text
        text = text.replace(old, new)
    (sandbox / f"my/exercises/{name}.py").write_text(text)


def vectors():
    return 2.0, torch.ones(10), torch.ones(10), torch.zeros(10), 4


@interpreted_only
def test_a_learners_kernel_is_seen_right_or_wrong(sandbox):
    assert touched_by("ex09_vector_add", *vectors()) is None                          # a stub
    answer(sandbox)
    assert (touched_by("ex09_vector_add", *vectors()).times("Out") == 1).all()
    answer(sandbox, ("a * x + y, mine)", "a * x + y)"))
    seen = touched_by("ex09_vector_add", *vectors())
    assert sum(int(seen.strays(access).sum()) for access in seen.of("Out")) == 2
    answer(sandbox, ("grid = (triton.cdiv(N, B),)", "grid = (1,)"))
    assert np.array_equal(touched_by("ex09_vector_add", *vectors()).times("Out"), [1] * 4 + [0] * 6)


@interpreted_only
@pytest.mark.parametrize("old, new, said", [
    ("grid = (triton.cdiv(N, B),)", 'raise NotImplementedError("ex09_vector_add: the grid")', "not finished: the grid"),
    ("x = tl.load(X + i, mine)", "x = tl.lod(X + i, mine)", "lod"),
    ("import triton.language as tl", "import triton.language as tl\nimport nothing_such", "nothing_such"),
    ("i = tl.program_id(0) * B", "i = = tl.program_id(0) * B", "SyntaxError"),
])
def test_what_ended_a_learners_run_is_said(sandbox, old, new, said):
    answer(sandbox, (old, new))
    assert said in touched_by("ex09_vector_add", *vectors()).problem


def test_a_learners_plain_function(sandbox):
    assert result_of("ex09_uncoalesced", 0, 1, 4) is None
    answer(sandbox, name="ex09_uncoalesced")
    assert result_of("ex09_uncoalesced", 0, 1, 4) == (4, True)
    for old, new in (("def load(", "def lod("), ("return len", "return 1 // 0, len")):
        answer(sandbox, (old, new), name="ex09_uncoalesced")
        assert result_of("ex09_uncoalesced", 0, 1, 4) is None
