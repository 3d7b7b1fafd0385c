"""The backward rungs in PyTorch: float64, traffic against the closed form, a dropout mask drawn twice."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashlab import cost
from flashlab.ladder import BACKWARD_RUNGS, rung
from flashlab.memory import KiB, Memory, SRAMOverflow
from flashlab.oracle import gradients, judge_gradients, max_error
from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.fa1_backward import fa1_backward
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.fa2_backward import fa2_backward, fa2_backward_two_pass
from flashlab.rungs.naive import naive_forward
from flashlab.rungs.naive_backward import naive_backward
from tests import test_rungs
from tests.test_rungs import DTYPES, SIZES, drawn_mask

NAMES = [r.name for r in BACKWARD_RUNGS if not r.heads]


def inputs(N_q, N_k, d, d_v, dtype=torch.float32, logits=1):
    return *test_rungs.inputs(N_q, N_k, d, d_v, dtype, logits=logits), torch.randn(N_q, d_v).to(dtype)


def forward(name, Q, K, V, **options):
    """O, and all that the backward rung of that name needs besides Q, K, V, O and dO."""
    if name == "naive_backward":
        options = {key: value for key, value in options.items() if key not in ("B_r", "B_c")}
        return naive_forward(Q, K, V, **options)[0], ()
    if name == "fa1_backward":
        O, l, m = fa1_forward(Q, K, V, **options, return_lm=True)
        return O, (l, m)
    O, L = fa2_forward(Q, K, V, **options)
    return O, (L,)


def backward(name, Q, K, V, O, dO, saved, **options):
    if name == "naive_backward":
        options = {key: value for key, value in options.items() if key not in ("B_r", "B_c")}
        return naive_backward(Q, K, V, dO, **options)
    return rung(name).function(Q, K, V, O, dO, *saved, **options)


def both(name, Q, K, V, dO, **options):
    O, saved = forward(name, Q, K, V, **options)
    return backward(name, Q, K, V, O, dO, saved, **options)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_within_the_error_bound(name, causal, dtype):
    for (N_q, N_k, d, d_v, B_r, B_c), logits in itertools.product(SIZES, (1, 60)):
        Q, K, V, dO = inputs(N_q, N_k, d, d_v, dtype, logits=logits)
        grads = both(name, Q, K, V, dO, causal=causal, B_r=B_r, B_c=B_c)
        for grad, T in zip(grads, (Q, K, V), strict=True):
            assert grad.dtype == dtype and grad.shape == T.shape
        verdict = judge_gradients(*grads, Q, K, V, dO, causal=causal)
        assert verdict.ok, f"{name} N_q={N_q} N_k={N_k} d={d} d_v={d_v} logits x{logits}: {verdict}"


@pytest.mark.parametrize("name", NAMES)
def test_a_row_without_a_visible_key_has_gradient_zero_and_gives_none(name):
    Q, K, V, dO = inputs(9, 4, 16, 16)
    first = both(name, Q, K, V, dO, causal=True, B_r=4, B_c=2)
    assert first[0][:5].abs().max() == 0 and first[0][6:].abs().min() > 0     # row 5 sees one key: its softmax is fixed
    dO[:5] = 1e6                                                       # whatever arrives there must not matter
    second = both(name, Q, K, V, dO, causal=True, B_r=4, B_c=2)
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))
    for (N_q, N_k), causal in itertools.product([(0, 5), (5, 0), (0, 0)], [False, True]):
        Q, K, V, dO = inputs(N_q, N_k, 8, 6)
        for grad, T in zip(both(name, Q, K, V, dO, causal=causal), (Q, K, V), strict=True):
            assert grad.shape == T.shape and (grad == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_scale_strides_untouched_inputs_and_the_same_bits_twice(name):
    Q, K, V, dO = (T.T.contiguous().T for T in inputs(20, 37, 24, 24))  # column-major
    copies = [T.clone() for T in (Q, K, V, dO)]
    first, second = (both(name, Q, K, V, dO, scale=0.5, B_r=8, B_c=16) for _ in range(2))
    assert judge_gradients(*first, Q, K, V, dO, scale=0.5).ok
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(torch.equal(T, copy) for T, copy in zip((Q, K, V, dO), copies, strict=True))
    dO = torch.ones(()).expand(20, 24)                                  # as sum().backward() sends it
    assert judge_gradients(*both(name, Q, K, V, dO, B_r=8, B_c=16), Q, K, V, dO).ok


@pytest.mark.parametrize("name", NAMES)
def test_nan_is_never_hidden(name):
    for which in (1, 2, 3):                                            # K, V, dO
        tensors = inputs(20, 20, 16, 16)
        tensors[which][7] = torch.nan
        dQ, dK, dV = both(name, *tensors, causal=True, B_r=4, B_c=8)
        assert dQ[7].isnan().all()
        assert dV[:8].isnan().all() if which == 3 else dQ[8:].isnan().all()     # what query 7 saw, or who sees key 7
        assert not judge_gradients(dQ.nan_to_num(), dK, dV, *tensors, causal=True).ok


# ---- the judge


def test_judge_gradients_fails_what_is_wrong():
    Q, K, V, dO = inputs(40, 50, 32, 32, torch.bfloat16)
    right = [T.to(torch.bfloat16) for T in gradients(Q, K, V, dO)]
    assert judge_gradients(*right, Q, K, V, dO).ok
    for which in range(3):
        for wrong in (1.1 * right[which], right[which] * 0, right[which] * torch.nan, right[which].flip(0)):
            grads = [wrong if n == which else T for n, T in enumerate(right)]
            verdict = judge_gradients(*grads, Q, K, V, dO)
            assert not verdict.ok and str(verdict).startswith("WRONG")
    P = torch.softmax(Q.float() @ K.float().T * 32**-0.5, -1)
    without_D = (P * (dO.float() @ V.float().T) @ K.float() * 32**-0.5).to(torch.bfloat16)
    assert not judge_gradients(without_D, *right[1:], Q, K, V, dO).ok


def test_the_oracle_is_autograd_over_grouped_heads_too():
    Q, K, V, dO = (torch.randn(2, h, n, 8, dtype=torch.float64) for h, n in ((4, 6), (2, 9), (2, 9), (4, 6)))
    dQ, dK, dV = gradients(Q, K, V, dO)
    one = [gradients(Q[1, h], K[1, h // 2], V[1, h // 2], dO[1, h]) for h in range(4)]
    assert max_error(dQ[1, 3], one[3][0]) < 1e-14
    assert max_error(dK[1, 1], one[2][1] + one[3][1]) < 1e-14
    assert max_error(dV[1, 0], one[0][2] + one[1][2]) < 1e-14


# ---- traffic, SRAM and memory


def measure(name, N_q, N_k, d, d_v, causal, dtype, sram_bytes=10**8, **tile):
    Q, K, V, dO = inputs(N_q, N_k, d, d_v, dtype)
    O, saved = forward(name, Q, K, V, causal=causal, **tile)
    with Memory(sram_bytes=sram_bytes) as mem:
        grads = backward(name, Q, K, V, O, dO, saved, causal=causal, **tile)
    assert all(grad.isfinite().all() for grad in grads)
    return mem


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(N_q=st.integers(0, 40), N_k=st.integers(0, 40), d=st.integers(1, 9), d_v=st.integers(1, 9),
       B_r=st.integers(1, 17), B_c=st.integers(1, 17), causal=st.booleans(), dtype=st.sampled_from(DTYPES))
def test_measured_traffic_and_flops_equal_the_closed_form(name, N_q, N_k, d, d_v, B_r, B_c, causal, dtype):
    mem = measure(name, N_q, N_k, d, d_v, causal, dtype, B_r=B_r, B_c=B_c)
    tile = {} if name == "naive_backward" else dict(B_r=B_r, B_c=B_c)
    expected = rung(name).cost(N_q, N_k, d, d_v, causal=causal, element_size=dtype.itemsize, **tile)
    assert (mem.read, mem.written, mem.matmul_flops) == tuple(expected)


def test_why_two_passes():
    sizes = dict(N_q=4096, N_k=4096, d=64, B_r=48, B_c=48)
    one, two = (f(**sizes, element_size=2) for f in (cost.fa2_backward, cost.fa2_backward_two_pass))
    assert two.written < one.written / 50                       # dQ is written once, not once for each key block
    assert two.traffic < 0.7 * one.traffic                      # in 16 bits, since the running dQ takes 32
    # 7 matrix products for 5; causal tiles may differ, this is without a mask
    assert 5 * two.matmul_flops == 7 * one.matmul_flops
    assert cost.naive_backward(4096, 4096, 64, element_size=2).traffic > 2 * two.traffic


@pytest.mark.parametrize("name", NAMES[1:])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_the_default_tiles_fit_and_fill_the_sram(name, dtype):
    for d in (16, 24, 59, 64, 80, 128, 256):
        mem = measure(name, 260, 260, d, d, True, dtype, sram_bytes=192 * KiB)
        assert 0.5 <= mem.sram_peak / mem.sram_bytes <= 0.95, d


@pytest.mark.parametrize("name", NAMES[1:])
def test_no_tile_outlives_its_step(name):
    mem = measure(name, 64, 64, 16, 8, False, torch.float32, B_r=16, B_c=16)
    assert all(len(live) == 1 for live in test_rungs.live_at_loads(mem).values())


def test_the_default_tiles_leave_room_for_dropout():
    Q, K, V, dO = inputs(200, 200, 32, 32)
    state = torch.Generator().get_state()
    with Memory(sram_bytes=64 * KiB):
        O, l, m = fa1_forward(Q, K, V, dropout_p=0.1, rng_state=state, return_lm=True)
        fa1_backward(Q, K, V, O, dO, l, m, dropout_p=0.1, rng_state=state)


def test_tiles_that_are_too_large_overflow():
    with pytest.raises(SRAMOverflow, match="fa2_backward.py"):
        measure("fa2_backward", 256, 256, 64, 64, False, torch.float32, sram_bytes=192 * KiB, B_r=128, B_c=128)


def test_peak_memory_of_forward_and_backward_is_linear_in_N_for_flash_and_quadratic_for_naive():
    def peak(name, N):
        Q, K, V, dO = inputs(N, N, 16, 16, torch.float16)
        with Memory() as mem:
            both(name, Q, K, V, dO, causal=True)
        return mem.hbm_peak

    for name in NAMES:
        growth = peak(name, 1024) / peak(name, 512)
        assert 3.5 < growth < 4.1 if name == "naive_backward" else 1.9 < growth < 2.1, (name, growth)


# ---- dropout


@pytest.mark.parametrize("causal", [False, True])
def test_fa1_with_dropout_is_right_given_its_mask(causal):
    Q, K, V, dO = inputs(50, 41, 16, 24)
    state = torch.Generator().manual_seed(5).get_state()
    options = dict(causal=causal, dropout_p=0.3, B_r=16, B_c=7, rng_state=state)
    grads = both("fa1_backward", Q, K, V, dO, **options)
    keep = drawn_mask(50, 41, 16, 7, 0.3, state)
    assert judge_gradients(*grads, Q, K, V, dO, causal=causal, dropout_p=0.3, keep=keep).ok
    O, saved = forward("fa1_backward", Q, K, V, **options)
    for wrong in (dict(B_c=8), dict(rng_state=torch.Generator().manual_seed(6).get_state())):     # other masks
        grads = backward("fa1_backward", Q, K, V, O, dO, saved, **options | wrong)
        assert not judge_gradients(*grads, Q, K, V, dO, causal=causal, dropout_p=0.3, keep=keep).ok


# ---- bad input


def test_bad_arguments_are_named():
    Q, K, V, dO = inputs(6, 8, 4, 3)
    O, L = fa2_forward(Q, K, V)
    cases = [({"dO": dO.T}, ValueError, r"dO must be a float32 tensor of shape \(6, 3\), got .*\(3, 6\)"),
             ({"dO": dO.half()}, TypeError, "dO must be a float32 tensor.* got a float16"),
             ({"L": L[:5]}, ValueError, r"L must be a float32 tensor of shape \(6,\)"),
             ({"B_r": 0}, ValueError, "B_r must be an integer >= 1, got 0")]
    for function, (changes, error, words) in itertools.product((fa2_backward, fa2_backward_two_pass), cases):
        with pytest.raises(error, match=words):
            function(**{"Q": Q, "K": K, "V": V, "O": O, "dO": dO, "L": L} | changes)
    O, l, m = fa1_forward(Q, K, V, return_lm=True)
    with pytest.raises(ValueError, match=r"m must be a float32 tensor of shape \(6,\)"):
        fa1_backward(Q, K, V, O, dO, l, m[:, None])
    with pytest.raises(ValueError, match="rng_state must be a torch.Generator's get_state.*need the same one"):
        fa1_backward(Q, K, V, O, dO, l, m, dropout_p=0.1)
