"""The softmaxes, the merge, and block products: lessons with oracles of their own."""

import pytest
import torch

from flashlab import cost
from flashlab.memory import Memory
from flashlab.oracle import attention, max_error
from flashlab.rungs.block_matmul import attention_without_softmax, block_matmul, softmax_star_attention
from flashlab.rungs.online_softmax import merge, safe_softmax, softmax_three_pass, softmax_two_pass, softmax_weighted_sum

SOFTMAXES = [safe_softmax, softmax_three_pass, softmax_two_pass]


@pytest.mark.parametrize("f", SOFTMAXES)
@pytest.mark.parametrize("N", [1, 7, 97])
@pytest.mark.parametrize("size", [1, 60, 1000])
def test_softmaxes(f, N, size):
    x = torch.randn(N, generator=torch.Generator().manual_seed(N)) * size     # exp(1000) overflows float32
    assert max_error(f(x), torch.softmax(x.double(), 0)) < 1e-6


@pytest.mark.parametrize("B", [1, 5, 16, 200])
def test_blocks_change_nothing(B):
    x, v = torch.randn(97), torch.randn(97, 8)
    truth = torch.softmax(x.double(), 0)
    assert max_error(softmax_three_pass(x, B=B), truth) < 1e-6
    assert max_error(softmax_two_pass(x, B=B), truth) < 1e-6
    assert max_error(softmax_weighted_sum(x, v, B=B), truth @ v.double()) < 2e-6


@pytest.mark.parametrize("B", [1, 7, 64])
def test_passes_are_measured(B):
    """Three passes read 3N, two read 2N, one reads N and its values: what the names promise."""
    N, d_v = 50, 8
    x, v = torch.randn(N), torch.randn(N, d_v)
    for f, expected in [(lambda: softmax_three_pass(x, B=B), (3 * N, N)), (lambda: softmax_two_pass(x, B=B), (2 * N, N)),
                        (lambda: softmax_weighted_sum(x, v, B=B), (N + N * d_v, d_v)),
                        (lambda: safe_softmax(x), (5 * N + 2, 3 * N + 2))]:
        with Memory() as mem:
            f()
        assert (mem.read // 4, mem.written // 4) == expected


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


def test_merge_of_nothing_is_nothing():
    nothing = torch.zeros(3, 2), torch.full((3,), -torch.inf), torch.zeros(3)
    O, m, l = merge(nothing, nothing)
    assert (O == 0).all() and (m == -torch.inf).all() and (l == 0).all()


@pytest.mark.parametrize("M,K,N,B_m,B_k,B_n", [(8, 4, 8, 4, 2, 2), (7, 5, 9, 3, 2, 4), (1, 1, 1, 8, 8, 8), (30, 17, 23, 9, 16, 8)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_block_matmul(M, K, N, B_m, B_k, B_n, dtype):
    A, B = torch.randn(M, K).to(dtype), torch.randn(K, N).to(dtype)
    with Memory() as mem:
        C = block_matmul(A, B, B_m=B_m, B_n=B_n, B_k=B_k)
    truth = A.double() @ B.double()
    assert C.dtype == dtype and max_error(C, truth) <= 8 * torch.finfo(dtype).eps * truth.abs().max().clamp(min=1)
    assert (mem.read, mem.written, mem.matmul_flops) == cost.block_matmul(M, K, N, B_m=B_m, B_n=B_n, element_size=dtype.itemsize)


def test_attention_without_softmax_is_two_products():
    Q, K, V = torch.randn(20, 8), torch.randn(30, 8), torch.randn(30, 5)
    assert max_error(attention_without_softmax(Q, K, V, B_r=7, B_c=9), Q.double() @ K.double().T @ V.double()) < 1e-4


def test_softmax_star_is_wrong_as_soon_as_there_are_two_tiles():
    Q, K, V = torch.randn(20, 8), torch.randn(30, 8), torch.randn(30, 5)
    right, _ = attention(Q, K, V, scale=1.0)
    assert max_error(softmax_star_attention(Q, K, V, B_r=5, B_c=10), right) > 0.1
    one_tile = softmax_star_attention(Q, K, V, B_r=5, B_c=30)
    ratio = one_tile / right                               # with one tile only the division by the row's sum is missing
    assert torch.allclose(ratio, ratio[:, :1].expand_as(ratio), rtol=1e-3)


def test_bad_input_is_named():
    x = torch.randn(5)
    with pytest.raises(ValueError, match="x must be a vector"):
        softmax_two_pass(torch.randn(2, 2))
    with pytest.raises(ValueError, match="B must be an integer >= 1, got 0"):
        softmax_three_pass(x, B=0)
    with pytest.raises(ValueError, match=r"v must be \(N, d_v\) with N = 5"):
        softmax_weighted_sum(x, torch.randn(4, 2))
    with pytest.raises(ValueError, match=r"B must be a matrix \(K, N\) with K = 3"):
        block_matmul(torch.randn(2, 3), torch.randn(2, 3), B_m=1, B_n=1, B_k=1)
    with pytest.raises(ValueError, match="the states must have equal shapes"):
        merge((torch.zeros(2, 3), torch.zeros(2), torch.zeros(2)), (torch.zeros(1, 3), torch.zeros(1), torch.zeros(1)))
