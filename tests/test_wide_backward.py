"""The backward kernel for heads wider than 128, against float64."""

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab.oracle import attention, judge_gradients
from flashlab.triton_mode import interpreted

pytest.importorskip("flashlab.kernels.launch", reason="triton is not installed (it exists for Linux only)")

from flashlab.operator.wide_backward import wide_backward  # noqa: E402

DEVICE = "cpu" if interpreted() else "cuda"

CASES = {                              # H_q, H_kv, N_q, N_k, d, d_v, masks
    "shared key heads": (2, 1, 97, 113, 192, 192, {}), "causal, d_v wider": (1, 1, 80, 64, 160, 256, {"causal": True}),
    "a window, d_v narrow": (1, 1, 100, 130, 192, 128, {"window": (20, 5)}),
    "a window, causal": (2, 2, 65, 33, 136, 136, {"window": (20, 0)}),
}


@pytest.mark.parametrize("case", CASES)
def test_both_parts_of_every_tile_count(case):
    """Fails if a part of a head's columns is left out, read twice, or written past its end."""
    H_q, H_kv, N_q, N_k, d, d_v, masks = CASES[case]
    torch.manual_seed(0)
    Q, K, V, dO = (torch.randn(1, H, N, width, device=DEVICE).half()
                   for H, N, width in ((H_q, N_q, d), (H_kv, N_k, d), (H_kv, N_k, d_v), (H_q, N_q, d_v)))
    O, L = attention(Q, K, V, **masks)
    verdict = judge_gradients(*wide_backward(Q, K, V, O.half(), dO, L.float(), **masks), Q, K, V, dO, **masks)
    assert verdict.ok, str(verdict)


def test_what_it_leaves_to_others():
    Q = torch.zeros(1, 1, 16, 128, device=DEVICE).half()
    with pytest.raises(ValueError, match="head dimensions above 128"):
        wide_backward(Q, Q, Q, Q, Q, torch.zeros(1, 1, 16, device=DEVICE))
