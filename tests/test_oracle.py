"""The judge itself: it must pass what is right, and fail what is wrong, NaN first of all."""

import pytest
import torch

from flashlab.oracle import attention, error_bound, judge, max_error


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
