"""Right numbers are not enough: each exercise's "Not allowed" is enforced, and nothing that it does not name."""

import textwrap

import pytest

from flashlab_course.check import checker, form, source

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
    assert report.hint.startswith(("Not allowed: ", "Look at: ")), str(report)


# ---- a library did it

SOFTMAX = ["torch.softmax(S, -1)", "S.softmax(dim=1)", "F.softmax(S, 1)", "torch.nn.Softmax(dim=-1)(S)",
           "torch.special.softmax(S, -1)", "torch.exp(torch.log_softmax(S, -1))",
           "torch.exp(S - S.logsumexp(1, keepdim=True))"]


@pytest.mark.parametrize("expression", SOFTMAX)
def test_a_librarys_softmax_is_not_written_by_hand(expression):
    report = said("ex03_safe_softmax", f"def safe_softmax(S):\n    return ({expression}).nan_to_num(0)")
    is_called(report, "library_softmax", "in line 10")


ATTENTION = {
    "ex01_attention": """
        def attention(Q, K, V, *, causal=False, scale=None):
            seen = torch.ones(len(Q), len(K), dtype=torch.bool).tril(len(K) - len(Q)) if causal else None
            O = F.scaled_dot_product_attention(Q[None], K[None], V[None], attn_mask=seen, scale=scale)[0]
            return O.nan_to_num(0)
        """,
    "ex01_heads": """
        def multi_head(X_q, X_k, X_v, H):
            q, k, v = (X.view(len(X), H, -1).transpose(0, 1) for X in (X_q, X_k, X_v))
            return F.scaled_dot_product_attention(q, k, v).transpose(0, 1).reshape(X_q.shape)
        """,
    "ex04_softmax_star": """
        def attention_by_tiles(Q, K, V, B_c):
            return F.scaled_dot_product_attention(Q[None], K[None], V[None])[0]
        """,
}


@pytest.mark.parametrize("name", ATTENTION)
def test_a_librarys_attention_is_not_written_by_hand(name):
    is_called(said(name, ATTENTION[name]), "library_attention", "`scaled_dot_product_attention` in line")


AUTOGRAD = {
    "ex08_matmul_gradient": """
        def matmul_backward(X, W, dY):
            X, W = X.clone().requires_grad_(), W.clone().requires_grad_()
            with torch.enable_grad():
                return torch.autograd.grad(X @ W, (X, W), dY)
        """,
    "ex08_softmax_gradient": """
        def softmax_backward(P, dP):
            S = P.log().requires_grad_()
            with torch.enable_grad():
                torch.softmax(S, -1).backward(dP)
            return torch.where(P == 0, 0.0, S.grad.nan_to_num(0))
        """,
    "ex08_ds_tile": """
        def ds_tile(Q_i, K_j, V_j, P_ij, dO_i, D_i, scale):
            dS_ij = P_ij * (dO_i @ V_j.T - D_i[:, None])
            Q, K = Q_i.clone().requires_grad_(), K_j.clone().requires_grad_()
            with torch.enable_grad():
                (scale * Q @ K.T * dS_ij).sum().backward()
            return Q.grad, K.grad
        """,
    "ex08_dv_tile": """
        def dv_tile(Q_i, K_j, dO_i, L_i, scale, hidden=None):
            S = Q_i @ K_j.T * scale
            S = S if hidden is None else S.masked_fill(hidden, -inf)
            P = torch.exp(S - L_i.masked_fill(L_i == -inf, 0)[:, None])
            V = torch.zeros(len(K_j), dO_i.shape[1], requires_grad=True)
            with torch.enable_grad():
                return P, torch.autograd.grad((P @ V * dO_i).sum(), V)[0]
        """,
    "ex11_dropout": """
        def dropout_tile(P_ij, dO_i, V_j, D_i, keep, dropout_p):
            Z = keep / (1 - dropout_p)
            P, V = P_ij.clone().requires_grad_(), V_j.clone().requires_grad_()
            with torch.enable_grad():
                dP, dV = torch.autograd.grad((P * Z) @ V, (P, V), dO_i)
            return dV, P_ij * (dP - D_i[:, None])
        """,
}


@pytest.mark.parametrize("name", AUTOGRAD)
def test_autograd_is_not_written_by_hand(name):
    report = said(name, AUTOGRAD[name])
    assert report.mistake == "autograd" and "it asked autograd for the gradient in line" in report.message, str(report)
    assert "Wrong" not in report.message and "Not allowed" in report.hint, str(report)


# ---- the answer was there already

READY = {
    "ex01_attention": """
        from flashlab.rungs.naive import naive_forward
        def attention(Q, K, V, *, causal=False, scale=None):
            return naive_forward(Q, K, V, causal=causal, scale=scale)[0]
        """,
    "ex04_softmax_star": """
        import flashlab.rungs.fa2 as fa2
        def attention_by_tiles(Q, K, V, B_c):
            return fa2.fa2_forward(Q, K, V, B_c=B_c, B_r=4)[0]
        """,
    "ex05_tile_sizes": """
        from flashlab.tiles import largest_square_tile, paper_tile_sizes
        def tile_sizes(sram_bytes, d, d_v, element_size):
            M, B = sram_bytes // element_size, 16
            while 8 * (B + 16) * max(d, d_v) + 3 * (B + 16) ** 2 <= M:
                B += 16
            return *paper_tile_sizes(sram_bytes, d, element_size), B
        """,
    "ex06_use_of_L": """
        from flashlab_course.check import form
        def combine(O_a, L_a, O_b, L_b):
            return form.exercise("ex06_use_of_L").solution()(O_a, L_a, O_b, L_b)
        """,
    "ex07_traffic_fa1": """
        from flashlab.memory import KiB, Memory
        from flashlab.rungs.fa1 import fa1_forward
        def fa1_traffic(N_q, N_k, d, d_v, B_r, B_c):
            inputs = torch.ones(N_q, d), torch.ones(N_k, d), torch.ones(N_k, d_v)
            with Memory(1024 * KiB) as mem:
                fa1_forward(*inputs, B_r=B_r, B_c=B_c)
            return mem.read // 4, mem.written // 4
        """,
    "ex02_vector_add": """
        from flashlab_course.gpu import simt
        def vector_add(A, B, block):
            C = torch.zeros(len(A))
            return C, simt.launch(simt.vector_add, -(-len(A) // block), block)(A, B, C, len(A)).threads
        """,
    "ex02_idle_lanes": """
        from flashlab_course.gpu import simt
        def lanes(N, block):
            A = torch.zeros(N)
            trace = simt.launch(simt.vector_add, -(-N // block), block)(A, A, A.clone(), N)
            return -(-N // block), trace.threads - trace.active_lanes(line=4), trace.idle_lanes(line=4)
        """,
    "ex09_uncoalesced": """
        def read(X, Out, start, stride):
            Out[threadIdx.x] = X[start + threadIdx.x * stride]
        def load(start, stride, itemsize):
            dtype = {2: torch.int16, 4: torch.int32, 8: torch.int64}[itemsize]
            X, Out = torch.zeros(start + 32 * abs(stride) + 1, dtype=dtype), torch.zeros(32, dtype=dtype)
            sectors = launch(read, 1, 32)(X, Out, start, stride).sectors("load")[0]
            return sectors, sectors <= itemsize
        """,
}


@pytest.mark.parametrize("name", READY)
def test_a_ready_answer_is_no_answer(name):
    is_called(said(name, READY[name]), "ready_answer", "to be worked out without it")


def test_a_solution_of_another_root_is_no_answer_either(tmp_path):
    path = tmp_path / "solutions" / "ex06_use_of_L.py"
    combine = source.load_text(source.solution_path("ex06_use_of_L").read_text(), "another clone's", path)["combine"]
    is_called(checker.examine(form.exercise("ex06_use_of_L"), lambda O_a, L_a, O_b, L_b: combine(O_a, L_a, O_b, L_b)),
              "ready_answer", "to be worked out without it")


def test_a_solution_that_is_imported_is_no_answer(sandbox):
    """Here the learner's file holds the function of solutions/, which is not the one that the checker compares with."""
    path = source.exercise_path("ex03_merge")
    path.write_text("import sys\nsys.path.insert(0, '.')\nfrom pathlib import Path\n"
                    "from flashlab_course.check import source\n"
                    "text = source.solution_path('ex03_merge')\n"
                    "merge = source.load_text(text.read_text(), 'taken over', text)['merge']\n")
    report = checker.examine(form.exercise("ex03_merge"))
    is_called(report, "ready_answer", "`merge` of solutions.ex03_merge")


# ---- one by one, or all at once where pieces are asked for

LOOPS = {
    "a comprehension over heads": ("ex01_heads", """
        def multi_head(X_q, X_k, X_v, H):
            parts = [X.chunk(H, dim=1) for X in (X_q, X_k, X_v)]
            return torch.cat([torch.softmax(q @ k.T / q.shape[1] ** 0.5, 1) @ v for q, k, v in zip(*parts)], 1)
        """),
    "a helper for each head": ("ex01_heads", """
        def attend(q, k, v):
            return torch.softmax(q @ k.T * q.shape[1] ** -0.5, 1) @ v
        def multi_head(X_q, X_k, X_v, H):
            d, O = X_q.shape[1] // H, torch.empty_like(X_q)
            for h in range(H):
                O[:, h * d:(h + 1) * d] = attend(*(X[:, h * d:(h + 1) * d] for X in (X_q, X_k, X_v)))
            return O
        """),
    "a loop over rows": ("ex08_softmax_gradient", """
        def softmax_backward(P, dP):
            return torch.stack([p * (g - p @ g) for p, g in zip(P, dP)])
        """),
    "a loop over elements": ("ex09_tile_offsets", """
        def tile_offsets(i, j, B_m, B_n, M, N, stride_m, stride_n):
            offsets, inside = torch.zeros(B_m, B_n, dtype=torch.int64), torch.zeros(B_m, B_n, dtype=torch.bool)
            for r in range(B_m):
                for c in range(B_n):
                    offsets[r, c] = (i * B_m + r) * stride_m + (j * B_n + c) * stride_n
                    inside[r, c] = i * B_m + r < M and j * B_n + c < N
            return offsets, inside
        """),
    "a list of lists": ("ex09_tile_offsets", """
        def tile_offsets(i, j, B_m, B_n, M, N, stride_m, stride_n):
            at = [[(i * B_m + r, j * B_n + c) for c in range(B_n)] for r in range(B_m)]
            return (torch.tensor([[r * stride_m + c * stride_n for r, c in row] for row in at]),
                    torch.tensor([[r < M and c < N for r, c in row] for row in at]))
        """),
}


@pytest.mark.parametrize("what", LOOPS)
def test_a_loop_where_one_operation_takes_all(what):
    is_called(said(*LOOPS[what]), "loop", "one operation takes all")


TOO_LARGE = {
    "the scores of all keys": ("ex06_published_line", """
        def attention(Q, K, V, B_c, scale):
            S = (Q @ K.T * scale).masked_fill(torch.ones(len(Q), len(K), dtype=torch.bool).triu(1), -inf)
            return torch.softmax(S, -1) @ V, S.logsumexp(-1)
        """),
    "a row's Jacobian at a time": ("ex08_softmax_gradient", """
        def softmax_backward(P, dP):
            dS = P * 0
            for n in range(len(P)):
                dS[n] = (torch.diag(P[n]) - torch.outer(P[n], P[n])) @ dP[n]
            return dS
        """),
    "the mask": ("ex06_causal_skipping", """
        def key_blocks(i, N_q, N_k, B_r, B_c):
            seen = torch.ones(N_q, N_k).tril(N_k - N_q)[i * B_r:(i + 1) * B_r]
            return sum(b.all().item() for b in seen.split(B_c, 1)), sum(b.any().item() for b in seen.split(B_c, 1))
        """),
    "P in the backward": ("ex08_autograd_function", """
        from flashlab.rungs.fa2 import fa2_forward
        class Attention(torch.autograd.Function):
            @staticmethod
            def forward(ctx, Q, K, V, causal, scale):
                O, L = fa2_forward(Q, K, V, causal=causal, scale=scale)
                ctx.save_for_backward(Q, K, V, O, L)
                ctx.causal, ctx.scale = causal, scale
                return O
            @staticmethod
            def backward(ctx, dO):
                Q, K, V, O, L = ctx.saved_tensors
                P = torch.exp(Q @ K.T * ctx.scale - L.masked_fill(L == -inf, 0)[:, None])
                if ctx.causal:
                    P = P.tril(len(K) - len(Q))
                dS = P * (dO @ V.T - (dO * O).sum(1, keepdim=True))
                return dS @ K * ctx.scale, dS.T @ Q * ctx.scale, P.T @ dO, None, None
        def attention(Q, K, V, causal, scale):
            return Attention.apply(Q, K, V, causal, scale)
        """),
}


@pytest.mark.parametrize("what", TOO_LARGE)
def test_a_tensor_that_should_not_be_made(what):
    report = said(*TOO_LARGE[what])
    assert not report.passed and any(text in report.message
                                     for text in ("was made", "were made", "one operation")), str(report)
    assert report.mistake in ("too_large", "loop", "jacobian"), str(report)


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


KEPT_ON_CHIP = {
    "every piece": """
        def online_softmax(x, B):
            m, l, seen = torch.tensor(-inf), torch.tensor(0.0), []
            for part in tiles(len(x), B):
                seen.append(load(x, part))
                m = torch.maximum(m, seen[-1].max())
            for piece in seen:
                l = l + torch.exp(piece - m).sum()
            return m, l
        """,
    "the row": """
        def online_softmax(x, B):
            row = torch.empty(len(x))
            for part in tiles(len(x), B):
                row[part] = load(x, part)
            return row.max(), torch.exp(row - row.max()).sum()
        """,
    "two numbers of each piece": """
        def online_softmax(x, B):
            states = []
            for part in tiles(len(x), B):
                piece = load(x, part)
                states.append((piece.amax(), torch.exp(piece - piece.amax()).sum()))
            m = torch.stack([top for top, _ in states]).amax()
            return m, sum(total * torch.exp(top - m) for top, total in states)
        """,
}


@pytest.mark.parametrize("what", KEPT_ON_CHIP)
def test_what_grows_with_the_row_does_not_fit(what):
    report = said("ex03_online_softmax", KEPT_ON_CHIP[what])
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
    is_called(said(name, code), "no_launch", "came from elsewhere")


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


# ---- right, in other people's words

RIGHT = {
    "numbers of Python as the state": ("ex03_online_softmax", """
        def online_softmax(x, B):
            m, l = -math.inf, 0.0
            for part in tiles(len(x), B):
                piece = load(x, part)
                top = max(m, piece.max().item())
                l = l * math.exp(m - top) + (piece - top).exp().sum().item()
                m = top
            return torch.tensor(m), torch.tensor(l)
        """),
    "an early return of what came in": ("ex03_merge", """
        def merge(state_a, state_b):
            (O_a, m_a, l_a), (O_b, m_b, l_b) = state_a, state_b
            if (m_b == -inf).all():
                return state_a
            if (m_a == -inf).all():
                return state_b
            m = torch.maximum(m_a, m_b)
            a, b = (torch.exp(m_one - m).nan_to_num() for m_one in (m_a, m_b))
            return [a[:, None] * O_a + b[:, None] * O_b, m, a * l_a + b * l_b]
        """),
    "a list of rows": ("ex03_merge", """
        def merge(state_a, state_b):
            rows = []
            for O_a, m_a, l_a, O_b, m_b, l_b in zip(*state_a, *state_b):
                m = max(m_a.item(), m_b.item())
                a, b = (math.exp(x.item() - m) if x > -inf else 0.0 for x in (m_a, m_b))
                rows.append((a * O_a + b * O_b, m, a * l_a.item() + b * l_b.item()))
            O, m, l = zip(*rows)
            return torch.stack(O), torch.tensor(m), torch.tensor(l)
        """),
    "numpy's whole numbers": ("ex06_causal_skipping", """
        def key_blocks(i, N_q, N_k, B_r, B_c):
            first, last = i * B_r, min(i * B_r + B_r, N_q) - 1
            a, b = (numpy.clip(numpy.int64(n + 1 + N_k - N_q), 0, N_k) for n in (first, last))
            visited = numpy.ceil(b / B_c).astype(int)
            return visited if a == N_k else a // B_c, visited
        """),
    "whole numbers in tensors": ("ex07_traffic_fa2", """
        def fa2_traffic(N_q, N_k, d, d_v, B_r, B_c):
            T_r = torch.tensor(-(-N_q // B_r))
            return N_q * d + T_r * N_k * (d + d_v), torch.tensor(N_q * d_v + N_q)
        """),
    "a numpy bool": ("ex09_uncoalesced", """
        def load(start, stride, itemsize):
            sectors = numpy.unique((start + stride * numpy.arange(32)) * itemsize // 32).size
            return numpy.int64(sectors), numpy.bool_(sectors <= itemsize)
        """),
    "lists for tuples": ("ex09_view_strides", """
        def view(shape, strides, offset, order, starts, steps):
            for n, a in zip(order, starts):
                offset += a * strides[n]
            return ([numpy.int64(-(-(shape[n] - a) // s)) for n, a, s in zip(order, starts, steps)],
                    torch.Size([strides[n] * s for n, s in zip(order, steps)]), numpy.int32(offset))
        """),
    "numpy's threads": ("ex02_vector_add", """
        def add_kernel(A, B, C, N):
            i = blockIdx.x * blockDim.x + threadIdx.x
            if i < N:
                C[i] = A[i] + B[i]
        def vector_add(A, B, block):
            C = torch.empty(len(A))
            blocks = int(numpy.ceil(len(A) / block))
            launch(add_kernel, blocks, block)(A, B, C, len(A))
            return C, numpy.int64(blocks) * block
        """),
    "vmap over heads": ("ex01_heads", """
        def multi_head(X_q, X_k, X_v, H):
            def attend(q, k, v):
                return F.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v
            return torch.vmap(attend, 1, 1)(*(X.unflatten(1, (H, -1)) for X in (X_q, X_k, X_v))).flatten(1)
        """),
    "a loop over queries, where none is excluded": ("ex01_attention", """
        def attention(Q, K, V, *, causal=False, scale=None):
            rows = []
            for n, q in enumerate(Q):
                seen = len(K) if not causal else max(0, min(len(K), n + 1 + len(K) - len(Q)))
                s = K[:seen] @ q * (q.numel() ** -0.5 if scale is None else scale)
                rows.append(s.softmax(0) @ V[:seen] if seen else torch.zeros(V.shape[1]))
            return torch.stack(rows)
        """),
    "tiles of the memory model, outside it": ("ex04_softmax_star", """
        def attention_by_tiles(Q, K, V, B_c):
            parts = []
            for cols in tiles(len(K), B_c):
                S = Q @ K[cols].T / math.sqrt(Q.shape[1])
                parts.append((S.logsumexp(-1), S.softmax(-1) @ V[cols]))
            weights = torch.stack([L for L, _ in parts]).softmax(0)
            return sum(w[:, None] * O for w, (_, O) in zip(weights, parts))
        """),
    "A's tiles kept where they fit": ("ex04_block_matmul", """
        def block_matmul(A, B, C, B_m, B_n, B_k):
            for rows in tiles(len(A), B_m):
                kept = {}
                for cols in tiles(B.shape[1], B_n):
                    acc = torch.zeros(rows.stop - rows.start, cols.stop - cols.start)
                    for n, inner in enumerate(tiles(len(B), B_k)):
                        tile = kept.get(n)
                        if tile is None:
                            tile = load(A, rows, inner)
                            if len(B) <= 30:
                                kept[n] = tile
                        acc += tile.float() @ load(B, inner, cols).float()
                    store(C, rows, acc, cols)
        """),
    "a list of Python numbers on chip": ("ex08_D", """
        def preprocess(O, dO, D, rows):
            products = load(O, rows).to(D.dtype) * load(dO, rows).to(D.dtype)
            store(D, rows, torch.tensor([row.sum().item() for row in products], dtype=D.dtype))
        """),
}


@pytest.mark.parametrize("what", RIGHT)
def test_a_right_answer_that_obeys_the_stub_passes(what):
    report = said(*RIGHT[what])
    assert report.passed, str(report)
