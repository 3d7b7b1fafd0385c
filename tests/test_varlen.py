"""The operator with a window and with packed sequences: every backend against float64, sequence by sequence."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import flashlab
from flashlab.oracle import attention, judge, judge_gradients, max_error
from flashlab.triton_mode import interpreted

try:
    from flashlab.operator import windows
except ImportError:
    windows = None
needs_triton = pytest.mark.skipif(windows is None, reason="triton is not installed (it exists for Linux only)")
DEVICE = "cpu" if windows is None or interpreted() else "cuda"
BACKENDS = [pytest.param("torch"), pytest.param("triton", marks=needs_triton)]
LENGTHS = [33, 1, 0, 17, 40], [20, 50, 7, 0, 40]     # queries, keys: ragged, empty, more of either


def starts(lengths):
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=DEVICE)


def packed(lengths_q, lengths_k, H_q=4, H_kv=2, d=24, d_v=16, dtype=torch.float32, after=(0, 0)):
    """Q, K, V, dO and both cu_seqlens; `after` rows lie beyond the last sequence."""
    g = torch.Generator().manual_seed(0)
    T_q, T_k = sum(lengths_q) + after[0], sum(lengths_k) + after[1]
    tensors = [torch.randn(shape, generator=g).to(DEVICE, dtype)
               for shape in ((T_q, H_q, d), (T_k, H_kv, d), (T_k, H_kv, d_v), (T_q, H_q, d_v))]
    return *tensors, starts(lengths_q), starts(lengths_k)


def hold_against_float64(Q, K, V, dO, cu_q, cu_k, *, backend, masks, keep=None, **options):
    """O, L and the gradients of each sequence by itself, and zeros beyond the last."""
    Q, K, V = (T.requires_grad_() for T in (Q, K, V))
    O, L = flashlab.flash_attention_varlen(Q, K, V, cu_q, cu_k, return_lse=True, backend=backend, **masks, **options)
    assert O.shape == dO.shape and O.is_contiguous() and O.dtype == Q.dtype and L.shape == (Q.shape[1], len(Q))
    grads = torch.autograd.grad(O, (Q, K, V), dO)
    for s in range(len(cu_q) - 1):
        q, k = slice(cu_q[s], cu_q[s + 1]), slice(cu_k[s], cu_k[s + 1])
        one = [T[rows].transpose(0, 1) for T, rows in ((Q, q), (K, k), (V, k), (dO, q))]
        dropout = {} if keep is None else {"dropout_p": options["dropout_p"], "keep": keep[:, q, :k.stop - k.start]}
        if keep is None:
            verdict = judge(O[q].transpose(0, 1), L[:, q], *one[:3], **masks)
            assert verdict.ok, f"sequence {s}: {verdict}"
        else:
            assert max_error(O[q].transpose(0, 1), attention(*one[:3], **masks, **dropout)[0]) < 1e-5
        verdict = judge_gradients(*(T[rows].transpose(0, 1) for T, rows in zip(grads, (q, k, k), strict=True)), *one,
                                  **masks, **dropout)
        assert verdict.ok, f"sequence {s}: {verdict}"
    assert (O[cu_q[-1]:] == 0).all() and (L[:, cu_q[-1]:] == -torch.inf).all()
    assert all((T[cu[-1]:] == 0).all() for T, cu in zip(grads, (cu_q, cu_k, cu_k), strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("masks", [{}, {"causal": True}, {"window": (9, 3)}, {"causal": True, "window": (5, -1)}], ids=str)
def test_every_sequence_is_attended_to_by_itself(backend, masks):
    Q, K, V, dO, *cu = packed(*LENGTHS, after=(20, 3))
    hold_against_float64(Q, K, V, dO, *cu, backend=backend, masks=masks)
    Q, K, V, dO = (T.detach().permute(2, 0, 1).contiguous().permute(1, 2, 0) for T in (Q, K, V, dO))         # any strides
    apart = [torch.stack((one, one * 0 + 99), 1)[:, 0] for one in cu]                                        # here, too
    hold_against_float64(Q, K, V, dO, *apart, backend=backend, masks=masks)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_in_16_bits(backend, dtype):
    hold_against_float64(*packed([20, 45], [50, 30], dtype=dtype, d=59, d_v=80), backend=backend, masks={"window": (12, 7)})


@needs_triton
@pytest.mark.parametrize("masks", [{}, {"window": (9, 3)}], ids=str)
def test_packed_dropout_is_that_of_the_whole(masks):
    """A weight's place is its row among all rows and its key in the sequence: no two sequences share their draws."""
    from flashlab.kernels.dropout import dropout_keep_mask

    case = packed(*LENGTHS)
    keep = dropout_keep_mask(1, 4, len(case[0]), len(case[1]), 0.4, 11)[0].to(DEVICE)
    hold_against_float64(*case, backend="triton", masks=masks, keep=keep, dropout_p=0.4, seed=11)


@needs_triton
@settings(max_examples=8, deadline=None, derandomize=True)
@given(data=st.data(), batch=st.integers(1, 4), group=st.integers(1, 2), d=st.integers(1, 40), d_v=st.integers(8, 40),
       causal=st.booleans(), window=st.none() | st.tuples(st.integers(-1, 30), st.integers(-1, 30)), after=st.integers(0, 20),
       B_r=st.sampled_from((16, 32)), B_c=st.sampled_from((16, 32)))
def test_the_kernels_over_the_whole_space(data, batch, group, d, d_v, causal, window, after, B_r, B_c):
    """Lengths that meet block borders in every way, for tiles of 16 and 32."""
    from flashlab.operator.windows_backward import windows_backward

    lengths = [data.draw(st.lists(st.integers(0, 40), min_size=batch, max_size=batch)) for _ in range(2)]
    Q, K, V, dO, cu_q, cu_k = packed(*lengths, H_q=group, H_kv=1, d=d, d_v=d_v, after=(after, after))
    Q, K, V, dO = (T.transpose(0, 1)[None] for T in (Q, K, V, dO))
    apart = torch.stack((cu_q, cu_q * 0 + 99), 1)[:, 0]                  # any strides
    options = dict(cu_seqlens_q=apart, cu_seqlens_k=cu_k, causal=causal, window=window, B_r=B_r, B_c=B_c)
    O, L = windows.windows_forward(Q, K, V, **options)
    dQ, dK, dV = windows_backward(Q, K, V, O, dO, L, **options)
    for s in range(batch):
        q, k = slice(cu_q[s], cu_q[s + 1]), slice(cu_k[s], cu_k[s + 1])
        one = Q[:, :, q], K[:, :, k], V[:, :, k]
        masks = {"causal": causal, "window": window}
        assert max_error(O[:, :, q], attention(*one, **masks)[0]) < 1e-5
        assert judge_gradients(dQ[:, :, q], dK[:, :, k], dV[:, :, k], *one, dO[:, :, q], **masks).ok
    assert (O[:, :, cu_q[-1]:] == 0).all() and (dQ[:, :, cu_q[-1]:] == 0).all() and (dV[:, :, cu_k[-1]:] == 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("N_q, N_k, window", [(60, 45, (0, 0)), (33, 70, (7, 0)), (60, 45, (-1, 9)), (33, 70, (20, 5)),
                                              (60, 45, (40, -1))], ids=str)
def test_window(backend, window, N_q, N_k):
    """Rows that see no key, tiles in and out of the window, heads that share keys."""
    g = torch.Generator().manual_seed(0)
    Q, K, V, dO = (torch.randn(shape, generator=g).to(DEVICE) for shape in
                   ((2, 2, N_q, 24), (2, 1, N_k, 24), (2, 1, N_k, 16), (2, 2, N_q, 16)))
    Q, K, V = (T.requires_grad_() for T in (Q, K, V))
    O, L = flashlab.flash_attention(Q, K, V, window=window, return_lse=True, backend=backend)
    assert judge(O, L, Q, K, V, window=window).ok
    assert judge_gradients(*torch.autograd.grad(O, (Q, K, V), dO), Q, K, V, dO, window=window).ok


@needs_triton
def test_kernels_skip_the_tiles_outside():
    """A NaN that only skipped tiles hold does not show: tiles of 16 x 16, keys 0 to 15, queries from 64 on."""
    Q, K, V = (torch.randn(1, 1, 96, 16, device=DEVICE) for _ in range(3))
    K[:, :, :16], V[:, :, :16] = torch.nan, torch.nan
    O, L = windows.windows_forward(Q, K, V, window=(20, 40), B_r=16, B_c=16)
    assert O[:, :, 64:].isfinite().all() and L[:, :, 64:].isfinite().all() and O[:, :, :17].isnan().all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_torch_compile_takes_both_whole(backend):
    """cu_seqlens stays on its device: nothing in the graph looks at its numbers."""
    def layer(Q, K, V, cu_q, cu_k):
        O = flashlab.operator.attention.flash_attention_varlen(2 * Q, K, V, cu_q, cu_k, window=(4, 0), backend=backend)
        return O.square().sum()

    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for lengths in ([10, 7], [3, 30]):
        case = packed(lengths, lengths)
        results = []
        for function in (compiled, layer):
            QKV = [T.detach().clone().requires_grad_() for T in case[:3]]
            loss = function(*QKV, *case[4:])
            results.append([loss, *torch.autograd.grad(loss, QKV)])
        assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lengths", [([0, 0], [3, 4]), ([3, 4], [0, 0]), ([], [])], ids=["no queries", "no keys", "neither"])
@pytest.mark.parametrize("after", [(0, 0), (20, 3)], ids=["", "rows after"])
def test_nothing_to_attend_from_or_to(backend, lengths, after):
    """Fails if a batch of no sequence is refused, or a row that sees no key is left unwritten."""
    Q, K, V, _, *cu = packed(*lengths, after=after)
    Q, K, V = (T.requires_grad_() for T in (Q, K, V))
    O, L = flashlab.flash_attention_varlen(Q, K, V, *cu, return_lse=True, backend=backend)
    assert (O == 0).all() and (L == -torch.inf).all()
    assert all((T == 0).all() for T in torch.autograd.grad(O.sum(), (Q, K, V)))


X, CU, TRITON = torch.zeros(8, 2, 16), torch.tensor([0, 8], dtype=torch.int32), {"backend": "triton"}
REFUSED = {
    "four dimensions": ({"Q": X[None]}, ValueError, r"Q must have 3 dimensions \(T, H, d\), got a float32 tensor of shape \(1, 8"),
    "a list": ({"cu_seqlens_q": [0, 8]}, TypeError, r"cu_seqlens_q must be a torch.Tensor, got \[0, 8\]"),
    "only one": ({"cu_seqlens_k": None}, TypeError, "cu_seqlens_k must be a torch.Tensor, got None"),
    "int64": ({"cu_seqlens_k": CU.long()}, TypeError, "cu_seqlens_k must be an int32 tensor on Q's device cpu, got a int64"),
    "no entry": ({"cu_seqlens_q": CU[:0]}, ValueError, r"cu_seqlens_q must have one dimension, \(batch \+ 1,\)"),
    "float64": (dict.fromkeys("QKV", X.double()) | TRITON, TypeError, r"Q must be float16, .* got .* of shape \(8, 2, 16\)"),
    "wide": ({"V": X.repeat(1, 1, 17)} | TRITON, ValueError, r"V must have .* d_v <= 256, got .* of shape \(8, 2, 272\)"),
    "batches differ": ({"cu_seqlens_k": CU[[0, 0, 1]]}, ValueError, "cu_seqlens_k must have as many entries as cu_seqlens_q, 2,"),
    "not from 0": ({"cu_seqlens_q": CU + 1}, ValueError, r"cu_seqlens_q must begin with 0, .* got 1 as entry 0"),
    "too long": ({"cu_seqlens_k": 2 * CU}, ValueError, r"cu_seqlens_k must .* end with 8 at most, .* got 16 as entry 1"),
    "falling late": ({"cu_seqlens_q": CU[[0] * 20 + [1, 0]], "cu_seqlens_k": CU[[0] * 20 + [1, 1]]}, ValueError,
                     r"cu_seqlens_q must .* never fall .* got 0 as entry 21"),
    "negative": ({"cu_seqlens_q": CU[[0, 0, 1]] - CU[[0, 1, 0]], "cu_seqlens_k": CU[[0, 0, 1]]}, ValueError, "got -8 as entry 1"),
    "sparse": ({"cu_seqlens_q": CU.to_sparse()}, TypeError, "cu_seqlens_q must be a dense tensor, strided and not nested, got"),
}


def test_bad_input_is_named():
    for changes, error, words in REFUSED.values():
        with pytest.raises(error, match=words):
            flashlab.flash_attention_varlen(**{"Q": X, "K": X, "V": X, "cu_seqlens_q": CU, "cu_seqlens_k": CU} | changes)


@needs_triton
def test_wrong_cu_seqlens_touch_nothing_outside():
    """What a GPU is not asked: numbers that fall, are negative or too large. NaN lies around the tensors and stays out."""
    whole = torch.full((96, 1, 16), torch.nan, device=DEVICE)
    whole[32:64] = torch.randn(32, 1, 16)
    X = whole[32:64].transpose(0, 1)[None]
    for numbers in ([0, 40, 20], [-9, 16, 99], [5, 2, 1], [2**30, 7, -(2**30)]):
        cu = torch.tensor(numbers, dtype=torch.int32, device=DEVICE)
        arguments = windows.launch(X, X, X, X.clone(), torch.zeros(1, 1, 32, device=DEVICE), causal=False, scale=1.0,
                               cu_seqlens_q=cu, cu_seqlens_k=cu, batch=2, B_r=16, B_c=16)
        O = torch.zeros(1, 32, 1, 16, device=DEVICE).transpose(1, 2)
        windows.KERNEL[arguments[0]](**arguments[1] | {"O": O})
        assert O.isfinite().all()
