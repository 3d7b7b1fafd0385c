"""The sliding window in the PyTorch rungs: against float64, traffic against the closed form, tiles that are skipped."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashlab.ladder import rung
from flashlab.memory import KiB, Memory
from flashlab.oracle import attention, judge, judge_gradients
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.naive_backward import naive_backward
from flashlab.validate import check_window

FORWARD = ("naive_forward", "fa2_forward", "split_kv_forward")
BACKWARD = ("naive_backward", "fa2_backward", "fa2_backward_two_pass")
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
sizes, widths, tiles, limits = st.integers(1, 40), st.integers(8, 24), st.integers(1, 20), st.integers(-1, 45)


def inputs(N_q, N_k, d, d_v, dtype=torch.float32):
    g = torch.Generator().manual_seed(0)
    Q, K, V, dO = (torch.randn(n, x, generator=g) for n, x in ((N_q, d), (N_k, d), (N_k, d_v), (N_q, d_v)))
    return Q.to(dtype), K.to(dtype), V.to(dtype), dO.to(dtype)


def visible(N_q, N_k, causal, left, right):
    """The definition, pair by pair."""
    return [[(left == -1 or j >= i + N_k - N_q - left) and (right == -1 or j <= i + N_k - N_q + right)
             and not (causal and j > i + N_k - N_q) for j in range(N_k)] for i in range(N_q)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [(-1, -1), (0, 0), (2, -1), (-1, 3), (1, 2), (0, 4), (30, 30)], ids=str)
@pytest.mark.parametrize("N_q,N_k", [(1, 1), (5, 9), (9, 5), (7, 7), (1, 6), (6, 1)])
def test_the_oracle_sees_what_the_definition_says(N_q, N_k, causal, window):
    """One-hot values make O the weights themselves: those of hidden keys are 0, of visible ones not."""
    Q, K, _, _ = inputs(N_q, N_k, 4, 1)
    P, L = attention(Q, K, torch.eye(N_k), causal=causal, window=window)
    expected = torch.tensor(visible(N_q, N_k, causal, *window))
    assert torch.equal(P > 0, expected) and torch.equal(L > -torch.inf, expected.any(-1))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(N_q=sizes, N_k=sizes, d=widths, d_v=widths, B_r=tiles, B_c=tiles, causal=st.booleans(), left=limits, right=limits,
       dtype=st.sampled_from(DTYPES))
def test_within_the_error_bound_and_traffic_as_the_formula(N_q, N_k, d, d_v, B_r, B_c, causal, left, right, dtype):
    Q, K, V, dO = inputs(N_q, N_k, d, d_v, dtype)
    mask, tile = {"causal": causal, "window": (left, right)}, {"B_r": B_r, "B_c": B_c}
    size = {"N_q": N_q, "N_k": N_k, "d": d, "d_v": d_v, "element_size": dtype.itemsize}
    for name in FORWARD:
        one = rung(name)
        chosen = tile if one.tiled else {}
        with Memory() as mem:
            O, L = one.function(Q, K, V, **mask, **chosen)
        assert judge(O, L, Q, K, V, **mask).ok, name
        assert (mem.read, mem.written, mem.matmul_flops) == one.cost(**size, **mask, **chosen), name
    for name in BACKWARD:
        one = rung(name)
        chosen, saved = (tile, (O, dO, L)) if one.tiled else ({}, (dO,))
        with Memory() as mem:
            gradients = one.function(Q, K, V, *saved, **mask, **chosen)
        assert judge_gradients(*gradients, Q, K, V, dO, **mask).ok, name
        assert (mem.read, mem.written, mem.matmul_flops) == one.cost(**size, **mask, **chosen), name


@pytest.mark.parametrize("window", [(20, 0), (-1, 11), (7, 40), (0, 0)], ids=str)
@pytest.mark.parametrize("N_q,N_k", [(97, 113), (113, 60)])
def test_large_logits(N_q, N_k, window):
    """Sixty times as large: a tile's maximum that is forgotten shows."""
    Q, K, V, dO = inputs(N_q, N_k, 24, 16)
    Q *= 60
    O, L = fa2_forward(Q, K, V, window=window, B_r=16, B_c=32)
    assert judge(O, L, Q, K, V, window=window).ok
    gradients = rung("fa2_backward_two_pass").function(Q, K, V, O, dO, L, window=window, B_r=16, B_c=32)
    assert judge_gradients(*gradients, Q, K, V, dO, window=window).ok


def test_tiles_outside_the_window_are_skipped():
    """Eight blocks of 8: a query block sees its own keys and those of the block before, so 1 + 7 · 2 tiles of 64."""
    Q, K, V, _ = inputs(64, 64, 16, 16)
    with Memory() as mem:
        fa2_forward(Q, K, V, window=(8, 0), B_r=8, B_c=8)
    assert sum(event.name == "K" for event in mem.log) == 15


def test_the_default_tiles_still_fit():
    Q, K, V, _ = inputs(150, 150, 64, 64)
    with Memory(sram_bytes=96 * KiB) as mem:
        fa2_forward(Q, K, V, window=(60, 10))
    assert mem.sram_peak <= 96 * KiB


def test_a_row_that_sees_no_key():
    """The first queries stand before the first key, and even `right` keys further."""
    Q, K, V, dO = inputs(9, 3, 4, 4)
    O, L = fa2_forward(Q, K, V, window=(1, 2), B_r=4, B_c=2)
    assert (O[:4] == 0).all() and (L[:4] == -torch.inf).all() and L[4:].isfinite().all()
    dQ, dK, dV = naive_backward(Q, K, V, dO, window=(1, 2))
    assert (dQ[:4] == 0).all() and all(T.isfinite().all() for T in (dQ, dK, dV))


@pytest.mark.parametrize("window, causal, same", [
    (None, True, (True, None)), ((-1, -1), False, (False, None)), ((-1, 0), False, (True, None)), ((-1, 5), True, (True, None)),
    ((2, 7), True, (False, (2, 0))), ((11, 2), False, (False, (-1, 2))), ((3, 7), False, (False, (3, -1))),
    ((11, 7), False, (False, None)), ((10, 6), False, (False, (10, 6)))], ids=str)
def test_what_is_said_twice_or_says_nothing_is_left_out(window, causal, same):
    """So that a window no narrower than causal runs the kernels that know causal alone. 8 queries, 12 keys."""
    assert check_window(window, causal, 8, 12) == same


@pytest.mark.parametrize("window, error, words", [
    (3, TypeError, r"window must be None or two integers \(left, right\), got 3 \(int\)"), ((3,), TypeError, "two integers"),
    ((1.5, 0), TypeError, "two integers"), ((True, 0), TypeError, "two integers"), ("12", TypeError, "two integers"),
    ((-2, 0), ValueError, r"window must have left and right >= 0, or -1 for no limit, got \(-2, 0\)")], ids=str)
def test_a_bad_window_is_named(window, error, words):
    Q, K, V, _ = inputs(5, 6, 4, 4)
    with pytest.raises(error, match=words):
        fa2_forward(Q, K, V, window=window)
