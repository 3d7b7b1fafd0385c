"""FP8 attention: its steps in PyTorch against float64, the kernels against those steps, and as compiled."""


import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab import oracle
from flashlab.operator import fp8  # noqa: E402
from flashlab.operator.fp8 import EPS


def inputs(N_q, N_k, d, H_q=2, H_kv=2, outliers=False):
    """Gaussian, with outliers as in section 4.3 of FlashAttention-3: N(0, 1) + N(0, 100) in one place of a thousand."""
    g = torch.Generator().manual_seed(N_q)
    draw = lambda *shape: torch.randn(shape, generator=g)
    shapes = (1, H_q, N_q, d), (1, H_kv, N_k, d), (1, H_kv, N_k, d)
    return [(draw(*s) + outliers * 10 * draw(*s) * (torch.rand(s, generator=g) < 0.001)).bfloat16() for s in shapes]


def rms(X, dim=None):
    return X.double().square().mean(dim).sqrt()


def expected_error(Q, K, V, causal=False):
    """The root mean square error of each element of O that e4m3 leads to.

    Four roundings: those of Q and K each move a score by EPS · scale · |q k|, a root of a sum over d; a score moved by
                    x moves its
    weight by that share of it; P and V are rounded themselves. All are independent, and no scale wastes bits.
    """
    K, V = (T.repeat_interleave(Q.shape[1] // T.shape[1], 1).double() for T in (K, V))
    Q, d = Q.double(), Q.shape[-1]
    S = Q @ K.mT * d**-0.5
    if causal:
        S = S.masked_fill(torch.ones_like(S).tril(S.shape[-1] - S.shape[-2]) == 0, -torch.inf)
    moved = 2 * Q.square() @ K.square().mT / d + 2                                 # of Q and K; of P and V
    return EPS * (S.softmax(-1).square() * moved @ V.square()).sqrt()


def check(O, Q, K, V, causal=False):
    """As large an error as expected, in all and in each row: a row that is wrong has one of the size of O."""
    error, expected = O.double() - oracle.attention(Q, K, V, causal=causal)[0], expected_error(Q, K, V, causal)
    assert rms(error) <= 1.15 * rms(expected)
    assert (rms(error, -1) <= 3 * rms(expected, -1)).all()


CASES = {
    "whole blocks": (inputs(256, 256, 128), False), "causal": (inputs(512, 512, 64), True),
    "ragged": (inputs(97, 333, 128), False),
    "bottom-right, shared key heads": (inputs(113, 200, 64, 4, 2), True), "one query": (inputs(1, 300, 128), True),
}


@pytest.mark.parametrize("case", CASES)
def test_error_is_that_of_four_roundings(case):
    (Q, K, V), causal = CASES[case]
    check(fp8.flash_attention_fp8(Q, K, V, causal=causal), Q, K, V, causal)


def test_gaussian_inputs_lose_twice_eps():
    """Then the four roundings are alike: 2 EPS of O's size, 5.3 %."""
    Q, K, V = inputs(1024, 1024, 128)
    O = oracle.attention(Q, K, V)[0]
    assert 1.8 * EPS < rms(fp8.flash_attention_fp8(Q, K, V).double() - O) / rms(O) < 2.1 * EPS


def test_rotation_helps_against_outliers_and_harms_nobody():
    """Q and K alone have outliers: of V none is rotated."""
    error = {}
    for outliers in (False, True):
        (Q, K, _), (_, _, V) = inputs(1024, 1024, 128, outliers=outliers), inputs(1024, 1024, 128)
        for rotate in (False, True):
            O = fp8.flash_attention_fp8(Q, K, V, rotate=rotate)
            error[outliers, rotate] = rms(O.double() - oracle.attention(Q, K, V)[0])
    assert error[True, True] < 0.75 * error[True, False]
    assert error[False, True] < 1.05 * error[False, False]


def test_rotation_leaves_scores_and_lengths():
    for d in (1, 16, 128):
        H = fp8.hadamard(d)
        assert (H.abs() == 1).all() and (H @ H.T == d * torch.eye(d)).all()
    assert (H.sum(0).abs() < d).all()                  # signs are random


@pytest.mark.parametrize("N", [1, 64, 200])
def test_quantised_numbers_are_close_and_the_largest_is_exact(N):
    X = inputs(N, N, 64)[0].float()
    X[:, :, N // 2] = 0
    q = fp8.quantize(X, 64)
    assert q.values.dtype == torch.float8_e4m3fn and q.scales.shape == (1, 2, -(-N // 64))
    back = q.values.float() * q.of_rows()
    error = (back - X).abs()
    assert (error <= X.abs() / 16 + q.of_rows() * 2.0**-10 * 1.001).all()    # half a step; half of the smallest number
    top = [part.abs().amax((-2, -1)) for part in back.split(64, -2)]
    assert torch.allclose(torch.stack(top, -1),
                          torch.stack([part.abs().amax((-2, -1)) for part in X.split(64, -2)], -1), rtol=1e-6)


def test_scales_follow_their_blocks():
    """One row a million times larger costs the other blocks nothing; with one scale for all they would be zeros."""
    Q, K, V = inputs(256, 512, 64)
    V[:, :, 400] *= 1e6
    O = fp8.flash_attention_fp8(Q[:, :, :100], K, V, causal=False)
    small = fp8.flash_attention_fp8(Q[:, :, :100], K[:, :, :384], V[:, :, :384])
    assert O.isfinite().all() and small.isfinite().all()
    check(small, Q[:, :, :100], K[:, :, :384], V[:, :, :384])


def test_scale_may_be_negative_or_zero():
    Q, K, V = inputs(64, 128, 64)
    negative = fp8.flash_attention_fp8(Q, K, V, scale=-0.125)
    assert (negative == fp8.flash_attention_fp8(-Q, K, V, scale=0.125)).all()
    mean = V.double().mean(2, keepdim=True).expand(Q.shape)
    assert rms(fp8.flash_attention_fp8(Q, K, V, scale=0.0).double() - mean) < 2 * EPS * rms(V) / 128**0.5 * 1.2
    Q, K = torch.zeros_like(Q), torch.zeros_like(K)    # -inf times a factor that has become 0 would be NaN
    assert fp8.flash_attention_fp8(Q, K, V, scale=0.0, causal=True).isfinite().all()


@pytest.mark.filterwarnings("error:There is a performance drop")         # PyTorch's own loop over the mapped dimension
def test_autocast_vmap_and_the_compiler():
    """Fails if dtypes are refused that flash_attention casts, a sum is rounded to 16 bits, or the graph breaks."""
    Q, K, V = inputs(64, 64, 64)
    expected = fp8.flash_attention_fp8(Q, K, V)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(fp8.flash_attention_fp8(Q.float(), K, V.float()), expected)
    torch._dynamo.reset()
    compiled = torch.compile(fp8.flash_attention_fp8, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(Q, K, V), expected)
    mapped = torch.vmap(fp8.flash_attention_fp8, (2, None, None))(torch.stack([Q, -Q], 2), K, V)
    both = (torch.cat([Q, -Q]), torch.cat([K, K]), torch.cat([V, V]))
    assert torch.equal(mapped.flatten(0, 1), fp8.flash_attention_fp8(*both))
    torch.library.opcheck(fp8.ATTENTION_FP8, (Q, K, V, True, 0.1, True), test_utils=("test_schema", "test_faketensor"))
    with pytest.raises(RuntimeError, match="flash_attention_fp8 has no gradient, nor a forward-mode derivative"):
        torch.func.jvp(lambda Q: fp8.flash_attention_fp8(Q, K, V), (Q,), (Q,))


def test_bad_input_is_named():
    Q, K, V = inputs(64, 64, 64)
    with pytest.raises(TypeError, match="Q must be one of float16, bfloat16"):
        fp8.flash_attention_fp8(Q.float(), K.float(), V.float())
    with pytest.raises(ValueError, match="Q must have head dimension 64, 128 or 256"):
        fp8.flash_attention_fp8(*(T[..., :32] for T in (Q, K, V)))
    with pytest.raises(ValueError, match="V must have Q's head dimension d = 64"):
        fp8.flash_attention_fp8(Q, K, torch.cat([V, V], -1))
    with pytest.raises(ValueError, match="N_q <= N_k, got N_q = 64, N_k = 9"):
        fp8.flash_attention_fp8(Q, K[:, :, :9], V[:, :, :9], causal=True)
    with pytest.raises(RuntimeError, match="flash_attention_fp8 has no gradient, and Q requires one"):
        fp8.flash_attention_fp8(Q.clone().requires_grad_(), K, V)
    with pytest.raises(TypeError, match="rotate must be True or False"):
        fp8.flash_attention_fp8(Q, K, V, rotate=1)
    with pytest.raises(TypeError, match="X must be a tensor of floats"):
        fp8.quantize(Q[0])
    with pytest.raises(ValueError, match="block must be an integer >= 1"):
        fp8.quantize(Q, 0)
    with pytest.raises(ValueError, match="d must be a power of two"):
        fp8.hadamard(96)


# ---- the kernels

pytest.importorskip("flashlab.kernels.launch", reason="triton is not installed (it exists for Linux only)")
pytest.importorskip("triton.experimental.gluon", reason="this Triton has no Gluon")

import hopper_stand_in  # noqa: E402
from hopper_stand_in import kernels  # noqa: E402
from test_compiled import MEASURED  # noqa: E402

from flashlab.operator import fp8_kernel  # noqa: E402
from flashlab.operator import quantize as quantizing  # noqa: E402
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, compile_all  # noqa: E402

PLACES = torch.arange(16)
# of the 16 keys that change places, which is where
KEY_AT = ((PLACES >> 1) & 1) * 8 + ((PLACES >> 2) & 3) * 2 + (PLACES & 1)


def in_the_order_of_threads(X):
    """The last dimension with its keys in V's order."""
    return X.unflatten(-1, (-1, 16))[..., KEY_AT].flatten(-2)


@pytest.mark.parametrize("rotate, transposed", [(False, False), (True, False), (False, True)])
def test_quantising_kernel(rotate, transposed):
    """Interpreted. Where rounding should carry into the exponent, Triton's interpreter loses the carry: 127 becomes 64,
    not 128.

    It is at odds with the smallest numbers, too, and a number at the edge of a step may go either way.
    """
    X = inputs(200, 200, 128)[0].float()
    expected = fp8.quantize(X, 64, rotate=rotate)
    values = torch.zeros((1, 2, 128, 256) if transposed else X.shape, dtype=torch.float8_e4m3fn)
    scales = torch.full((1, 2, 4), torch.nan)
    grid, arguments = quantizing.launch(X, fp8.hadamard(128) if rotate else None, values, scales, 64, transposed)
    quantizing.quantize_kernel[grid](**arguments)
    scales = scales.exp2() if transposed else scales
    assert torch.allclose(scales, expected.scales, rtol=1e-6)
    wanted, found = expected.values.float(), values.float()
    if transposed:
        wanted = in_the_order_of_threads(torch.nn.functional.pad(wanted.mT, (0, 56)))
    carried = (wanted.frexp().mantissa.abs() == 0.5) & (found == wanted / 2)       # a power of two
    near = (found - wanted).abs() <= (wanted.abs() / 8).clamp(min=2.0**-6)
    assert (found == wanted).float().mean() > 0.95 and (near | carried).all()


def run_stand_in(monkeypatch, Q, K, V, causal):
    """O by fa2_fp8_kernel on numbers quantised in PyTorch, and what it should be."""
    O, scale = torch.full_like(Q, torch.nan), Q.shape[-1] ** -0.5
    *_, (_, grid, arguments) = kernels.fp8.launches(Q, K, V, O, causal=causal, scale=scale)
    quantised = fp8.quantize(Q, fp8.ROWS), fp8.quantize(K, fp8.KEYS), fp8.quantize(V, fp8.KEYS)
    for name, one in zip("QKV", quantised, strict=True):
        values = one.values.float()
        if name == "V":                                # the kernel wants it transposed, and logarithms of its scales
            values = in_the_order_of_threads(torch.nn.functional.pad(values.mT, (0, -V.shape[2] % fp8.KEYS)))
        arguments[name].base.copy_(values)
        arguments[f"{name}_scales"].copy_(one.scales.log2() if name == "V" else one.scales)
    stand_in(monkeypatch, min(2, grid[0]), arguments)  # two programs one after the other: one goes through many tiles
    return O, fp8.emulated(*quantised, causal, scale)


def stand_in(monkeypatch, programs, arguments):
    """One launch of fa2_fp8_kernel, its programs one after the other."""
    monkeypatch.setattr(kernels.fp8, "rounded", lambda P: in_the_order_of_threads(P).to(torch.float8_e4m3fn))
    monkeypatch.setattr(kernels.fp8, "as_operand", lambda P, O: P)
    hopper_stand_in.run_operator(kernels.fp8.fa2_fp8_kernel, programs, arguments)
    assert not arguments["counter"].any(), "the next launch would begin to count where this one stopped"


STAND_IN = {
    "d 128": (inputs(512, 512, 128), False), "causal, three consumers": (inputs(640, 640, 64), True),
    "ragged, shared key heads": (inputs(333, 690, 128, 4, 2), False),
    "bottom-right, the diagonal crosses blocks": (inputs(301, 700, 64), True),
    "d 256": (inputs(200, 300, 256), True), "one query": (inputs(1, 200, 128), True),
    "few keys": (inputs(200, 7, 64), False),
}


@pytest.mark.parametrize("case", STAND_IN)
def test_warpgroups_do_the_same_steps(monkeypatch, case):
    """Fails if a ring index, a mask, a scale or the order of the keys is wrong. Weights at the edge of a step may round
    apart."""
    (Q, K, V), causal = STAND_IN[case]
    V[:, :, -V.shape[2] // 3:] *= 8                    # blocks with other scales
    K[:, :, -K.shape[2] // 3:] *= 2
    O, expected = run_stand_in(monkeypatch, Q, K, V, causal)
    assert rms(O - expected) <= 0.01 * rms(expected)
    check(O, Q, K, V, causal)


def test_launches_belong_together(monkeypatch):
    """All of a call, in float16, which the interpreter can: fails if a tensor, a scale or a stride goes to the wrong
    place."""
    Q, K, V = (T.half().transpose(1, 2).contiguous().transpose(1, 2) for T in inputs(130, 200, 64, 4, 2))
    O = torch.full(Q.shape, torch.nan, dtype=torch.bfloat16)
    *quantise, (_, grid, arguments) = kernels.fp8.launches(Q, K, V, O, fp8.hadamard(64, dtype=Q.dtype), causal=True, scale=0.125)
    for kernel, its_grid, its_arguments in quantise:
        kernel[its_grid](**its_arguments)
    stand_in(monkeypatch, min(2, grid[0]), arguments)
    error = O.double() - oracle.attention(Q, K, V, causal=True)[0]
    assert rms(error) < 5 * rms(expected_error(Q, K, V, True))            # the interpreter's roundings: see above


def jobs(d, causal, **masks):
    """All four launches of a call to be compiled: of Q, K, V, and the attention."""
    Q = torch.empty(1, 16, 16384, d, dtype=torch.bfloat16, device="meta")
    *quantise, (kernel, _, arguments) = fp8_kernel.launches(Q, Q, Q, Q, Q[0, 0, :d], causal=causal, scale=1.0)
    return [*((kernel, arguments, 90) for kernel, _, arguments in quantise), (kernel, arguments | masks, 90)]


NAMES = [f"{what}, d {d}" for d in fp8.HEAD_DIMS for what in ("Q", "K", "V", "attention")] + ["crossing, d 256"]
ATTENTION = [name for name in NAMES if name[0] not in "QKV"]
SPILLED = {"attention, d 256": 28, "crossing, d 256": 128}     # bytes at most, by Triton 3.6 and 3.7; the others none


@pytest.fixture(scope="module")
def compiled(asked_for):
    every = [job for d in fp8.HEAD_DIMS for job in jobs(d, d == 64)] + jobs(256, True, crossing=True)[3:]
    wanted = asked_for(dict(zip(NAMES, every, strict=True)))
    return dict(zip(wanted, compile_all(wanted.values()), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_every_launch_fits(compiled, name):
    """Fails if a Hopper GPU has not the shared memory for it, or if numbers go to memory and back for want of
    registers."""
    result = compiled[name]
    assert result.shared_bytes <= SHARED_LIMIT[90]
    assert (result.spills <= SPILLED.get(name, 0) or not MEASURED) and not result.warnings


@pytest.mark.parametrize("name", ATTENTION)
def test_the_tensor_cores_multiply_e4m3(compiled, name):
    """Fails if a product is made of wider numbers, or if weights are moved between threads or bytes on their way to
    it."""
    ptx = compiled[name].ptx
    products = [line for line in ptx.splitlines() if "wgmma.mma_async" in line]
    assert products and all("f32.e4m3.e4m3" in line for line in products)
    assert ptx.count("cvt.rn.satfinite.e4m3x2.f32") and "prmt" not in ptx
    assert "QGMMA" in compiled[name].sass
