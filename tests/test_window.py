"""The sliding window: what a query sees, and what check_window makes of one."""

import pytest
import torch

from flashlab.oracle import attention
from flashlab.validate import check_window


def visible(N_q, N_k, causal, left, right):
    """The definition, pair by pair."""
    return [[(left == -1 or j >= i + N_k - N_q - left) and (right == -1 or j <= i + N_k - N_q + right)
             and not (causal and j > i + N_k - N_q) for j in range(N_k)] for i in range(N_q)]


@pytest.mark.parametrize("N_q,N_k", [(1, 1), (5, 9), (9, 5), (1, 6), (6, 1)])
def test_the_oracle_sees_what_the_definition_says(N_q, N_k):
    """One-hot values make O the weights themselves: those of hidden keys are 0, of visible ones not."""
    for causal in (False, True):
        for window in [(-1, -1), (0, 0), (2, -1), (-1, 3), (1, 2), (0, 4), (30, 30)]:
            Q, K = torch.randn(N_q, 4), torch.randn(N_k, 4)
            P, L = attention(Q, K, torch.eye(N_k), causal=causal, window=window)
            expected = torch.tensor(visible(N_q, N_k, causal, *window))
            assert torch.equal(P > 0, expected) and torch.equal(L > -torch.inf, expected.any(-1)), (causal, window)


@pytest.mark.parametrize("window, causal, same", [
    (None, True, (True, None)), ((-1, -1), False, (False, None)), ((-1, 0), False, (True, None)),
    ((-1, 5), True, (True, None)),
    ((2, 7), True, (False, (2, 0))), ((11, 2), False, (False, (-1, 2))), ((3, 7), False, (False, (3, -1))),
    ((11, 7), False, (False, None)), ((10, 6), False, (False, (10, 6)))], ids=str)
def test_what_is_said_twice_or_says_nothing_is_left_out(window, causal, same):
    """So that a window no narrower than causal runs the kernels that know causal alone. 8 queries, 12 keys."""
    assert check_window(window, causal, 8, 12) == same


def test_a_bad_window_is_named():
    for window, error, words in (
        (3, TypeError, r"window must be None or two integers \(left, right\), got 3 \(int\)"),
        ((3,), TypeError, "two integers"), ((1.5, 0), TypeError, "two integers"),
        ((True, 0), TypeError, "two integers"),
        ("12", TypeError, "two integers"),
        ((-2, 0), ValueError, r"window must have left and right >= 0, or -1 for no limit, got \(-2, 0\)"),
    ):
        with pytest.raises(error, match=words):
            check_window(window, False, 5, 6)
