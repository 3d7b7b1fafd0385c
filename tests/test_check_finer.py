"""What small cases hide, and how it is seen: an ε that float32 swallows, a stride that is 1."""

import importlib
import importlib.util

import pytest
import torch

from flashlab.triton_mode import interpreted
from flashlab_course.check import checker, form, source
from flashlab_course.check.cases import drawn, in_float64, spread

TRITON = importlib.util.find_spec("triton") is not None
# shown by itself, modelled, interpreted
MOVING = ["ex05_fa1_inner_loop", "ex08_D", *(["ex09_vector_add"] if TRITON else [])]


def examined(name, text):
    """The Report on a function that is written out."""
    exercise = form.exercise(name)
    return checker.examine(exercise, source.load_text(text, f"an answer to {name}")[exercise.function])


def spoilt(name, *swaps):
    exercise = form.exercise(name)
    return checker.examine(exercise, exercise.wrong(form.Mistake("spoilt", "", "", *swaps)))


# ---- float64

FLOAT32_ALONE = """
import torch
def combine(O_a, L_a, O_b, L_b):
    together, ones = torch.stack([L_a, L_b]).float(), torch.ones(1, 2)
    L = together.logsumexp(0)
    w = torch.exp(together - L.masked_fill(L == -torch.inf, 0))
    return {result}
"""


@pytest.mark.parametrize("result", [
    "w[0][:, None] * O_a + w[1][:, None] * O_b, L",                                             # L stays float32
    # cannot take float64 at all
    "(ones @ torch.stack([w[:1].T * O_a, w[1:].T * O_b]).flatten(1)).reshape(O_a.shape), L",
])
def test_a_right_answer_that_computes_in_float32_alone_passes(result):
    """No stub promises float64: it is there to show an ε."""
    assert examined("ex06_use_of_L", FLOAT32_ALONE.format(result=result)).passed


def test_an_answer_that_rounds_to_float32_is_judged_there():
    """Its arithmetic need not be exact in float32, and float32 is what the stub promises."""
    report = spoilt("ex01_attention", ("return P @ V", "return (P.float() @ V.float()).to(V.dtype)"))
    assert report.passed, str(report)


def test_where_float64_fails_the_report_says_so():
    report = spoilt("ex06_use_of_L", ("w_b[:, None] * O_b, L", "w_b[:, None] * O_b, L + 3e-8"))
    assert report.mistake is None and "float64 inputs" in report.message, str(report)


def test_a_case_in_float64_is_the_same_case():
    exercise = form.exercise("ex06_use_of_L")
    wide = next(case for case in exercise.cases if case.narrow is not None)
    assert wide.name == in_float64(wide.narrow).name != wide.narrow.name
    for name, value in wide.narrow.make().items():
        assert torch.equal(wide.make()[name], value.double()) and value.dtype == torch.float32


def test_exact_numbers_are_exact_in_any_order():
    A, B, *_ = drawn(4, 4, 16, exact=True, seed=3)
    B = B.T
    assert torch.equal((A @ B).double(), A.double() @ B.double())


# ---- columns that are apart

def test_columns_are_apart_in_memory_alone():
    T = torch.arange(6.0).view(2, 3)
    found = spread(form.Case("a case", lambda: {"T": T, "U": T})).make()
    assert [torch.equal(found[name], T) for name in "TU"] == [True, True]
    assert (found["T"].stride(-1), found["U"].stride(-1)) == (2, 3)


@pytest.mark.skipif(not TRITON or not interpreted(), reason="needs Triton's interpreter")
def test_between_two_columns_lies_nothing_of_the_tensor():
    report = spoilt("ex09_row_softmax", ("cols * stride_Xn, cols < N", "cols * (stride_Xn - stride_Xn // 2), cols < N"))
    assert "between two of its columns, which are 2 elements apart" in " ".join(str(report).split()), str(report)


# ---- grids and sizes

@pytest.mark.parametrize("name, swap", [
    ("ex02_matrix_scale", ("-(-rows // block[1])", "rows")),
    ("ex02_vector_add", ("blockIdx.x * blockDim.x + threadIdx.x", "blockIdx.x * blockDim.x | threadIdx.x")),
    ("ex05_tile_sizes", ("3 * (B + 16) ** 2", "3 * (B + 15) ** 2")),
])
def test_an_answer_that_is_right_for_most_sizes_fails(name, swap):
    assert not spoilt(name, swap).passed


def test_a_number_that_no_tensor_holds_is_wrong_like_any_other():
    report = spoilt("ex02_idle_lanes", ("-(-rest // 32)", "rest ** 32"))
    assert not report.passed and "Naming the mistake failed" not in report.message, str(report)


# ---- the player

@pytest.mark.parametrize("name", MOVING)
def test_a_card_says_how_to_see_the_lines_move(sandbox, name):
    exercise = form.exercise(name)
    wrong = exercise.wrong(exercise.mistakes[-1])
    seen = f'replay("{name}", {exercise.function})' in checker.check(name, wrong).offer
    assert seen == (not exercise.triton or interpreted())


def test_no_player_where_there_is_nothing_to_see(sandbox):
    heads, program = form.exercise("ex01_heads"), form.exercise("ex06_fa2_inner_loop")
    assert "replay" not in str(checker.check("ex01_heads", heads.wrong(heads.mistakes[0])))
    assert "replay" not in str(checker.check("ex06_fa2_inner_loop")), "it is not written yet"
    source.exercise_path(program.name).write_text(program.parsed.text.replace("m_i = m_new", "m_i = m_i"),
                                                  encoding="utf-8")
    assert f'replay("{program.name}")' in checker.check(program.name).offer
    assert "replay" not in checker.checked(program.name, terminal=True).offer, "a terminal shows no player"
