"""Right numbers are not enough: each exercise's "Not allowed" is enforced, and nothing that it does not name."""

import textwrap

import pytest

from flashlab_course.check import checker, form, source

pytestmark = pytest.mark.usefixtures("no_line")

HEAD = """
import math
import numpy
import torch
import torch.nn.functional as F
from flashlab.memory import kernel, load, store, tiles
from flashlab_course.gpu.simt import blockDim, blockIdx, launch, threadIdx
inf = float("inf")
"""
TRITON_HEAD = "import torch\nimport triton\nimport triton.language as tl\n"


def said(name, code):
    """The report on a learner's code, written out whole."""
    exercise = form.exercise(name)
    text = (TRITON_HEAD if exercise.triton else HEAD) + textwrap.dedent(code)
    return checker.examine(exercise, source.load_text(text, f"a learner's {name}")[exercise.function])


def edited(name, *swaps):
    """The report on the solution with some of its text replaced."""
    exercise = form.exercise(name)
    text = exercise.parsed.text
    for old, new in swaps:
        assert old in text, old
        text = text.replace(old, new)
    return checker.examine(exercise, source.load_text(text, f"a learner's {name}")[exercise.function])


def is_called(report, mistake, *words):
    assert not report.passed and report.mistake == mistake, str(report)
    assert "The numbers are right, but" in report.message, str(report)
    for text in words:
        assert text in report.message, str(report)
    assert (report.hint or report.remedy).startswith(("Not allowed: ", "Look at ")), str(report)


# ---- a library did it

OPERATIONS = [
    ("ex03_safe_softmax", "softmax", f"def safe_softmax(S):\n    return ({expression}).nan_to_num(0)") for expression in
    ("torch.nn.Softmax(dim=-1)(S)", "torch.exp(torch.log_softmax(S, -1))", "torch.ops.aten._safe_softmax(S, -1)",
     "torch.exp(S - S.logsumexp(1, keepdim=True))")
] + [
    ("ex01_attention", "attention", """
        def attention(Q, K, V, *, causal=False, scale=None):
            seen = torch.ones(len(Q), len(K), dtype=torch.bool).tril(len(K) - len(Q)) if causal else None
            O = F.scaled_dot_product_attention(Q[None], K[None], V[None], attn_mask=seen, scale=scale)[0]
            return O.nan_to_num(0)
        """),
    ("ex09_view_strides", "strides", """
        def view(shape, strides, offset, order, starts, steps):
            A = numpy.ndarray(shape, "b", bytes(9999), 0, strides).transpose(order)
            A = A[tuple(slice(start, None, step) for start, step in zip(starts, steps))]
            return A.shape, A.strides, offset + sum(start * strides[o] for start, o in zip(starts, order))
        """),
    ("ex09_view_strides", "strides", """
        def view(shape, strides, offset, order, starts, steps):
            T = torch.empty(4096).as_strided(shape, strides, offset).permute(order)
            T = T[tuple(slice(start, None, step) for start, step in zip(starts, steps))]
            return tuple(T.shape), T.stride(), T.storage_offset()
        """),
]


@pytest.mark.parametrize("name, kind, code", OPERATIONS)
def test_a_library_is_seen_whatever_its_function_is_called(name, kind, code):
    is_called(said(name, code), f"library_{kind}", "(line 1")


@pytest.mark.parametrize("new", ["math.e ** (m_i * math.log(2) - m_new * math.log(2))",
                                 "torch.tensor(numpy.exp2((m_i - m_new).numpy()) * numpy.float32(numpy.exp(0.0)))"])
def test_base_e_is_seen_in_a_power_and_in_numpy(new):
    report = edited("ex12_exp2", ("torch.exp2(m_i - m_new)", new),
                    ("import torch", "import math\nimport numpy\nimport torch"))
    is_called(report, "library_base_e", "base e was used")


AUTOGRAD = {
    "ex08_matmul_gradient": """
        def matmul_backward(X, W, dY):
            X, W = X.clone().requires_grad_(), W.clone().requires_grad_()
            with torch.enable_grad():
                return torch.autograd.grad(X @ W, (X, W), dY)
        """,
    "ex08_softmax_gradient": """
        def softmax_backward(P, dP):
            return torch._softmax_backward_data(dP, P, -1, P.dtype)
        """,
}


@pytest.mark.parametrize("name", AUTOGRAD)
def test_autograd_and_its_kernels_are_not_written_by_hand(name):
    report = said(name, AUTOGRAD[name])
    assert report.mistake == "autograd" and "it asked autograd for the gradient (line 1" in report.message, str(report)
    assert "Wrong" not in report.message and "Not allowed" in report.hint, str(report)


# ---- the answer was there already

READY = {
    "ex03_merge": """
        def merge(state_a, state_b):
            from flashlab_course.check import form
            return form.exercise("ex03_merge").solution()(state_a, state_b)
        """,
    "ex07_traffic_naive": """
        def naive_traffic(N_q, N_k, d, d_v):
            moved = formula()(N_q, N_k, d, d_v, element_size=4)
            return moved.read // 4, moved.written // 4

        def formula():
            import flashlab.cost
            return flashlab.cost.naive_forward
        """,
    "ex01_attention": """
        from flashlab.rungs.naive import naive_forward
        def attention(Q, K, V, *, causal=False, scale=None):
            return naive_forward(Q, K, V, causal=causal, scale=scale)[0]
        """,
    "ex02_vector_add": """
        from flashlab_course.gpu import simt
        def vector_add(A, B, block):
            C = torch.zeros(len(A))
            return C, simt.launch(simt.vector_add, -(-len(A) // block), block)(A, B, C, len(A)).threads
        """,
}


@pytest.mark.parametrize("name", READY)
def test_a_ready_answer_is_no_answer(name):
    is_called(said(name, READY[name]), "ready_answer", "to be worked out without it")


def test_a_solution_of_another_root_is_no_answer_either(tmp_path):
    path = tmp_path / "solutions" / "ex06_use_of_L.py"
    combine = source.load_text(source.solution_path("ex06_use_of_L").read_text(), "another clone's", path)["combine"]
    is_called(checker.examine(form.exercise("ex06_use_of_L"), combine), "ready_answer", "to be worked out without it")


def test_a_solution_that_is_imported_is_no_answer(sandbox):
    """Here the learner's file holds the function of solutions/, which is not the one that the checker compares with."""
    path = source.exercise_path("ex03_merge")
    path.write_text("import sys\nsys.path.insert(0, '.')\nfrom pathlib import Path\n"
                    "from flashlab_course.check import source\n"
                    "text = source.solution_path('ex03_merge')\n"
                    "merge = source.load_text(text.read_text(), 'taken over', text)['merge']\n")
    report = checker.examine(form.exercise("ex03_merge"))
    is_called(report, "ready_answer", "`solutions.ex03_merge.merge` was used")


# ---- one by one, or all at once where pieces are asked for

def test_a_loop_where_one_operation_takes_all():
    """A comprehension over heads."""
    is_called(said("ex01_heads", """
        def multi_head(X_q, X_k, X_v, H):
            parts = [X.chunk(H, dim=1) for X in (X_q, X_k, X_v)]
            return torch.cat([torch.softmax(q @ k.T / q.shape[1] ** 0.5, 1) @ v for q, k, v in zip(*parts)], 1)
        """), "loop", "one operation takes all")


def test_a_tensor_that_should_not_be_made():
    """The scores of all keys."""
    report = said("ex06_published_line", """
        def attention(Q, K, V, B_c, scale):
            S = (Q @ K.T * scale).masked_fill(torch.ones(len(Q), len(K), dtype=torch.bool).triu(1), -inf)
            return torch.softmax(S, -1) @ V, S.logsumexp(-1)
        """)
    assert not report.passed and report.mistake in ("too_large", "loop", "jacobian"), str(report)
    assert any(text in report.message for text in ("was made", "were made", "one operation")), str(report)


PIECES = {
    "the whole row": ("ex03_online_softmax", """
        def online_softmax(x, B):
            row = load(x, slice(0, len(x)))
            return row.max(), torch.exp(row - row.max()).sum()
        """, "elements of x were loaded at once: at most"),
    "a whole strip of A": ("ex04_block_matmul", """
        def block_matmul(A, B, C, B_m, B_n, B_k):
            for rows in tiles(len(A), B_m):
                strip = load(A, rows).float()
                for cols in tiles(B.shape[1], B_n):
                    acc = 0
                    for inner in tiles(len(B), B_k):
                        acc = acc + strip[:, inner] @ load(B, inner, cols).float()
                    store(C, rows, acc, cols)
        """, "8 elements of A were loaded at once: at most 4 are allowed"),
    "two key blocks at once": ("ex06_fa2_inner_loop", None, "elements of K were loaded at once"),
}


@pytest.mark.parametrize("what", PIECES)
def test_a_piece_that_is_too_large(what):
    name, code, words = PIECES[what]
    report = edited(name, ("tiles(len(K), B_c)", "tiles(len(K), 2 * B_c)")) if code is None else said(name, code)
    assert report.mistake in ("tile_too_large",
                              "all_at_once") and "The numbers are right, but" in report.message, str(report)
    assert words in report.message and "have to be" not in report.message, str(report)


def test_a_tile_that_does_not_fit_is_shown_in_the_learners_line():
    report = said("ex03_online_softmax", """
        def online_softmax(x, B):
            row = torch.cat([load(x, part) for part in tiles(len(x), B)])
            return row.max(), torch.exp(row - row.max()).sum()
        """)
    assert ":11: row = torch.cat(" in report.message, str(report)
    assert "live: 96 tiles made in line 11 (2,)" in report.message, str(report)


def test_what_grows_with_the_row_does_not_fit():
    report = said("ex03_online_softmax", """
        def online_softmax(x, B):
            m, l, seen = torch.tensor(-inf), torch.tensor(0.0), []
            for part in tiles(len(x), B):
                seen.append(load(x, part))
                m = torch.maximum(m, seen[-1].max())
            for piece in seen:
                l = l + torch.exp(piece - m).sum()
            return m, l
        """)
    assert not report.passed and "The numbers are right, but it raised SRAMOverflow" in report.message, str(report)
    assert [case.passed for case in report.cases].count(False) == 1 and "“a long row" in report.message, str(report)


def test_much_work_on_one_piece_fits():
    report = said("ex03_online_softmax", """
        def online_softmax(x, B):
            m, l = torch.tensor(-inf), torch.tensor(0.0)
            for part in tiles(len(x), B):
                piece = load(x, part)
                copy, again = piece.double(), piece.double().flip(0)
                rising, order = copy.sort()
                m_new = torch.maximum(m.double(), rising[-1])
                terms = torch.exp(again[order.argsort()] * 0 + rising - m_new)
                l = (l.double() * torch.exp(m.double() - m_new) + terms.sum()).float()
                m = m_new.float()
            return m, l
        """)
    assert report.passed, str(report)


def test_a_breach_leads_also_where_the_numbers_are_wrong():
    report = said("ex03_safe_softmax", "def safe_softmax(S):\n    return 2 * torch.softmax(S, -1)")
    assert report.message.startswith("A library computed the softmax (line 10"), str(report)


@pytest.mark.parametrize("name, swaps", [
    ("ex13_split_and_merge", [
        ("Q_i = load(Q, slice(None))", "Q_i = load(Q, slice(None)) if blocks else torch.zeros(len(Q), Q.shape[1])"),
        ("O_all + weight[:, None] * O_s", "O_all + weight[:, None] * O_s + 0.1 * (L_s == -inf).any()")]),
    ("ex04_block_matmul", [
        ("for rows in tiles(A.shape[0], B_m):", "kept = {}\n    for rows in tiles(A.shape[0], B_m):"),
        ("A_tile = load(A, rows, inner)", "place = rows.start, inner.start\n                "
         "A_tile = kept[place] = kept[place] if place in kept else load(A, rows, inner)"),
        ("store(C, rows, C_tile, cols)", "store(C, rows, C_tile + 0.1 * (A.shape[0] > B_m), cols)")]),
])
def test_fewer_bytes_are_no_news_where_they_are_allowed(name, swaps):
    report = edited(name, *swaps)
    assert not report.passed and "were read" not in report.message, str(report)


# ---- modelled threads

@pytest.mark.parametrize("name, code", [
    ("ex02_vector_add", "def vector_add(A, B, block):\n    return A + B, -(-len(A) // block) * block"),
    ("ex02_matrix_scale", """
        def scale_rows(X, factors, block):
            (rows, cols), (x, y) = X.shape, block
            warps = [range(32 * w, min(32 * w + 32, x * y)) for w in range(-(-x * y // 32))]
            sectors = 0
            for top in range(0, rows, y):
                for left in range(0, cols, x):
                    for lanes in warps:
                        at = [(top + n // x, left + n % x) for n in lanes]
                        sectors += len({(r * cols + c) * 4 // 32 for r, c in at if r < rows and c < cols})
            return X * factors[:, None], sectors
        """),
])
def test_no_kernel_was_launched(name, code):
    is_called(said(name, code), "no_launch", "no kernel was launched, so none computed")


ONE_BLOCK = """
    row = threadIdx.y
    while row < rows:
        col = threadIdx.x
        while col < cols:
            Y[row * cols + col] = factors[row] * X[row * cols + col]
            col += blockDim.x
        row += blockDim.y
"""


def test_one_block_that_loops_over_the_matrix():
    text = form.exercise("ex02_matrix_scale").parsed.text
    body = text[text.index("    col = blockIdx.x"):text.index("    # <<<")]
    report = edited("ex02_matrix_scale", ("return -(-cols // block[0]), -(-rows // block[1])", "return 1, 1"),
                    (body, ONE_BLOCK))
    is_called(report, "too_few_programs", "the grid has 32 threads, 96 are asked for")


@pytest.mark.parametrize("mine",
                         ["threadIdx.x * gridDim.x + blockIdx.x", "N - 1 - (blockIdx.x * blockDim.x + threadIdx.x)"])
def test_threads_that_take_each_others_elements(mine):
    report = edited("ex02_vector_add", ("blockIdx.x * blockDim.x + threadIdx.x", mine), ("if i < N:", "if 0 <= i < N:"))
    is_called(report, "threads_exchanged", "stored an element of C that belongs to thread")
