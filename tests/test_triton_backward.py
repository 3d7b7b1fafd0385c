"""The backward kernels against float64, every address they touch, and dropout's mask."""

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab import cost, oracle
from flashlab.operator import pick
from flashlab.oracle import attention, gradients, judge_gradients, max_error

fa2 = pytest.importorskip("flashlab.kernels.fa2", reason="triton is not installed (it exists for Linux only)")
import test_triton_forward as forward_tests  # noqa: E402
from test_triton_forward import CALLS, DEVICE, DTYPES, MASKS, bf16, fp16, fp32, inputs, stretched  # noqa: E402

from flashlab.kernels import dropout  # noqa: E402
from flashlab.kernels import fa2_backward as kernels  # noqa: E402
from flashlab.kernels.dropout import dropout_keep_mask  # noqa: E402
from flashlab.kernels.fa2 import fa2_triton_forward  # noqa: E402
from flashlab.kernels.fa2_backward import fa2_triton_backward  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")     # numpy's, of exp2 of what a mask then hides


ELSEWHERE = "fa2_hopper_backward", "wide_backward"         # Gluon: no interpreter; wide heads: test_wide_backward.py
KERNELS = [kernel for kernel in pick.BACKWARD_KERNELS if kernel.name not in ELSEWHERE]
EACH = pytest.mark.parametrize("kernel", [one for one in KERNELS if one.name != "fa2_tuned_backward"],      # the split ones
                               ids=lambda kernel: kernel.name)


def true_forward(Q, K, V, **options):
    """O and L as a kernel hands them over, from float64: the backward is judged apart from the forward."""
    O, L = attention(Q, K, V, **options)
    return O.to(Q.dtype), L.to(fp32)


def check_backward(Q, K, V, dO, *, kernel=KERNELS[0], causal=False, scale=None, **options):
    """Run the kernels, judge and return their gradients; None if the rung refuses, as it then must, rows for TMA."""
    O, L = true_forward(Q, K, V, causal=causal, scale=scale)
    if reason := kernel.why_not(Q, K, V):
        assert kernel.by_tma and Q.shape[-1] * Q.itemsize % 16, reason
        with pytest.raises(ValueError, match="not a multiple of 16"):
            kernel.function(Q, K, V, O, dO, L, causal=causal, scale=scale, **options)
        return None
    grads = kernel.function(Q, K, V, O, dO, L, causal=causal, scale=scale, **options)
    for grad, T in zip(grads, (Q, K, V), strict=True):
        assert grad.dtype == T.dtype and grad.shape == T.shape and grad.is_contiguous()
    verdict = judge_gradients(*grads, Q, K, V, dO, causal=causal, scale=scale)
    assert verdict.ok, str(verdict)
    hidden = max(0, Q.shape[2] - K.shape[2]) if causal else 0
    assert (grads[0][:, :, :hidden] == 0).all()
    return grads


@EACH
@forward_tests.EACH_CALL
def test_every_kernel_is_right(kernel, call):
    """Fails if the split loop, the heads of a group, or the sum of dQ over key blocks are wrong in any of these."""
    sizes, how = CALLS[call]
    tensors = inputs(*sizes)
    copies = [T.clone() for T in tensors]
    check_backward(*tensors, kernel=kernel, **how)
    assert all(torch.equal(T, copy) for T, copy in zip(tensors, copies, strict=True)), "an input was changed"


@pytest.mark.parametrize("seed, N, H, scale, causal", [
    (0, 70, 2, 30, False), (1, 70, 2, 30, False), (4, 32, 1, 10, True), (5, 32, 1, 30, True), (35, 32, 1, -30, False)])
def test_large_scores(seed, N, H, scale, causal):
    """L is as large as the scores, and its last digit in float32 moves every weight; in few rows nothing averages out."""
    check_backward(*inputs(N, N, 64, 64, H_q=H, H_kv=H, seed=seed), scale=scale, causal=causal)


@pytest.mark.parametrize("size, logits", [(size, 1) for size in forward_tests.SIZES] + [(size, 60) for size in forward_tests.LARGE], ids=str)
@MASKS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_within_the_error_bound(size, logits, causal, dtype):
    """With large logits exp of a score alone overflows, and exp of a padded key's score of 0 less an L far below."""
    *shape, B_r, B_c = size
    grads = check_backward(*inputs(*shape, dtype, logits=logits), causal=causal, B_r=B_r, B_c=B_c)
    assert all(grad.isfinite().all() for grad in grads)


@EACH
@MASKS
def test_L_has_a_gradient(kernel, causal):
    Q, K, V, dO = inputs(40, 50, 16, 24, H_q=4, H_kv=2)
    dL = torch.randn(1, 4, 40, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    leaves = [T.double().requires_grad_() for T in (Q, K, V)]
    expected = torch.autograd.grad(oracle._attention(*leaves, causal=causal), leaves, (dO.double(), dL.double()))
    O, L = true_forward(Q, K, V, causal=causal)
    for got, truth in zip(kernel.function(Q, K, V, O, dO, L, dL=dL, causal=causal, B_r=16, B_c=32), expected, strict=True):
        torch.testing.assert_close(got.double(), truth, rtol=1e-4, atol=1e-5)


@EACH
def test_dS_fits_float16_where_the_gradients_do(kernel):
    """dP is 64 * 100 * 50: fails if dS is rounded to float16 before the scale, 1/8, brings it into its range."""
    Q, K, V, dO = inputs(40, 32, 64, 64, fp16)
    V, dO = torch.full_like(V, 100), torch.full_like(dO, 50)
    V[:, :, 1::2] *= -1
    O, L = true_forward(Q, K, V)
    found = kernel.function(Q, K, V, O, dO, L, B_r=16, B_c=32)
    for grad, truth in zip(found, gradients(Q, K, V, dO), strict=True):           # naive attention in float16 overflows: no judge
        assert truth.abs().max() < 65504 and max_error(grad, truth) < 2e-3 * truth.abs().max()


# ---- edges

def test_a_row_without_a_visible_key_has_gradient_zero_and_gives_none():
    """Fails if exp2(S + inf) of a row whose L is -inf gets into dK or dV. 40 queries, 7 keys: 33 rows see none."""
    Q, K, V, dO = inputs(40, 7, 16, 16, fp16)
    first = check_backward(Q, K, V, dO, causal=True, B_r=16, B_c=16)
    assert (first[0][:, :, :33] == 0).all()
    dO[:, :, :33] = 1000
    second = check_backward(Q, K, V, dO, causal=True, B_r=16, B_c=16)
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))


@pytest.mark.parametrize("B, N_q, N_k", [(1, 0, 5), (2, 5, 0), (1, 0, 0), (0, 5, 5)])
@MASKS
def test_nothing_to_attend_from_or_to(B, N_q, N_k, causal):
    tensors = inputs(N_q, N_k, 16, 24, fp16, B=B)
    O, L = fa2_triton_forward(*tensors[:3], causal=causal)
    assert (O == 0).all() and (L == -torch.inf).all() and O.shape == (B, 1, N_q, 24)
    for grad in check_backward(*tensors, causal=causal):
        assert (grad == 0).all()


@pytest.mark.parametrize("where", [0, 1, 2, 3], ids=["Q", "K", "V", "dO"])
@pytest.mark.parametrize("dtype", [fp16, bf16], ids=str)
def test_nan_is_never_hidden(where, dtype):
    """Fails if a mask, or the +inf that stands in for an unused row's L, turns a broken model's NaN into a number."""
    tensors = inputs(50, 50, 16, 16, dtype)
    tensors[where][:, :, 40] = torch.nan
    Q, K, V, dO = tensors
    O, L = true_forward(Q, K, V, causal=True)
    dQ, dK, dV = fa2_triton_backward(Q, K, V, O, dO, L, causal=True, B_r=16, B_c=16)
    assert dQ[0, 0, 40].isnan().all()
    assert (dV if where != 2 else dK)[0, 0, 40].isnan().all()           # V does not enter dV


@EACH
@pytest.mark.parametrize("layout", forward_tests.LAYOUTS)
def test_strides(kernel, layout):
    """Sizes differ, and so do the strides: fails if one tensor is read by the strides of another."""
    tensors = inputs(33, 40, 24, 16, fp16, B=2, H_q=4, H_kv=2)
    check_backward(*(forward_tests.LAYOUTS[layout](T) for T in tensors), kernel=kernel, causal=True, B_r=32, B_c=32)


def test_saved_tensors_need_not_be_contiguous():
    Q, K, V, dO = inputs(33, 50, 24, 16)
    O, L = true_forward(Q, K, V)
    dL = torch.zeros(()).to(DEVICE).expand(1, 1, 33)
    grads = fa2_triton_backward(Q, K, V, stretched(O, 1, 1, 2, 3), dO, stretched(L[..., None], 1, 1, 3, 1)[..., 0], dL=dL)
    assert judge_gradients(*grads, Q, K, V, dO).ok


# ---- what the kernels touch

def guarded(T):
    """T as a view inside a larger storage of NaN, with a border on all sides."""
    big = T.new_full([n + 2 for n in T.shape[:-1]] + [T.shape[-1] + 16], torch.nan)
    view = big[tuple(slice(1, -1) for _ in T.shape[:-1])][..., 8:-8]
    view.copy_(T)
    return view


@EACH
@MASKS
def test_nothing_outside_the_tensors_counts(kernel, causal):
    """Fails if a value from beyond a row's or a tensor's end gets into a gradient: it would be NaN, or exp(0 + 400)."""
    tensors = (guarded(T) for T in inputs(50, 70, 24, 40, fp16, B=2, H_q=2, H_kv=1))
    check_backward(*tensors, kernel=kernel, causal=causal, B_r=32, B_c=32)
    Q, K, V, dO = inputs(33, 50, 16, 16)               # every L is about -400, the score of a key past the end is 0
    check_backward(Q.abs() * 10, -K.abs() * 10, V, dO, kernel=kernel, causal=causal, B_r=32, B_c=32)
    K[:, :, 5] = -torch.inf                            # a key that weighs nothing: 0 times it is NaN
    O, L = true_forward(Q.abs(), K, V, causal=causal)
    _, dK, dV = kernel.function(Q.abs(), K, V, O, dO, L, causal=causal, B_r=32, B_c=32)
    assert dK.isfinite().all() and dV.isfinite().all() and (dK[:, :, 5] == 0).all()


@forward_tests.interpreted_only
@pytest.mark.parametrize("N_q, N_k, causal", [(50, 70, False), (50, 70, True), (70, 33, True), (64, 64, True)])
def test_traffic_is_the_closed_form(N_q, N_k, causal):
    """Fails if a load or store goes astray, a gradient is written twice, or a hidden tile is loaded all the same."""
    Q, K, V, dO = (stretched(T, 1, 1, 2, 2) for T in inputs(N_q, N_k, 24, 40, fp16))
    O, L = true_forward(Q, K, V, causal=causal)
    grads = {name: torch.empty(T.shape, dtype=T.dtype) for name, T in (("dQ", Q), ("dK", K), ("dV", V))}
    launches = kernels.launch(Q, K, V, O, dO, L, None, *grads.values(), causal=causal, scale=24**-0.5, B_r=32, B_c=16)
    rows = {name: launches[0][2][name] for name in ("L_log2", "D")}
    tensors = {"Q": Q, "K": K, "V": V, "O": O, "dO": dO, "L": L, **rows, **grads}
    moved = forward_tests.bytes_moved(launches, tensors)
    expected = cost.fa2_backward_two_pass(N_q, N_k, 24, 40, B_r=32, B_c=16, causal=causal, element_size=2)
    in_base_2 = 4 * N_q                                # L is read and written once more, in base 2
    assert moved == {"load": expected.read + in_base_2, "store": expected.written + in_base_2}


@EACH
@pytest.mark.parametrize("turn", range(4))
def test_offsets_beyond_2_to_the_31(kernel, turn):
    """Fails (or crashes) if an offset is computed in 32 bits: last elements lie 2^31 elements or more from the first."""
    tensors = inputs(34, 34, 18, 18, fp16, B=3, H_q=3, H_kv=3)
    apart = (forward_tests.far_apart(T, *forward_tests.FAR[(turn + n) % 4]) for n, T in enumerate(tensors))
    check_backward(*apart, kernel=kernel, causal=True, B_r=16, B_c=32)


def test_one_grid_axis_and_no_matrix():
    """Fails if batch or heads move to the y or z axis, which end at 65535, or if memory of N x N numbers is asked for."""
    Q = torch.empty(3, 70_000, 65, 16, device="meta")
    launches = kernels.launch(Q, Q, Q, Q, Q, Q[..., 0], None, Q, Q, Q, causal=False, scale=1.0, B_r=16, B_c=16)
    assert [grid for _, grid, _ in launches] == [(3 * 70_000 * 3,), (3 * 70_000 * 5,), (3 * 70_000 * 5,)]
    assert fa2.launch(Q, Q, Q, Q, Q[..., 0], causal=False, scale=1.0, B_r=16)[0] == (3 * 70_000 * 5,)
    given = [T for _, _, arguments in launches for T in arguments.values() if isinstance(T, torch.Tensor)]
    assert max(T.numel() for T in given) == Q.numel()


# ---- dropout

@pytest.mark.parametrize("seed, B_r, B_c", [(0, 16, 32), (12, 32, 16), (-5, 32, 32), (2**40 + 3, 16, 16)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@MASKS
def test_dropout_within_the_error_bound(dtype, causal, seed, B_r, B_c):
    """Fails if forward, backward or other tiles draw another mask than dropout_keep_mask says: each weight counts."""
    Q, K, V, dO = inputs(40, 35, 24, 40, dtype, B=2, H_q=2, H_kv=1)
    mask = {"dropout_p": 0.2, "keep": dropout_keep_mask(2, 2, 40, 35, 0.2, seed).to(DEVICE)}
    options = {"causal": causal, "dropout_p": 0.2, "seed": torch.tensor(seed, device=DEVICE), "B_r": B_r, "B_c": B_c}
    O, L = true_forward(Q, K, V, causal=causal, **mask)
    found, found_L = fa2_triton_forward(Q, K, V, **options)
    assert max_error(found, O.double()) < 4 * torch.finfo(dtype).eps * O.abs().max()
    torch.testing.assert_close(found_L, L, rtol=1e-4, atol=1e-4)                  # dropout leaves the softmax itself alone
    grads = fa2_triton_backward(Q, K, V, O, dO, L, **options)
    assert judge_gradients(*grads, Q, K, V, dO, causal=causal, **mask).ok


@pytest.mark.parametrize("forward, backward", list(zip(pick.KERNELS[:2], pick.BACKWARD_KERNELS[:2], strict=True)))
def test_dropout_of_nearly_all_weights(forward, backward):
    """Fails if a weight over 1 - p, 100000 here, is rounded to float16, which holds nothing beyond 65504."""
    Q, K, V, dO = inputs(1, 64, 16, 16, fp16)
    p, seed = 0.99999, next(s for s in range(10**5) if dropout_keep_mask(1, 1, 1, 64, 0.99999, s).any())
    mask = {"dropout_p": p, "keep": dropout_keep_mask(1, 1, 1, 64, p, seed).to(DEVICE)}
    K = (K * 0).masked_fill(mask["keep"][:, :, 0, :, None], 4)                    # the weight that stays is nearly 1
    Q, V, dO = Q * 0 + 4, V / 1000, dO / 1000
    options = {"dropout_p": p, "seed": torch.tensor(seed, device=DEVICE)}
    O, L = true_forward(Q, K, V, **mask)
    assert max_error(forward.function(Q, K, V, **options)[0], O.double()) < 2e-3 * O.abs().max()
    grads = backward.function(Q, K, V, O, dO, L, **options)
    verdict = judge_gradients(*grads, Q, K, V, dO, **mask)
    assert all(grad.isfinite().all() for grad in grads) and verdict.ok, str(verdict)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_mask_has_the_right_rate_everywhere_and_neighbours_are_independent(p):
    """In each row, column and head, and between neighbours: no more than 5 standard deviations off."""
    masks = (dropout_keep_mask(2, 4, 200, 200, p, seed).double() for seed in (3, 4))
    keep, other_seed = ((mask - (1 - p)) / (p * (1 - p)) ** 0.5 for mask in masks)       # mean 0, variance 1
    for axes in ((0, 1, 2, 3), (3,), (2,), (2, 3)):
        n = torch.tensor([keep.shape[a] for a in axes]).prod()
        assert keep.mean(axes).abs().max() < 5 / n**0.5
    pairs = [(keep[:, :, 1:], keep[:, :, :-1]), (keep[..., 1:], keep[..., :-1]), (keep[:, 1:], keep[:, :-1]),
             (keep[1:], keep[:-1]), (keep, other_seed), (keep[:, :, 4:], keep[:, :, :-4])]
    for x, y in pairs:
        assert abs((x * y).mean()) < 5 / x.numel() ** 0.5


def test_philox_is_the_published_one():
    """Known answers of Philox4x32-10, Random123's test vectors."""
    words = lambda *values: [torch.tensor(value) for value in values]
    ones = 2**32 - 1
    assert dropout._philox(words(0, 0, 0, 0), [0, 0])[0] == 0x6627E8D5
    assert dropout._philox(words(ones, ones, ones, ones), [ones, ones])[0] == 0x408F276D
    assert dropout._philox(words(0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), [0xA4093822, 0x299F31D0])[0] == 0xD16CFE09
    low = torch.arange(4096)                           # positions beyond 2^32: the counter's high word counts
    draw = lambda high: dropout._philox([low, torch.full_like(low, high), *torch.zeros(2, 4096, dtype=torch.int64)], [7, 0])[0]
    assert len(set(draw(0).tolist()) & set(draw(1).tolist())) < 5


# ---- refusals

def test_bad_arguments_are_named():
    Q, K, V, dO = inputs(6, 8, 4, 3)
    O, L = true_forward(Q, K, V)
    cases = [
        ({"dO": dO[..., :2]}, ValueError, r"dO must be a float32 tensor of shape \(1, 1, 6, 3\)"),
        ({"O": O.half()}, TypeError, "O must be a float32 tensor"),
        ({"L": L.double()}, TypeError, "L must be a float32 tensor"),
        ({"dL": L[..., :1]}, ValueError, "dL must be a float32 tensor"),
        ({"dropout_p": 0.1}, TypeError, "seed must be a int64 tensor of shape"),
        ({"dropout_p": 1.5}, ValueError, "dropout_p must lie in"),
    ]
    for changes, error, words in cases:
        with pytest.raises(error, match=words):
            fa2_triton_backward(**{"Q": Q, "K": K, "V": V, "O": O, "dO": dO, "L": L} | changes)
