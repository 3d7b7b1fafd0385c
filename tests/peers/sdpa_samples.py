"""PyTorch's own sample inputs of scaled_dot_product_attention, in every dtype, through flash_attention: against float64.

Run by run.py; named so that pytest does not collect it by itself. The samples come with torch (torch.testing._internal, which needs
the package expecttest), and so are whatever the installed torch tests itself with.
"""

import inspect

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._internal import common_methods_invocations

from flashlab import flash_attention
from flashlab.oracle import error_bound, max_error

NAME = "nn.functional.scaled_dot_product_attention"
OP = next(op for op in common_methods_invocations.op_db if op.name == NAME)
DTYPES = sorted(OP.dtypes, key=str)
SAMPLES = len(list(OP.sample_inputs("cpu", torch.float32)))
SEED = 2026


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False,
):
    """F.scaled_dot_product_attention over flash_attention: any number of dimensions, those of the batch broadcast.

    Its causal mask is aligned at the top left, where query 0 sees key 0. So keys beyond the last query are seen by none and are cut
    off, and with fewer keys than queries each query sees N_q - N_k keys more than flash_attention's would.
    """
    if attn_mask is not None:
        pytest.skip("flashlab has not got a mask of any other form than causal and windows")
    if dropout_p > 0 and query.dtype == torch.float64:
        pytest.skip("flashlab has not got dropout in float64")
    batch = torch.broadcast_shapes(*(T.shape[:-3] for T in (query, key, value)))
    tensors = (T.expand(*batch, *T.shape[-3:]).reshape(-1, *T.shape[-3:]) for T in (query, key, value))
    Q, K, V = tensors                                  # (B, H, N, d); without a batch, three dimensions are (H, N, d)
    window = None
    if is_causal:
        N_q, N_k = Q.shape[2], K.shape[2]
        K, V, window = K[:, :, :N_q], V[:, :, :N_q], (-1, max(N_q - N_k, 0))
    O = flash_attention(Q, K, V, window=window, scale=scale, dropout_p=dropout_p, seed=SEED)
    return O.reshape(*batch, *O.shape[1:])


def formula(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """The same by its definition, with flashlab's draws."""
    S = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        S = S.masked_fill(torch.ones(S.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    P = S.softmax(-1)
    if dropout_p > 0:
        from flashlab.kernels.dropout import dropout_keep_mask

        B, H, N_q, N_k = 1 if P.ndim == 3 else P.shape[0], *P.shape[-3:]
        N_seen = min(N_k, N_q) if is_causal else N_k                                    # where scaled_dot_product_attention cuts
        keep = F.pad(dropout_keep_mask(B, H, N_q, N_seen, dropout_p, SEED), (0, N_k - N_seen)).view(P.shape)
        P = P * keep / (1 - dropout_p)
    return P @ value


def sample(number, dtype):
    """Tensors and options by their names."""
    one = list(OP.sample_inputs("cpu", dtype))[number]
    call = inspect.signature(formula).bind(one.input, *one.args, **one.kwargs)
    return [call.arguments.pop(name) for name in ("query", "key", "value")], call.arguments


def with_gradients(compute, tensors, options, dO=None):
    """(O, dQ, dK, dV)"""
    tensors = [T.detach().clone().requires_grad_() for T in tensors]
    O = compute(*tensors, **options)
    dO = torch.randn(O.shape, generator=torch.Generator().manual_seed(0)) if dO is None else dO
    return O.detach(), *torch.autograd.grad(O, tensors, dO.to(O.dtype))


@pytest.mark.parametrize("number", range(SAMPLES))
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_sample(dtype, number):
    """O at most 2 times as far off float64 as the formula in the same dtype, the gradients 3 times, and some eps."""
    tensors, options = sample(number, dtype)
    ours = with_gradients(scaled_dot_product_attention, tensors, options)
    naive = with_gradients(formula, tensors, options)
    truth = with_gradients(formula, [T.double() for T in tensors], options)
    eps = torch.finfo(dtype).eps * (16 if dtype == torch.float64 else 1)               # there the truth rounds as much itself
    for name, x, n, t, factor in zip(("O", "dQ", "dK", "dV"), ours, naive, truth, (2, 3, 3, 3), strict=True):
        bound = error_bound(n, t, eps, factor)
        assert max_error(x, t) <= bound, f"{name} is off by {max_error(x, t):.2e}, allowed are {bound:.2e}"


@pytest.mark.parametrize("number", range(SAMPLES))
def test_the_formula_is_what_pytorch_computes(number):
    """So that the truth is PyTorch's and not a reading of it."""
    tensors, options = sample(number, torch.float64)
    if options.get("dropout_p"):
        pytest.skip("dropout: PyTorch draws another mask")
    if options.get("attn_mask") is not None:
        pytest.skip("flashlab has not got a mask of any other form than causal and windows")
    with sdpa_kernel(SDPBackend.MATH):
        theirs = with_gradients(F.scaled_dot_product_attention, tensors, options)
    torch.testing.assert_close(with_gradients(formula, tensors, options), theirs)
