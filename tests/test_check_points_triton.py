"""Triton exercises: who did the work, which bytes moved, what was stored. Right numbers alone do not pass."""

import re
import textwrap

import pytest

from flashlab.triton_mode import interpreted
from flashlab_course.check import checker, form, judge, runner, source, structure

pytest.importorskip("triton")
if not interpreted():
    pytest.skip("only the interpreter sees what kernels load and store", allow_module_level=True)

import torch
import triton
import triton.language as tl
from test_check_points import is_called, said

from flashlab_course.compiler.watch import Traffic, watch

pytestmark = pytest.mark.usefixtures("no_line")

COMMENT = re.compile(r"(?<=\S) +# .*")


def edited(name, *swaps):
    """The report on the solution with some of its text replaced, the comments behind its lines left out."""
    exercise = form.exercise(name)
    text = COMMENT.sub("", exercise.parsed.text)
    for old, new in swaps:
        assert old in text, old
        text = text.replace(old, new)
    return checker.examine(exercise, source.load_text(text, f"a learner's {name}")[exercise.function])


def body(name):
    """The text of the first region."""
    text = COMMENT.sub("", form.exercise(name).parsed.text)
    return text[text.index("\n", text.index("    # >>> your turn")) + 1:text.index("    # <<<")]


TRITON = [name for name in form.names() if form.exercise(name).triton]


@pytest.mark.parametrize("name", TRITON)
def test_the_closed_form_is_what_the_solution_moves(name):
    exercise = form.exercise(name)
    for case in exercise.cases:
        facts = judge.expect(exercise, case).outcome.facts
        assert facts["moved"] == exercise.needed(case.make()), str(case)


@pytest.mark.parametrize("name, code", [
    ("ex09_vector_add", "def axpy(a, X, Y, Out, B):\n    Out.copy_(a * X.float() + Y.float())"),
    ("ex10_tile_of_scores", "def scores(Q, K, S, scale, B_r, B_c):\n    S.copy_(Q @ K.T * scale)"),
])
def test_pytorch_in_place_of_the_kernel(name, code):
    is_called(said(name, code), "no_launch", "no kernel was launched")


def test_pytorch_before_or_after_the_kernel():
    launch, end = "    scores_kernel[grid](", "len(Q), len(K), Q.shape[1], B_r, B_c)\n"
    after = edited("ex10_tile_of_scores", ("*S.stride(), scale,", "*S.stride(), 1.0,"), (end, f"{end}    S *= scale\n"))
    is_called(after, "not_by_kernel", "PyTorch computed part of it (line", "`S *= scale`")
    before = edited("ex10_tile_of_scores", (launch, f"    Q = Q.contiguous()\n{launch}"))
    is_called(before, "not_by_kernel", "`Q = Q.contiguous()`")


def looped(name, head):
    """The first region's lines inside a loop, without those that the head takes the place of."""
    first, *rest = body(name).splitlines(keepends=True)
    return body(name), head + textwrap.indent("".join(rest), "    ")


@pytest.mark.parametrize("name, swaps", [
    ("ex09_vector_add",
     [looped("ex09_vector_add", "    for p in range(0, tl.cdiv(N, B)):\n        i = p * B + tl.arange(0, B)\n"),
      ("grid = (triton.cdiv(N, B),)", "grid = (1,)")]),
    ("ex09_row_softmax", [looped("ex09_row_softmax", "    for row in range(0, M):\n"),
                          ("stride_Yn, N, B: tl", "stride_Yn, M, N, B: tl"),
                          ("*Y.stride(), N, B)", "*Y.stride(), M, N, B)"),
                          ("grid = (M,)", "grid = (1,)")]),
])
def test_one_program_that_loops_over_all(name, swaps):
    is_called(edited(name, *swaps), "one_program", "the grid has 1 program,")


def test_the_first_program_does_the_work_of_all():
    mine = body("ex10_triton_forward").replace("i.to(tl.int64) * B_r", "i * B_r")
    all_by_one = f"    for i in range(0, tl.cdiv(N_q, B_r) * (tl.program_id(0) == 0)):\n{textwrap.indent(mine, '    ')}"
    report = edited("ex10_triton_forward", ("i, h = tl.program_id(0), ", "h = "),
                    (body("ex10_triton_forward"), all_by_one))
    is_called(report, "idle_programs", "2 of the 4 programs did all the storing")


STORE_C = "    tl.store(C + rows * stride_Cm + cols * stride_Cn, acc.to(C.dtype.element_ty), (rows < M) & (cols < N))\n"
LOAD_K = ("        K_j = tl.load(K + keys[:, None] * stride_Kn + cols * stride_Kd, "
          "mask=keys[:, None] < N_k, other=0.0)\n")
LOAD_X = 'tl.load(X + row * stride_Xm + cols * stride_Xn, cols < N, -float("inf")).to(tl.float32)'
DOT, LAUNCH_C = 'acc, input_precision="ieee")\n', "*C.stride(), B_m, B_n, B_k)"


@pytest.mark.parametrize("name, mistake, words, swaps", [
    ("ex09_matmul", "stored_too_often", "C was stored 2 times as often as needed",
     [(STORE_C, ""), (DOT, f"{DOT}    {STORE_C}")]),
    ("ex10_triton_forward", "read_too_often", "K was read 2 times as often as needed", [(LOAD_K, 2 * LOAD_K)]),
    ("ex09_row_softmax", "read_too_often", "X was read 3 times as often as needed",
     [("tl.max(x, 0)", f"tl.max({LOAD_X}, 0)"), ("tl.sum(e, 0)", f"tl.sum(tl.exp({LOAD_X} - tl.max(x, 0)), 0)")]),
    ("ex09_row_softmax", "library_softmax", "a library computed the softmax (line",
     [("y = e / tl.sum(e, 0)", "y = tl.softmax(x)")]),
    ("ex09_vector_add", "atomics", "atomics updated 16 elements of Out",
     [("tl.store(Out + i, a * x + y, mine)", "tl.atomic_add(Out + i, (a * x + y).to(Out.dtype.element_ty), mine)"),
      ("    axpy_kernel[grid]", "    Out.zero_()\n    axpy_kernel[grid]")]),
    ("ex10_tile_of_scores", "too_many_programs", "the grid has 2 programs, 1 are enough",
     [("(triton.cdiv(len(Q), B_r), ", "(1 + triton.cdiv(len(Q), B_r), ")]),
    ("ex09_matmul", "tile_too_large", "512 elements of A were loaded at once: at most 256 are allowed",
     [(LAUNCH_C, LAUNCH_C.replace("B_k", "2 * B_k"))]),
    ("ex09_row_softmax", "scratch", "went through HBM",
     [("X, Y, stride_Xm", "X, Y, T, stride_Xm"), ("[grid](X, Y, ", "[grid](X, Y, torch.empty(B), "),
      ("    y = e /", "    tl.store(T + cols, e, cols < N)\n    y = e /"),
      ("import triton\n", "import torch\nimport triton\n")]),
])
def test_the_numbers_are_right_but(name, mistake, words, swaps):
    is_called(edited(name, *swaps), mistake, words)


def test_a_kernel_of_the_package_is_no_answer():
    report = said("ex09_row_softmax", """
        from flashlab_course.gpu import row_softmax as ready
        def row_softmax(X, Y):
            Y.copy_(ready.row_softmax(X.contiguous()))
        """)
    is_called(report, "ready_answer", "`flashlab_course.gpu.row_softmax.row_softmax` was used")


def test_a_kernels_own_nan_is_stored():
    """What a kernel loads beside its input has the bits of poison, and keeps them: still it was stored."""
    report = edited("ex10_tile_of_scores", ("S_ij, mask=(rows < N_q)", 'S_ij * float("nan"), mask=(rows < N_q)'))
    assert "no kernel stored" not in report.message, str(report)
    report = edited("ex10_tile_of_scores", ("tl.trans(K_j), ", "tl.trans(K_j * tl.load(K - 5)), "))
    assert "no kernel stored" not in report.message, str(report)
    assert "loaded K, 5 elements before its first" in report.message, str(report)


def test_a_kernel_that_only_copies_gets_one_sentence():
    report = said("ex09_row_softmax", """
        @triton.jit
        def copy(X, Y, to_next, step, N, B: tl.constexpr):
            cols = tl.arange(0, B)
            row = tl.load(X + tl.program_id(0) * N + cols, cols < N)
            tl.store(Y + tl.program_id(0) * to_next + cols * step, row, cols < N)

        def row_softmax(X, Y):
            M, N = X.shape
            copy[(M,)](torch.softmax(X, 1), Y, *Y.stride(), N, triton.next_power_of_2(N))
        """)
    is_called(report, "library_softmax", "softmax (line 13); your kernel only copies the result.")
    assert "were read" not in report.message, str(report)


def test_rows_past_the_end_may_start_again_at_the_first():
    report = edited("ex09_matmul", ("A + rows * stride_Am", "A + (rows % M) * stride_Am"),
                    ("(rows < M) & (inner[None, :] < K), 0.0", "inner[None, :] < K, 0.0"),
                    ("+ cols * stride_Bn", "+ (cols % N) * stride_Bn"),
                    ("(inner[:, None] < K) & (cols < N), 0.0", "inner[:, None] < K, 0.0"))
    assert report.passed and "past the end of A was read again from its start" in report.message, str(report)


def test_a_grid_may_be_a_function():
    lazy = ("grid = (triton.cdiv(N, B),)", 'grid = lambda meta: (triton.cdiv(meta["N"], meta["B"]),)')
    assert edited("ex09_vector_add", lazy).passed


def test_on_a_gpu_launches_and_programs_are_known_all_the_same():
    """There nobody sees an access: what is left of the facts has to do, and nothing may be said for want of the
    others."""
    exercise = form.exercise("ex09_vector_add")
    seen = ("moved", "largest", "atomic", "scratch", "workers")
    right = judge.expect(exercise, exercise.cases[1]).outcome.facts
    left = {key: value for key, value in right.items() if key not in seen}
    found = [structure.findings(exercise, runner.Outcome(facts=left | change), runner.Outcome(facts=left), True)
             for change in ({}, {"programs": 0}, {"programs": 1}, {"missed": {"Out": (16, 32, "Out[16]")}})]
    assert [[finding.kind for finding in each] for each in found] == [[], ["no_launch"], ["one_program"],
                                                                      ["not_stored"]]


# ---- the counter, for whoever wants to plot it

def test_traffic_counts_bytes_under_the_masks_and_each_address_once():
    @triton.jit
    def copies(X, Out, Sum, N, B: tl.constexpr):
        i = tl.arange(0, B)
        x = tl.load(X + 2 * i, i < N)
        x = x + tl.load(X + 0 * i, i < N)                # one address for all lanes
        tl.store(Out + i, x, i < N)
        tl.atomic_add(Sum + 0 * i, x, i < N)

    X, Out, Sum = torch.ones(40, dtype=torch.float16), torch.zeros(20), torch.zeros(1)
    with watch(Traffic(X=X[::2], Out=Out, Sum=Sum)) as traffic:
        copies[(1,)](X[::2], Out, Sum, 20, 32)
        copies[(2,)](X[::2], Out, Sum, 20, 32)
    assert traffic.read == {"X": 3 * (20 + 1) * 2, "Out": 0, "Sum": 3 * 20 * 4}
    assert traffic.written == {"X": 0, "Out": 3 * 20 * 4, "Sum": 3 * 20 * 4} and traffic.atomic["Sum"] == 60
    assert traffic.largest == {"X": 20, "Out": 0, "Sum": 0} and traffic.programs == 3 and len(traffic.launches) == 2
