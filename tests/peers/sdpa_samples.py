"""PyTorch's own sample inputs of scaled_dot_product_attention, in every dtype, through flash_attention: against
float64.

Run by run.py; named so that pytest does not collect it by itself. The samples come with torch (torch.testing._internal,
which needs the package expecttest), and so are whatever the installed torch tests itself with.
"""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._internal import common_methods_invocations

from flashlab import flash_attention, oracle

NAME = "nn.functional.scaled_dot_product_attention"
OP = next(op for op in common_methods_invocations.op_db if op.name == NAME)
DTYPES = sorted(OP.dtypes, key=str)
SAMPLES = len(list(OP.sample_inputs("cpu", torch.float32)))
SEED = 2026
ORDERS = 32


def fit(query, key, value, is_causal):
    """(Q, K, V, window) for flash_attention, (B, H, N, d): the dimensions of the batch broadcast, three dimensions are
    (H, N, d).

    Causal is here aligned at the top left: query 0 sees key 0 alone. Keys beyond the last query are seen by none and
    are cut off; with fewer keys than queries each query sees N_q - N_k keys more than flash_attention's causal mask
    would show it.
    """
    batch = torch.broadcast_shapes(*(T.shape[:-3] for T in (query, key, value)))
    Q, K, V = (T.expand(*batch, *T.shape[-3:]).reshape(-1, *T.shape[-3:]) for T in (query, key, value))
    if not is_causal:
        return Q, K, V, None
    N_q, N_k = Q.shape[2], K.shape[2]
    return Q, K[:, :, :N_q], V[:, :, :N_q], (-1, max(N_q - N_k, 0))


def sample(number, dtype):
    """Tensors that want gradients, and options by their names."""
    one = list(OP.sample_inputs("cpu", dtype))[number]
    tensors = [T.detach().clone().requires_grad_() for T in (one.input, *one.args)]
    assert len(tensors) == 3 and set(one.kwargs) <= {"attn_mask", "dropout_p", "is_causal", "scale"}, one
    if one.kwargs.get("attn_mask") is not None:
        pytest.skip("flashlab has not got a mask of any other form than causal and windows")
    return tensors, {"is_causal": False, "dropout_p": 0.0, "scale": None} | one.kwargs


def like(O):
    """The gradient of the loss by O."""
    return torch.randn(O.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(O.dtype)


@pytest.mark.parametrize("number", range(SAMPLES))
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_sample(dtype, number):
    """Forward and backward, within the bounds of oracle.py. These samples have scores of 100, and so few of them that
    the error of naive attention is a matter of luck, ten times as large in one order of adding up a score as in
    another: the worst of a few."""
    tensors, call = sample(number, dtype)
    if call["dropout_p"] > 0 and dtype == torch.float64:
        pytest.skip("flashlab has not got dropout in float64")
    Q, K, V, window = fit(*tensors, call["is_causal"])
    O = flash_attention(Q, K, V, window=window, scale=call["scale"], dropout_p=call["dropout_p"], seed=SEED)
    gradients = torch.autograd.grad(O, (Q, K, V), like(O))
    options = {"window": window, "scale": call["scale"]}
    if call["dropout_p"] > 0:
        from flashlab.kernels.dropout import dropout_keep_mask

        keep = dropout_keep_mask(*Q.shape[:3], K.shape[2], call["dropout_p"], SEED)
        options |= {"dropout_p": call["dropout_p"], "keep": keep}
    truth, dO = oracle.attention(Q, K, V, **options)[0], like(O)
    eps = torch.finfo(dtype).eps * (16 if dtype == torch.float64 else 1)        # there the truth rounds as much itself
    dQ, dK, dV = gradients
    torch.manual_seed(0)
    for attempt in range(ORDERS):                      # of adding up a score; the first is the samples' own
        order = torch.randperm(Q.shape[-1]) if attempt else torch.arange(Q.shape[-1])
        q, k = Q[..., order], K[..., order]
        bound = oracle.error_bound(oracle.attention(q, k, V, **options, dtype=dtype)[0], truth, eps)
        verdict = oracle.judge_gradients(dQ[..., order], dK[..., order], dV, q, k, V, dO, **options)
        if oracle.max_error(O, truth) <= bound and verdict.ok:
            return
    raise AssertionError(f"O is off by {oracle.max_error(O, truth):.2e} (allowed {bound:.2e}); {verdict}")


@pytest.mark.parametrize("number", range(SAMPLES))
def test_the_truth_is_pytorchs(number):
    """What test_sample compares with is what PyTorch computes from this sample in float64."""
    tensors, call = sample(number, torch.float64)
    if call["dropout_p"] > 0:
        pytest.skip("dropout: PyTorch draws another mask")
    with sdpa_kernel(SDPBackend.MATH):
        theirs = F.scaled_dot_product_attention(*tensors, **call)
    *QKV, window = fit(*tensors, call["is_causal"])
    options = {"window": window, "scale": call["scale"]}
    torch.testing.assert_close(oracle.attention(*QKV, **options)[0].view_as(theirs), theirs.detach())
    ours = torch.autograd.grad(QKV, tensors, oracle.gradients(*QKV, like(theirs).view_as(QKV[0]), **options))
    torch.testing.assert_close(ours, torch.autograd.grad(theirs, tensors, like(theirs)))
