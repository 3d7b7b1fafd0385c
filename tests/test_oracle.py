"""The judge itself: it must pass what is right, and fail what is wrong, NaN first of all."""

import pytest
import torch

from flashlab import oracle
from flashlab.oracle import attention, error_bound, gradients, judge, judge_gradients, max_error


def qkv(dtype=torch.float32, *shape):
    return [torch.randn(*(shape or (2, 4, 20, 16))).to(dtype) for _ in range(3)]


@pytest.mark.parametrize("causal", [False, True])
def test_agrees_with_sdpas_math_backend_in_float64(causal):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    Q, K, V = qkv(torch.float64)
    with sdpa_kernel(SDPBackend.MATH):
        expected = torch.nn.functional.scaled_dot_product_attention(Q, K, V, is_causal=causal)
    assert max_error(attention(Q, K, V, causal=causal)[0], expected) < 1e-14


def test_causal_is_bottom_right_aligned():
    Q, K, V = torch.randn(2, 4), torch.randn(5, 4), torch.randn(5, 4)
    O, _ = attention(Q, K, V, causal=True)
    assert max_error(O[1], attention(Q[1:], K, V)[0][0]) < 1e-15          # the last query sees every key
    assert max_error(O[0], attention(Q[:1], K[:4], V[:4])[0][0]) < 1e-15  # the one before misses one


def test_key_heads_serve_groups_of_query_heads():
    Q, K, V = torch.randn(1, 4, 6, 8), torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8)
    O, _ = attention(Q, K, V)
    assert max_error(O[0, 1], attention(Q[0, 1], K[0, 0], V[0, 0])[0]) < 1e-15
    assert max_error(O[0, 2], attention(Q[0, 2], K[0, 1], V[0, 1])[0]) < 1e-15


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_judge_passes_the_right_and_fails_the_wrong(dtype):
    Q, K, V = qkv(dtype)
    O, L = attention(Q, K, V, dtype=torch.float32)
    assert judge(O.to(dtype), L, Q, K, V).ok
    assert not judge(O.to(dtype) * 1.1, L, Q, K, V).ok
    assert not judge(O.to(dtype), L + 0.5, Q, K, V).ok
    assert not judge(O.to(dtype), L / 0.6931, Q, K, V).ok                # base 2
    broken = O.to(dtype).clone()
    broken[0, 0, 0, 0] = torch.nan
    assert not judge(broken, L, Q, K, V).ok
    assert not judge(O.to(dtype), torch.full_like(L, -torch.inf), Q, K, V).ok


def test_max_error_treats_infinities_and_nan_as_values():
    inf, nan = torch.inf, torch.nan
    assert max_error(torch.tensor([inf, nan, 1.0]), torch.tensor([inf, nan, 1.0])) == 0
    assert max_error(torch.tensor([1.0]), torch.tensor([inf])) == inf
    assert not max_error(torch.tensor([nan]), torch.tensor([1.0])) <= 1e9
    assert max_error(torch.empty(0), torch.empty(0)) == 0
    with pytest.raises(ValueError, match=r"shape \(2,\) where \(3,\)"):
        max_error(torch.zeros(2), torch.zeros(3))


def test_error_bound_is_twice_naive_plus_four_eps():
    truth = torch.tensor([2.0, -4.0, -torch.inf])
    assert error_bound(truth + torch.tensor([0.5, 0, 0]), truth, eps=0.25) == 2 * 0.5 + 4 * 0.25 * 4


def test_the_bound_of_gradients_does_not_depend_on_the_sign_of_the_scale():
    """softmax(-s Q K^T) is softmax(s (-Q) K^T): the same problem, with the same bounds."""
    Q, K, V, dO = (torch.randn(2, 20, 16) for _ in range(4))
    truth = [T.float() for T in gradients(Q, K, V, dO, scale=-0.5)]
    negative = judge_gradients(*truth, Q, K, V, dO, scale=-0.5)
    positive = judge_gradients(-truth[0], *truth[1:], -Q, K, V, dO, scale=0.5)
    assert negative.ok and negative.bounds == positive.bounds


@pytest.mark.parametrize("factor", [30, 300, 3000])           # scores of some 1e4, which fit, of 1e6 and 1e8
def test_scores_beyond_float16_are_judged(factor):
    Q, K, V, dO = (T.half() for T in qkv(torch.float32) + qkv(torch.float32)[:1])
    Q, K = Q * factor, K * factor
    O, L = attention(Q, K, V)
    assert judge(O.half(), L.float(), Q, K, V).ok
    assert not judge(O.half() * 1.1, L.float(), Q, K, V).ok
    assert not judge(O.half(), L.float() / 0.6931, Q, K, V).ok
    assert not judge(O.half(), L.float() + 1e-5 * L.abs().max(), Q, K, V).ok, "as far off as no float32 sum is"
    dQ, dK, dV = (T.half() for T in gradients(Q, K, V, dO))
    assert judge_gradients(dQ, dK, dV, Q, K, V, dO).ok
    for wrong in (torch.nan, 100):                            # L is stored in float32: the bounds grow with the scores
        assert not judge_gradients(dQ, dK, dV + wrong, Q, K, V, dO).ok
        assert not judge_gradients(dQ + wrong, dK, dV, Q, K, V, dO).ok
    naive = attention(Q, K, V, dtype=torch.float16)
    assert judge(*naive, Q, K, V).ok == (factor == 30), "NaN passes"


def test_equal_scores_beyond_float16_share_the_weight():
    """Weights that are rounded to float16, as kernels round them, and not one of 1 among zeros."""
    Q, K = torch.full((1, 8, 16), 200.0).half(), torch.full((1, 300, 16), 200.0).half()
    V = torch.randn(1, 300, 16).half()
    O, L = attention(Q, K, V)
    assert judge((torch.full((1, 8, 300), 1 / 300).half().float() @ V.float()).half(), L.float(), Q, K, V).ok
    assert not judge(O.half() * 1.1, L.float(), Q, K, V).ok


def test_gradients_are_judged_where_dP_does_not_fit_the_dtype():
    """dP = dO V^T goes beyond 65504 here, and dQ and dK do not."""
    g = torch.Generator().manual_seed(0)
    Q, K = (torch.randn(1, 1, 32, 64, generator=g).half() for _ in range(2))
    V = (torch.randint(0, 2, (1, 1, 32, 64), generator=g) * 200 - 100).half()
    dO = torch.full_like(V, 50)
    truth = oracle.gradients(Q, K, V, dO)
    assert (dO @ V.mT).isinf().any()
    assert oracle.judge_gradients(*(T.half() for T in truth), Q, K, V, dO).ok
    assert not oracle.judge_gradients(*((1.03 * T).half() for T in truth), Q, K, V, dO).ok
