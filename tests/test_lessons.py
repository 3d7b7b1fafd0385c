"""The lessons: softmaxes, merge and block products are right; the built notebooks keep the course's rules."""

import ast
import functools
import importlib.util
import itertools
import re
from itertools import product
from pathlib import Path

import pytest
import torch

from flashlab import cost
from flashlab.memory import Memory
from flashlab.oracle import attention, max_error
from flashlab.rungs.block_matmul import block_matmul, softmax_star_attention
from flashlab.rungs.online_softmax import merge, softmax_three_pass, softmax_two_pass, softmax_weighted_sum
from flashlab_course.lesson.predictions import REASONS
from flashlab_course.lesson.truths import TRUTHS


@pytest.mark.parametrize("B", [1, 5, 16, 200])
def test_softmaxes_in_blocks_of_any_size(B):
    for N, size in product((1, 7, 97), (1, 60, 1000)):             # exp(1000) overflows float32
        x, v = torch.randn(N) * size, torch.randn(N, 8)
        truth = torch.softmax(x.double(), 0)
        assert max_error(softmax_three_pass(x, B=B), truth) < 1e-6
        assert max_error(softmax_two_pass(x, B=B), truth) < 1e-6
        assert max_error(softmax_weighted_sum(x, v, B=B), truth @ v.double()) < 3e-6


@pytest.mark.parametrize("B", [1, 7, 64])
def test_passes_are_measured(B):
    """Three passes read 3N, two read 2N, one reads N and its values: what the names promise."""
    N, d_v = 50, 8
    x, v = torch.randn(N), torch.randn(N, d_v)
    for call, read, written in [
        (lambda: softmax_three_pass(x, B=B), 3 * N, N), (lambda: softmax_two_pass(x, B=B), 2 * N, N),
        (lambda: softmax_weighted_sum(x, v, B=B), N + N * d_v, d_v),
    ]:
        with Memory() as mem:
            call()
        assert (mem.read // 4, mem.written // 4) == (read, written)


@pytest.mark.parametrize("cut", [0, 1, 30, 49, 50])
def test_merge_of_two_halves_is_the_whole(cut):
    Q, K, V = torch.randn(12, 16), torch.randn(50, 16), torch.randn(50, 8)
    whole_O, whole_L = attention(Q, K, V)
    halves = []
    for part in (slice(0, cut), slice(cut, None)):
        O, L = attention(Q, K[part], V[part])
        halves.append((O, L, torch.ones_like(L).masked_fill(L == -torch.inf, 0)))     # a finished pair as a state
    for a, b in (halves, halves[::-1]):
        O, m, l = merge(a, b)
        assert max_error(O / l[:, None], whole_O) < 1e-12
        assert max_error(m + l.log(), whole_L) < 1e-12
    nothing = torch.zeros(3, 2), torch.full((3,), -torch.inf), torch.zeros(3)
    assert all(torch.equal(*pair) for pair in zip(merge(nothing, nothing), nothing, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_block_matmul(dtype):
    for M, K, N, B_m, B_k, B_n in [(8, 4, 8, 4, 2, 2), (7, 5, 9, 3, 2, 4), (1, 1, 1, 8, 8, 8), (30, 17, 23, 9, 16, 8)]:
        A, B = torch.randn(M, K).to(dtype), torch.randn(K, N).to(dtype)
        with Memory() as mem:
            C = block_matmul(A, B, B_m=B_m, B_n=B_n, B_k=B_k)
        truth = A.double() @ B.double()
        assert C.dtype == dtype and max_error(C, truth) <= 8 * torch.finfo(dtype).eps * truth.abs().max().clamp(min=1)
        expected = cost.block_matmul(M, K, N, B_m=B_m, B_n=B_n, element_size=dtype.itemsize)
        assert (mem.read, mem.written, mem.matmul_flops) == expected


def test_softmax_star_is_wrong_as_soon_as_there_are_two_tiles():
    Q, K, V = torch.randn(20, 8), torch.randn(30, 8), torch.randn(30, 5)
    right, _ = attention(Q, K, V, scale=1.0)
    assert max_error(softmax_star_attention(Q, K, V, B_r=5, B_c=10), right) > 0.1
    ratio = softmax_star_attention(Q, K, V, B_r=5, B_c=30) / right
    assert torch.allclose(ratio, ratio[:, :1].expand_as(ratio), rtol=1e-3), "one tile: the division by a sum is missing"


def test_bad_input_is_named():
    x, state = torch.randn(5), (torch.zeros(2, 3), torch.zeros(2), torch.zeros(2))
    for call, words in (
            (lambda: softmax_two_pass(torch.randn(2, 2)), "x must be a vector"),
            (lambda: softmax_three_pass(x, B=0), "B must be an integer >= 1, got 0"),
            (lambda: softmax_weighted_sum(x, torch.randn(4, 2)), r"v must be \(N, d_v\) with N = 5"),
            (lambda: block_matmul(torch.randn(2, 3), torch.randn(2, 3), B_m=1, B_n=1, B_k=1),
             r"B must be a matrix \(K, N\) with K = 3"),
            (lambda: merge(state, [T[:1] for T in state]), "the states must have equal shapes")):
        with pytest.raises(ValueError, match=words):
            call()


# ---- the rules for a chapter, held against the built notebooks

spec = importlib.util.spec_from_file_location("build", Path(__file__).resolve().parent.parent / "notebooks/build.py")
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)

LINES_OF_OUTPUT, ROWS_OF_A_TABLE, CELLS_FOR_ONE_TO_DO = 25, 5, 6
DRAWN = {"image/png", "image/svg+xml", "text/html"}
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d[\d,]*\.?\d*(?:e[-+]?\d+)?|inf|nan)(?!\w)", re.IGNORECASE)
TO_DO = re.compile(r"^check\(|^# Your |\bTODO\b|^my_\w+(, my_\w+)* = .*\bNone\b", re.MULTILINE)
SOURCES = build.find(build.HERE)


@functools.cache
def cells(source):
    """[(section, cell)] of the built notebook, or of what git has of it where a learner has worked in it."""
    section, found = "", []
    for cell in build.built(build.convert(source), build.HERE / f"{source.stem}.ipynb").cells:
        if cell.cell_type == "markdown":
            section = ([section] + re.findall(r"^#+ .*", cell.source, re.MULTILINE))[-1]
        else:
            found.append((section, cell))
    return found


def text_of(cell):
    """What a cell prints, pictures and panels left out: they come with a text for where they cannot be shown."""
    streams = [output.text for output in cell.outputs if output.output_type == "stream"]
    shown = [output.data for output in cell.outputs if not DRAWN & set(output.get("data", DRAWN))]
    return "".join(streams + [data.get("text/plain", "") + "\n" for data in shown])


def longest_table(text):
    """The most lines in a row that hold equally many numbers, two or more: a printed table, or sentences in a loop."""
    counts = [len(NUMBER.findall(line)) for line in text.splitlines()]
    return max((len(list(rows)) for numbers, rows in itertools.groupby(counts) if numbers >= 2), default=0)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_chapter_prints_little(source):
    """A wall of numbers is not read: 25 lines a cell, five rows a table."""
    assert longest_table("a  b\n1 -2\ninf 1e-3\nS_1 and d_2\n") == 2
    for section, cell in cells(source):
        text = text_of(cell)
        assert len(text.splitlines()) <= LINES_OF_OUTPUT, f"{section}: this cell prints too much:\n{cell.source}"
        assert longest_table(text) <= ROWS_OF_A_TABLE, f"{section}: draw this table:\n{text}"


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_chapter_gives_the_learner_something_to_do(source):
    """For every six code cells a check, a prediction (`my_... = None`), or a cell left to the learner (`# Your`)."""
    code = [cell for _, cell in cells(source)]
    to_do = [cell for cell in code if TO_DO.search(cell.source)]
    assert CELLS_FOR_ONE_TO_DO * len(to_do) >= len(code), f"{len(to_do)} things to do in {len(code)} code cells"


def test_truths_and_reasons_belong_to_predictions():
    """Fails for one whose prediction has gone or has another name: nobody would ever read it."""
    asked = set(re.findall(r"""compare\(\s*["'](.*?)["'],""", "".join(source.read_text() for source in SOURCES)))
    assert (set(TRUTHS) | set(REASONS)) - asked == set()


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_no_answer_to_a_prediction_stands_in_its_cell(source):
    """A truth is computed there, or comes from the package: a number in the call would be read before it is guessed."""
    for call in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "compare" and len(call.args) > 2:
            assert any(isinstance(node, ast.Name) for node in ast.walk(call.args[2])), ast.unparse(call)
