"""The bound of random calls: no right result is called wrong by bad luck, and no wrong one passes."""

from types import SimpleNamespace

import torch

from flashlab import oracle
from flashlab.oracle import attention, judge
from tests.gpu.orders import judge_in_orders


def test_another_order_of_the_scores_is_another_draw_of_the_bound():
    """Fails if a right result is called wrong because naive attention was lucky, or if a wrong one passes."""
    asked = []

    def third(order):
        asked.append(order)
        return SimpleNamespace(ok=len(asked) == 3)

    assert judge_in_orders(third, 16, "cpu").ok and len(asked) == 3 and sorted(asked[2].tolist()) == list(range(16))
    asked = [None] * 5
    first = judge_in_orders(third, 16, "cpu")
    assert not first.ok and len(asked) == 5 + 1 + 8 + 1
    g = torch.Generator().manual_seed(0)
    Q, K, V = (torch.randn(1, n, 16, generator=g) for n in (1, 50, 50))
    O, L = attention(Q, K, V)
    wrong = O.float() * 1.001
    assert not judge_in_orders(lambda n: judge(wrong, L.float(), Q[..., n], K[..., n], V), 16, "cpu").ok


def in_turn(A, B):
    """A @ B in float32, one term after the other."""
    C = torch.zeros(*A.shape[:-1], B.shape[-1])
    for k in range(A.shape[-1]):
        C += A[..., k: k + 1] * B[..., k: k + 1, :]
    return C


def test_sums_of_one_term_after_the_other_are_right(monkeypatch):
    """A kernel that adds like this is right, however small the error of a library's products; a worse one is wrong."""
    real, strict = oracle._naive, 0
    monkeypatch.setattr(oracle, "_naive", lambda truth, attempts: real(truth, attempts)
                        if torch.overrides._get_current_function_mode() else truth)
    for seed in range(20):
        g = torch.Generator().manual_seed(seed)
        Q, K, V = (torch.randn(1, n, 256, generator=g) for n in (1, 900, 900))
        S = in_turn(Q, K.mT) / 16
        L, P = S.logsumexp(-1), S.softmax(-1)
        judged = lambda O, L=L, Q=Q, K=K, V=V: lambda n: judge(O, L, Q[..., n], K[..., n], V)
        O = in_turn(P, V)
        strict += not judged(O)(slice(None)).ok
        assert judge_in_orders(judged(O), 256, "cpu").ok
        assert not judge_in_orders(judged(O + 3e-5), 256, "cpu").ok
    assert strict, "no draw was unlucky: this shows nothing"
