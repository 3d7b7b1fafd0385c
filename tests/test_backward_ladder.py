"""The backward kernels above the first, against float64 on awkward sizes."""

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab import ladder
from flashlab.operator import pick
from flashlab.operator.attention import flash_attention
from flashlab.oracle import attention, gradients, judge_gradients, max_error
from flashlab.triton_mode import interpreted

pytest.importorskip("flashlab.kernels.launch", reason="triton is not installed (it exists for Linux only)")
from test_triton_backward import DEVICE, LAYOUTS, far_apart, guarded, inputs, true_forward  # noqa: E402

from flashlab.kernels import fa2_atomic_backward, fa2_backward  # noqa: E402
from flashlab.kernels.dropout import dropout_keep_mask  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")     # numpy's, of exp2 of what a mask then hides
GLUON = "fa2_hopper_backward"                                                # has no interpreter: tests/test_hopper_backward.py
ABOVE = [kernel for kernel in ladder.BACKWARD_KERNELS[1:] if kernel.name not in (GLUON, "fa2_tuned_backward")]
EACH = pytest.mark.parametrize("kernel", ABOVE, ids=lambda kernel: kernel.name)      # fa2_tuned_backward runs the split kernels
fp16, bf16, fp32 = torch.float16, torch.bfloat16, torch.float32

CASES = [       # sizes, then how it is called
    (inputs(50, 70, 24, 40, fp16), {"causal": True, "B_r": 32, "B_c": 16}),               # ragged, bottom-right causal
    (inputs(97, 70, 16, 16, fp16), {"causal": True, "B_r": 16, "B_c": 64}),               # wide key blocks
    (inputs(64, 96, 16, 16, fp16), {"B_r": 32, "B_c": 32}),                               # whole tiles
    (inputs(70, 33, 16, 16, fp16), {"B_r": 16, "B_c": 32}),
    (inputs(33, 50, 80, 64), {"scale": -0.3, "B_r": 16, "B_c": 32}),                      # d not a power of two
    (inputs(17, 40, 16, 16), {"scale": 0.0, "causal": True, "B_r": 16, "B_c": 16}),
    (inputs(50, 17, 16, 16, bf16, 2, 4, 2), {"causal": True, "B_r": 32, "B_c": 16}),      # shared heads, rows without keys
    (inputs(40, 64, 64, 16, fp16, logits=60), {"causal": True, "B_r": 16, "B_c": 16}),
    (inputs(1, 97, 64, 64, bf16), {"causal": True}),                                      # one query, tiles by default
    (inputs(150, 70, 64, 64, bf16, 1, 4, 2), {}),
]


def check(kernel, Q, K, V, dO, *, causal=False, scale=None, **options):
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
    return grads


@EACH
@pytest.mark.parametrize("case", range(len(CASES)))
def test_within_the_error_bound(kernel, case):
    """Fails if the split loop, the heads of a group, or the sum of dQ over key blocks are wrong in any of these."""
    tensors, how = CASES[case]
    dQ, dK, dV = check(kernel, *tensors, **how)
    if tensors[0].shape[2] > tensors[1].shape[2] and how.get("causal"):
        assert (dQ[:, :, : tensors[0].shape[2] - tensors[1].shape[2]] == 0).all()


@EACH
@pytest.mark.parametrize("causal", [False, True])
def test_nothing_outside_the_tensors_counts(kernel, causal):
    """Fails if a value from beyond a row's or a tensor's end gets into a gradient: it would be NaN, or exp(0 + 400)."""
    tensors = (guarded(T) for T in inputs(50, 70, 24, 40, fp16, B=2, H_q=2, H_kv=1))
    check(kernel, *tensors, causal=causal, B_r=32, B_c=32)
    Q, K, V, dO = inputs(33, 50, 16, 16)               # every L is about -400, the score of a key past the end is 0
    check(kernel, Q.abs() * 10, -K.abs() * 10, V, dO, causal=causal, B_r=32, B_c=32)


@EACH
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides(kernel, layout):
    tensors = inputs(33, 40, 24, 16, fp16, H_q=2, H_kv=1)
    check(kernel, *(LAYOUTS[layout](T) for T in tensors), causal=True, B_r=32, B_c=32)


@EACH
def test_offsets_beyond_2_to_the_31(kernel):
    """Fails (or crashes) if an offset is computed in 32 bits: the last elements lie 2^31 elements or more from the first."""
    Q, K, V, dO = inputs(34, 34, 18, 18, fp16, B=1, H_q=3, H_kv=3)
    check(kernel, far_apart(Q, 2, 2**26), K, far_apart(V, 1, 2**30), dO, causal=True, B_r=16, B_c=32)
    check(kernel, Q, far_apart(K, 2, 2**26), V, far_apart(dO, 1, 2**30), causal=True, B_r=16, B_c=32)


@EACH
def test_L_has_a_gradient(kernel):
    Q, K, V, dO = inputs(40, 50, 16, 16, H_q=2, H_kv=2)
    dL = torch.randn(1, 2, 40, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    O, L = true_forward(Q, K, V)
    first = fa2_backward.fa2_triton_backward(Q, K, V, O, dO, L, dL=dL, B_r=16, B_c=16)
    for got, expected in zip(kernel.function(Q, K, V, O, dO, L, dL=dL, B_r=16, B_c=32), first, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_split_loops_change_no_bit():
    """The masks that are left out are those that hide nothing; the order of the sums is that of whole tiles first."""
    Q, K, V, dO = inputs(64, 64, 16, 16)
    O, L = true_forward(Q, K, V)
    both = [ladder.rung(name).function(Q, K, V, O, dO, L, B_r=16, B_c=16) for name in ("fa2_triton_backward", "fa2_split_backward")]
    assert all(torch.equal(*pair) for pair in zip(*both, strict=True))


# ---- which kernel runs


@pytest.fixture
def spy(monkeypatch):
    """What the operator asks `pick` for a backward kernel, in order."""
    asked, before = [], pick.pick
    monkeypatch.setattr(pick, "pick", lambda *QKV, backward=False, **options: (
        asked.append(options) if backward else None) or before(*QKV, backward=backward, **options))
    return asked


@pytest.mark.parametrize("given, enabled, expected", [
    (None, False, False), (None, True, True), (False, True, False), (True, False, True)])
def test_deterministic_follows_pytorch_unless_it_is_said(spy, given, enabled, expected):
    """Fails if use_deterministic_algorithms, or an argument against it, does not reach the choice of a backward kernel."""
    Q, K, V = (T.requires_grad_() for T in inputs(5, 7, 16, 16)[:3])
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(enabled)
    try:
        O = flash_attention(Q, K, V, backend="triton", deterministic=given)
    finally:
        torch.use_deterministic_algorithms(before)
    O.sum().backward()
    assert [options["deterministic"] for options in spy] == [expected]


def test_a_backward_kernel_is_run_by_its_name(monkeypatch):
    """Fails if a kernel named as backend is not the one that runs, or gives way in silence where it must not run."""
    Q, K, V, dO = inputs(20, 30, 16, 16)
    called = []
    real = fa2_atomic_backward.fa2_atomic_backward
    spied = lambda *T, **options: called.append(options) or real(*T, **options)
    monkeypatch.setattr(fa2_atomic_backward, "fa2_atomic_backward", spied)

    def gradients(backend="fa2_atomic_backward", **options):
        leaves = [T.clone().requires_grad_() for T in (Q, K, V)]
        O = flash_attention(*leaves, causal=True, backend=backend, **options)
        return torch.autograd.grad(O, leaves, dO)

    assert judge_gradients(*gradients(), Q, K, V, dO, causal=True).ok and len(called) == 1
    with pytest.raises(ValueError, match="this rung does not take the call: it adds dQ up in whatever order"):
        gradients(deterministic=True)
    with pytest.raises(ValueError, match="its instructions are Hopper's alone"):
        gradients(backend="fa2_hopper_backward")
    with pytest.raises(TypeError, match="deterministic must be True or False, got 1"):
        gradients(deterministic=1)


@pytest.mark.skipif(interpreted(), reason="programs run one after the other there, in order")
def test_dk_and_dv_of_the_atomic_kernel_keep_their_bits():
    Q, K, V, dO = inputs(1000, 1000, 64, 64, bf16, 1, 4, 4)
    O, L = attention(Q, K, V, dtype=fp32)
    runs = [fa2_atomic_backward.fa2_atomic_backward(Q, K, V, O.to(bf16), dO, L) for _ in range(10)]
    assert all(torch.equal(a, b) for run in runs for a, b in zip(run[1:], runs[0][1:], strict=True))


@pytest.mark.parametrize("kernel", [ladder.BACKWARD_KERNELS[0], *ABOVE], ids=lambda kernel: kernel.name)
def test_dS_fits_float16_where_the_gradients_do(kernel):
    """dP is 64 * 100 * 50: fails if dS is rounded to float16 before the scale, 1/8, brings it into its range."""
    Q, K, V, dO = inputs(40, 32, 64, 64, fp16)
    V, dO = torch.full_like(V, 100), torch.full_like(dO, 50)
    V[:, :, 1::2] *= -1
    O, L = true_forward(Q, K, V)
    found = kernel.function(Q, K, V, O, dO, L, B_r=16, B_c=32)
    for grad, truth in zip(found, gradients(Q, K, V, dO), strict=True):           # naive attention in float16 overflows: no judge
        assert truth.abs().max() < 65504 and max_error(grad, truth) < 2e-3 * truth.abs().max()


@pytest.mark.parametrize("kernel", pick.BACKWARD_KERNELS[:2], ids=lambda kernel: kernel.name)
def test_dropout_of_nearly_all_weights(kernel):
    """Fails if a weight over 1 - p is rounded to float16, which holds nothing beyond 65504, before it meets dO."""
    Q, K, V, dO = inputs(1, 64, 16, 16, fp16)
    p, seed = 0.99999, next(s for s in range(10**5) if dropout_keep_mask(1, 1, 1, 64, 0.99999, s).any())
    mask = {"dropout_p": p, "keep": dropout_keep_mask(1, 1, 1, 64, p, seed).to(DEVICE)}
    K = (K * 0).masked_fill(mask["keep"][:, :, 0, :, None], 4)                    # the weight that stays is nearly 1
    Q, V, dO = Q * 0 + 4, V / 1000, dO / 1000
    O, L = true_forward(Q, K, V, **mask)
    grads = kernel.function(Q, K, V, O, dO, L, dropout_p=p, seed=torch.tensor(seed, device=DEVICE))
    verdict = judge_gradients(*grads, Q, K, V, dO, **mask)
    assert all(grad.isfinite().all() for grad in grads) and verdict.ok, str(verdict)
