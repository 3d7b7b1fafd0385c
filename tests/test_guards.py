"""The kernel of chapter 10 whose guards can be left out: right with all of them, wrong in its own way without each."""

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab.oracle import attention, judge, max_error
from flashlab.triton_mode import interpreted

guards = pytest.importorskip("flashlab_course.gpu.guards", reason="triton is not installed (it exists for Linux only)")
DEVICE = "cpu" if interpreted() else "cuda"


def in_nan(T, rows=16):
    """The same values, with `rows` rows of NaN behind them in memory: what a load without a guard would find."""
    room = T.new_full((len(T) + rows, T.shape[1]), float("nan"))
    room[:len(T)] = T
    return room[:len(T)]


def qkv(N_q, N_k, d=32):
    g = torch.Generator().manual_seed(0)
    return [in_nan(torch.randn(n, d, generator=g).to(DEVICE)) for n in (N_q, N_k, N_k)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("N_q, N_k", [(50, 40), (40, 50), (16, 16), (1, 33)])
def test_with_all_guards_it_is_attention(N_q, N_k, causal):
    Q, K, V = qkv(N_q, N_k)
    assert judge(guards.forward_with(guards.GUARDS, Q, K, V, causal=causal), None, Q, K, V, causal=causal).ok


def test_without_a_guard_it_is_wrong_in_its_own_way():
    Q, K, V = qkv(50, 40)
    for given in ((), ("scores",)):                    # no guarded loads: it reads what lies behind
        assert guards.forward_with(given, Q, K, V).isnan().any()
    zeros = torch.zeros(8, 32, device=DEVICE)
    truth, _ = attention(Q, torch.cat([K, zeros]), torch.cat([V, zeros]))
    assert max_error(guards.forward_with(("loads",), Q, K, V), truth) < 1e-6           # padding takes weight
    O = guards.forward_with(("loads", "scores"), Q, K, V, causal=True)                 # rows that see no key
    assert O.isnan().any(1).tolist() == [True] * 10 + [False] * 40
