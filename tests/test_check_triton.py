"""Triton exercises: stray and missed accesses are seen and located, nothing ends the process, the compiler has its
say."""

import pytest

from flashlab.triton_mode import interpreted
from flashlab_course.check import checker, form, source
from flashlab_course.compiler import ahead_of_time

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("no_line")
interpreted_only = pytest.mark.skipif(not interpreted(),
                                      reason="watches the interpreter's accesses: a GPU follows them, or stops")
FORWARD, TILE = form.exercise("ex10_triton_forward"), form.exercise("ex10_tile_of_scores")


def said(exercise, *swaps):
    text = exercise.parsed.text
    for old, new in swaps:
        assert old in text
        text = text.replace(old, new)
    return checker.examine(exercise, source.load_text(text, "a learner's")[exercise.function])


@interpreted_only
def test_a_stray_load_is_located():
    report = said(TILE, (", mask=keys < N_k, other=0.0", ""))
    where = "program (0, 1, 0) loaded K[25, 0], below its last row: K has 25 rows."
    assert where in report.message, str(report)
    report = said(TILE, (", mask=(rows < N_q) & (keys < N_k)", ", mask=rows < N_q"))
    assert "stored S[0, 25], right of its last column: S has 25 columns." in report.message, str(report)


@interpreted_only
def test_a_stray_store_is_located():
    report = said(TILE, (", mask=(rows < N_q) & (keys < N_k)", ""))
    where = "program (1, 0, 0) stored S[21, 0], below its last row: S has 21 rows."
    assert where in report.message, str(report)


def test_a_missed_store_is_located():
    report = said(TILE, ("triton.cdiv(len(K), B_c)", "1"))
    assert "o kernel stored 256 of the 512 elements of S, the first S[0, 16]" in report.message, str(report)


@interpreted_only
def test_an_address_in_no_tensor_is_refused_not_followed():
    report = said(TILE, ("K + keys * stride_Kn", "K + (keys + 2**40) * stride_Kn"))
    assert "loaded from far outside every tensor" in report.message, str(report)
    report = said(TILE, ("S + rows * stride_Sn", "S + (rows - 2**40) * stride_Sn"))
    assert "stored to far outside every tensor" in report.message, str(report)


def test_an_input_that_is_written_to_is_named():
    store = "    tl.store(K + keys * stride_Kn + cols * stride_Kd, 0.0, mask=keys < N_k)\n"
    report = said(TILE, ("    Q_i = tl.load(", f"{store}    Q_i = tl.load("))
    assert report.mistake == "changed_inputs" and "its input K" in report.message, str(report)


def test_an_error_inside_the_kernel_shows_the_kernels_line():
    report = said(FORWARD, ("tl.dot(Q_i, tl.trans(K_j), ", "tl.dot(Q_i, K_j.missing, "))
    said_where = report.trace if interpreted() else report.message         # the compiler quotes the kernel itself
    assert report.mistake == "raised" and "S_ij = tl.dot(Q_i, K_j.missing" in said_where, str(report)


@interpreted_only
def test_an_endless_loop_inside_a_kernel_is_stopped(monkeypatch):
    with monkeypatch.context() as impatient:
        impatient.setattr(FORWARD, "seconds", 0.5)
        report = said(FORWARD, ("range(0, tl.cdiv(N_k, B_c))", "range(0, 1000000)"))
    assert report.mistake == "timeout" and said(FORWARD).passed, str(report)


@interpreted_only
def test_what_only_the_interpreter_runs_is_refused():
    report = said(FORWARD, ("        m_i = m_new\n", "        m_i = m_new\n        if j > 100:\n            break\n"))
    assert report.mistake == "does_not_compile", str(report)
    assert "At `break` the compiler says: unsupported AST node type: Break" in report.message


def test_a_kernel_with_helpers_and_constants_is_judged_as_well():
    helper = "ONE = tl.constexpr(1)\n\n\n@triton.jit\ndef blocks(n, b):\n    return tl.cdiv(n * ONE, b)\n\n\n"
    kernel = "@triton.jit\ndef fa2_kernel"
    with_helper = [(kernel, helper + kernel), ("tl.cdiv(N_k, B_c)", "blocks(N_k, B_c)")]
    assert said(FORWARD, *with_helper).passed
    assert said(FORWARD, *with_helper, ("i.to(tl.int64) * B_r", "i * B_r")).mistake == "int32_offset"


@pytest.mark.parametrize("line, found", [
    ("%2 = arith.muli %1, %stride : i32", ["stride"]),
    ("%2 = arith.muli %stride, %1 : i32", ["stride"]),
    ("%2 = arith.muli %1, %stride : i64", []),
    ("%2 = arith.muli %c16, %stride : i32", []),
])
def test_narrow_products_are_those_of_a_position_and_an_argument(line, found):
    ttir = ("tt.func @f(%X: !tt.ptr<f32>, %stride: i32) attributes {} {\n"
            f"  %1 = tt.get_program_id x : i32\n  {line}\n}}")
    assert ahead_of_time.narrow_products(ttir) == found
