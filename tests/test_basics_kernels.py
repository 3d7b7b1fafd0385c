"""The Triton kernels of chapter 09: right in the interpreter (or on the GPU); compiled: test_compiled.py."""

from itertools import product

import pytest
import torch

import flashlab  # noqa: F401  before Triton: it decides whether kernels are interpreted

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from flashlab.triton_mode import interpreted  # noqa: E402
from flashlab_course.compiler.lint import Strays  # noqa: E402
from flashlab_course.compiler.watch import watch  # noqa: E402
from flashlab_course.gpu import largest_score, matmul, matrix_add, row_softmax, vector_add, vector_sum  # noqa: E402
from flashlab_course.gpu.matmul import tile_in_groups  # noqa: E402

DEVICE = "cpu" if interpreted() else "cuda"
DTYPES = [torch.float32, torch.float16]
SMALL = {"B_m": 32, "B_n": 16, "B_k": 16}


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("N", [0, 1, 97, 1024, 1025])
@pytest.mark.parametrize("kernel", [vector_add.vector_add_kernel, vector_add.one_by_one_kernel])
def test_vector_add(N, dtype, kernel):
    X, Y = randn(N, dtype=dtype), randn(N, dtype=dtype)
    assert torch.equal(vector_add.vector_add(X, Y, B=64 if N < 100 else 1024, kernel=kernel), X + Y)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turn_x, turn_y", [(False, False), (False, True), (True, True)])
def test_matrix_add_of_any_strides(turn_x, turn_y, dtype):
    X = randn(70, 45, dtype=dtype) if turn_x else randn(45, 70, dtype=dtype).T
    Y = randn(70, 45, dtype=dtype) if turn_y else randn(140, 90, dtype=dtype)[::2, 1::2]
    assert torch.equal(matrix_add.matrix_add(X, Y), X + Y)
    X, Y = randn(45, 72, dtype=dtype), randn(45, 144, dtype=dtype)[:, 72:]
    assert torch.equal(matrix_add.matrix_add(X, Y, descriptors=True), X + Y)


@pytest.mark.parametrize("dtype, eps", list(zip(DTYPES, [1e-6, 1e-3], strict=True)))
@pytest.mark.parametrize("M, N", [(1, 1), (5, 97), (33, 200), (3, 1025), (2, 8192)])
def test_row_softmax(M, N, dtype, eps):
    X = randn(M, N + 3, dtype=dtype)[:, :N] * 10
    Y = row_softmax.row_softmax(X)
    assert Y.dtype == dtype and Y.is_contiguous()
    assert (Y.double() - torch.softmax(X.double(), 1)).abs().max() <= eps
    X = randn(4, 50) * 1e4                                 # large logits, and NaN is kept
    X[0, 3], X[1], X[2, 0] = torch.nan, -1e4, -torch.inf
    torch.testing.assert_close(row_softmax.row_softmax(X), torch.softmax(X, 1), equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("descriptors", [False, True])
@pytest.mark.parametrize("M, K, N, group", [(97, 72, 88, 2), (16, 16, 16, 8), (130, 48, 64, 3)])
def test_matmul(M, K, N, group, descriptors, dtype):
    A, B = randn(M, K, dtype=dtype), randn(K, N, dtype=dtype)
    C = matmul.matmul(A, B, group=group, descriptors=descriptors, **SMALL)
    truth = A.double() @ B.double()
    rounded = torch.finfo(dtype).eps                       # the result, once
    summed = 8 * torch.finfo(torch.float32).eps            # K additions in float32, in an order that GPUs choose
    assert C.dtype == dtype and (C.double() - truth).abs().max() <= (rounded + summed) * truth.abs().max() + 1e-5


def test_matmul_of_transposed_and_strided_matrices_and_of_empty_ones():
    A, B = randn(72, 50).T, randn(88, 144)[:, ::2].T
    torch.testing.assert_close(matmul.matmul(A, B, **SMALL), A @ B, rtol=1e-5, atol=1e-5)
    assert matmul.matmul(randn(0, 5), randn(5, 3)).shape == (0, 3)
    assert torch.equal(matmul.matmul(randn(4, 0), randn(0, 3), **SMALL), torch.zeros(4, 3, device=DEVICE))


WITHIN = {
    "vector_add": lambda: vector_add.vector_add(randn(100), randn(100), B=64),
    "one by one": lambda: vector_add.vector_add(randn(100), randn(100), B=64, kernel=vector_add.one_by_one_kernel),
    "matrix_add": lambda: matrix_add.matrix_add(randn(45, 70), randn(70, 45).T),
    "row_softmax": lambda: row_softmax.row_softmax(randn(5, 97), B_m=2),
    "matmul": lambda: matmul.matmul(randn(50, 40), randn(40, 30), group=2, **SMALL),
    "sum by element": lambda: vector_sum.vector_sum(randn(100), how="element", B=64),
    "sum": lambda: vector_sum.vector_sum(randn(1000), B=64),
}


@pytest.mark.skipif(not interpreted(), reason="compiled kernels hide their addresses")
@pytest.mark.parametrize("name", WITHIN)
def test_no_load_or_store_lies_outside_the_tensors(name):
    with watch(Strays()) as seen:
        WITHIN[name]()
    assert seen.launches and not seen.findings


@triton.jit
def which_tile_kernel(Out, T_m, T_n, group: tl.constexpr):
    i, j = tile_in_groups(tl.program_id(0), T_m, T_n, group)
    tl.store(Out + 2 * tl.program_id(0), i)
    tl.store(Out + 2 * tl.program_id(0) + 1, j)


@pytest.mark.parametrize("T_m, T_n, group", [(1, 1, 1), (5, 4, 1), (5, 4, 2), (4, 3, 8), (7, 2, 3)])
def test_the_order_of_tiles_in_the_picture_is_the_kernels_own(T_m, T_n, group):
    Out = torch.full((T_m * T_n, 2), -1, device=DEVICE)
    which_tile_kernel[(T_m * T_n,)](Out, T_m, T_n, group)
    tiles = matmul.tiles_in_order(T_m, T_n, group)
    assert [tuple(tile) for tile in Out.tolist()] == tiles
    assert sorted(tiles) == [(i, j) for i in range(T_m) for j in range(T_n)]
    if group == 1:
        assert tiles == sorted(tiles)


@pytest.mark.parametrize("N", [1, 1000, 5000])
def test_vector_sum(N):
    X = randn(N)
    for how in ("element", "block", "partial"):
        found = vector_sum.vector_sum(X, how=how)[0].double()
        torch.testing.assert_close(found, X.double().sum(), rtol=1e-5, atol=1e-4)


def test_both_ways_of_loading_keys_give_the_same_scores():
    Q, K = randn(64, 32), randn(96, 32)
    for transposed, blind in product((False, True), repeat=2):
        scores = largest_score.largest_scores(Q, K, transposed_load=transposed, blind=blind, B_r=32, B_c=32)
        torch.testing.assert_close(scores, (Q @ K.T).amax(1), rtol=1e-5, atol=1e-5)


WRONG = {
    "vector_add shapes": (lambda: vector_add.vector_add(randn(3), randn(4)), ValueError, "Y must have X's shape"),
    "vector_add int": (lambda: vector_add.vector_add(*[torch.arange(3, device=DEVICE)] * 2), TypeError,
                       "X must be one of torch.float16, torch.float32, got"),
    "vector_add strided": (lambda: vector_add.vector_add(randn(6)[::2], randn(3)), ValueError, "X must be contiguous"),
    "matrix_add ndim": (lambda: matrix_add.matrix_add(randn(3), randn(3)), ValueError, "X must have 2 dimensions"),
    "matrix_add descriptor": (
        lambda: matrix_add.matrix_add(randn(8, 5), randn(8, 5), descriptors=True), ValueError, "16 bytes"),
    "row_softmax wide": (lambda: row_softmax.row_softmax(randn(1, 40000)), ValueError, "at most 32768 columns"),
    "row_softmax gaps": (lambda: row_softmax.row_softmax(randn(4, 6).T), ValueError, "rows without gaps"),
    "matmul inner": (lambda: matmul.matmul(randn(3, 4), randn(5, 3)), ValueError, "B must have as many rows"),
    "matmul precision": (
        lambda: matmul.matmul(randn(3, 4), randn(4, 3), precision="fp8"), ValueError, "precision must be one of"),
    "vector_sum how": (lambda: vector_sum.vector_sum(randn(3), how="magic"), ValueError, "how must be"),
    "largest_scores sizes": (
        lambda: largest_score.largest_scores(randn(100, 64), randn(64, 64)), ValueError, "multiple of 128"),
}


@pytest.mark.parametrize("call, error, words", WRONG.values(), ids=WRONG)
def test_bad_inputs_are_named_before_anything_is_launched(call, error, words):
    with pytest.raises(error, match=words):
        call()
