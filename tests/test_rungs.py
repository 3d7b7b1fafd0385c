"""Every PyTorch rung against float64, on the sizes where mistakes show; and its traffic against the closed form."""

import itertools

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flashlab import cost
from flashlab.ladder import DECODING_RUNGS, RUNGS, rung
from flashlab.memory import KiB, Memory, SRAMOverflow, tiles
from flashlab.oracle import attention, judge, max_error
from flashlab.rungs.fa1 import fa1_forward
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.naive import naive_forward
from flashlab.tiles import paper_tile_sizes

PYTORCH = [r for r in RUNGS + DECODING_RUNGS if not r.heads]
IDS = [r.name for r in PYTORCH]
TILED = [r.function for r in PYTORCH if r.tiled]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]

# (N_q, N_k, d, d_v, B_r, B_c): ragged tails, N_q != N_k, d_v != d, B_r != B_c, three key blocks, rows that see nothing
SIZES = [
    (1, 1, 16, 16, 16, 16), (1, 97, 64, 64, 16, 32), (7, 7, 24, 24, 4, 2), (16, 113, 59, 80, 16, 32),
    (97, 16, 24, 16, 32, 7), (113, 97, 80, 59, 48, 16), (128, 128, 128, 128, 64, 32),
    (200, 200, 64, 24, 64, 48), (97, 200, 16, 128, 33, 64),
]
SHORT = [s for s in SIZES if s[0] * s[1] <= 16 * 113]      # enough for the rung that takes one key a step


def inputs(N_q, N_k, d, d_v, dtype=torch.float32, seed=0, logits=1):
    g = torch.Generator().manual_seed(seed)
    Q, K, V = (torch.randn(n, x, generator=g) for n, x in ((N_q, d), (N_k, d), (N_k, d_v)))
    return (Q * logits).to(dtype), K.to(dtype), V.to(dtype)


def tile_arguments(rung_, B_r, B_c):
    return {"B_r": B_r, "B_c": B_c} if rung_.tiled else {}


def both(rung_, *tensors, **options):
    """O and L: naive attention computes L only if asked."""
    return rung_.function(*tensors, **options, **({"return_lse": True} if rung_.name == "naive_forward" else {}))


@pytest.mark.parametrize("rung_", PYTORCH, ids=IDS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_within_the_error_bound(rung_, causal, dtype):
    sizes = SIZES if rung_.tiled or rung_.number == 0 else SHORT
    for (N_q, N_k, d, d_v, B_r, B_c), logits in itertools.product(sizes, (1, 60)):
        Q, K, V = inputs(N_q, N_k, d, d_v, dtype, logits=logits)
        O, L = both(rung_, Q, K, V, causal=causal, **tile_arguments(rung_, B_r, B_c))
        assert O.dtype == dtype and O.shape == (N_q, d_v) and L.shape == (N_q,)
        assert L.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        L = L.to(dtype) if rung_.name == "naive_forward" else L        # computed from scores that lie in HBM in 16 bits
        verdict = judge(O, L, Q, K, V, causal=causal)
        assert verdict.ok, f"{rung_.name} N_q={N_q} N_k={N_k} d={d} d_v={d_v} logits x{logits}: {verdict}"


@pytest.mark.parametrize("rung_", PYTORCH, ids=IDS)
def test_rows_that_see_no_key_give_zero_and_minus_infinity(rung_):
    O, L = both(rung_, *inputs(9, 4, 16, 16), causal=True, **tile_arguments(rung_, 4, 2))
    assert O[:5].abs().max() == 0 and (L[:5] == -torch.inf).all()
    assert O[5:].abs().min() > 0 and L[5:].isfinite().all()
    for N_q, N_k in ((0, 5), (5, 0), (0, 0)):
        O, L = both(rung_, *inputs(N_q, N_k, 8, 6))
        assert O.shape == (N_q, 6) and (O == 0).all() and (L == -torch.inf).all()


@pytest.mark.parametrize("rung_", PYTORCH, ids=IDS)
def test_scale_strides_and_untouched_inputs(rung_):
    Q, K, V = (T.T.contiguous().T for T in inputs(20, 37, 24, 24))      # column-major
    copies = [T.clone() for T in (Q, K, V)]
    O, L = both(rung_, Q, K, V, scale=0.5, **tile_arguments(rung_, 8, 16))
    assert judge(O, L, Q, K, V, scale=0.5).ok
    assert all(torch.equal(T, copy) for T, copy in zip((Q, K, V), copies, strict=True))


@pytest.mark.parametrize("rung_", PYTORCH, ids=IDS)
def test_nan_reaches_the_rows_that_see_it(rung_):
    for which in (1, 2):                                       # K, V
        QKV = inputs(20, 20, 16, 16)
        QKV[which][10] = torch.nan
        O, _ = rung_.function(*QKV, causal=True, **tile_arguments(rung_, 4, 4))
        assert O[10:].isnan().all()
        assert which == 2 or O[:10].isfinite().all()


X = torch.zeros(6, 4)
BAD = [
    ({"Q": X.tolist()}, TypeError, r"Q must be a torch.Tensor"),
    ({"Q": X[0]}, ValueError, r"Q must have 2 dimensions"),
    (dict.fromkeys("QKV", X.int()), TypeError, r"Q must be one of .* int32"),
    ({"K": X.half()}, TypeError, r"K must match Q's dtype"),
    ({"K": X[:, :3]}, ValueError, r"K must have Q's head dimension d = 4"),
    ({"V": X[:3]}, ValueError, r"V must have K's sizes \(6,\)"),
    (dict.fromkeys("QK", X[:, :0]), ValueError, r"Q must have head dimension d >= 1"),
    ({"V": X[:, :0]}, ValueError, r"V must have head dimension d_v >= 1"),
    ({"scale": float("nan")}, ValueError, r"scale must lie between -1e8 and 1e8, got nan"),
    ({"scale": "1"}, TypeError, r"scale must be a number"),
    ({"causal": 1}, TypeError, r"causal must be True or False, got 1"),
]
BAD_TILES = [
    ({"B_r": 0, "B_c": 4}, ValueError, "B_r must be an integer >= 1"),
    ({"B_r": 4, "B_c": -1}, ValueError, "B_c must be an integer >= 1"),
    ({"B_r": 1.5}, TypeError, "B_r must be an integer >= 1"),
]


@pytest.mark.parametrize("rung_", PYTORCH, ids=IDS)
def test_bad_input_is_named(rung_):
    for changes, error, message in BAD + (BAD_TILES if rung_.tiled else []):
        with pytest.raises(error, match=message):
            rung_.function(**{"Q": X, "K": X, "V": X} | changes)


# ---- traffic ----

sizes = st.integers(1, 40)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(N_q=sizes, N_k=sizes, d=st.integers(1, 24), d_v=st.integers(1, 24), B_r=st.integers(1, 20),
       B_c=st.integers(1, 20), causal=st.booleans(), dtype=st.sampled_from(DTYPES))
def test_measured_traffic_is_the_formula(N_q, N_k, d, d_v, B_r, B_c, causal, dtype):
    """Every byte and every matrix FLOP, for every rung: a tile loaded twice or a cast forgotten would show."""
    assume(-(-N_q // B_r) * -(-N_k // B_c) < 150)          # more tiles are only slower
    Q, K, V = inputs(N_q, N_k, d, d_v, dtype)
    for rung_ in PYTORCH:
        if rung_.name == "online_softmax_forward" and N_q * N_k > 200:
            continue                                       # slow, and its formula has no corner there
        arguments = tile_arguments(rung_, B_r, B_c)
        with Memory() as mem:
            rung_.function(Q, K, V, causal=causal, **arguments)
        formula = rung_.cost(N_q, N_k, d, d_v, causal=causal, element_size=dtype.itemsize, **arguments)
        assert (mem.read, mem.written, mem.matmul_flops) == formula, rung_.name


def test_formulas_as_published_in_elements():
    """The formulas of the course's text, written out once more by hand at one size."""
    N_q, N_k, d, d_v, B_r, B_c = 200, 130, 64, 48, 64, 32
    T_r, T_c = 4, 5
    assert [x // 4 for x in cost.naive_forward(N_q, N_k, d, d_v)[:2]] == [
        (N_q + N_k) * d + 3 * N_q * N_k + N_k * d_v, 3 * N_q * N_k + N_q * d_v]
    assert [x // 4 for x in cost.fa1_forward(N_q, N_k, d, d_v, B_r=B_r, B_c=B_c)[:2]] == [
        N_k * (d + d_v) + T_c * N_q * (d + d_v + 2), (T_c + 1) * N_q * (d_v + 2) + N_q]
    assert [x // 4 for x in cost.fa2_forward(N_q, N_k, d, d_v, B_r=B_r, B_c=B_c)[:2]] == [
        N_q * d + T_r * N_k * (d + d_v), N_q * (d_v + 1)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_naive_attention_computes_L_only_if_asked(dtype, causal):
    tensors, size = inputs(12, 20, 8, 8, dtype), dtype.itemsize
    with Memory() as mem:
        O, L = naive_forward(*tensors, causal=causal, return_lse=True)
    assert (mem.read, mem.written) == cost.naive_forward(
        12, 20, 8, causal=causal, element_size=size, return_lse=True)[:2]
    alone, nothing = naive_forward(*tensors, causal=causal)
    assert nothing is None and torch.equal(O, alone) and L.shape == (12,)


@pytest.mark.parametrize("f", TILED)
@pytest.mark.parametrize("sram", [96 * KiB, 192 * KiB])
def test_default_tiles_fit_and_use_the_sram(f, sram):
    for (d, d_v), dtype in itertools.product([(16, 16), (59, 80), (64, 64), (128, 128), (256, 256)],
                                             [torch.float32, torch.float16]):
        with Memory(sram_bytes=sram) as mem:
            f(*inputs(150, 150, d, d_v, dtype), causal=dtype == torch.float32)
        assert 0.5 <= mem.sram_peak / sram <= 0.95, f"{mem.sram_peak / sram:.2f} of the SRAM"


def live_at_loads(mem):
    """{(kernel, tensor): what SRAM holds after its loads}: one number, unless a tile of the step before lives on."""
    live = {}
    for event in mem.log:
        if event.kind == "load" and event.name in ("Q", "K"):
            live.setdefault((event.kernel, event.name), set()).add(event.live)
    return live


@pytest.mark.parametrize("f", TILED)
def test_no_tile_outlives_its_step(f):
    with Memory() as mem:
        f(*inputs(64, 128, 16, 8), B_r=16, B_c=16)
    assert all(len(live) == 1 for live in live_at_loads(mem).values())


def test_the_papers_tile_rule_overflows():
    """⌈M/4d⌉ fills the SRAM with Q, K, V, O and leaves no room for S and P."""
    B_r, B_c = paper_tile_sizes(192 * KiB, d=64)
    assert (B_r, B_c) == (64, 192)
    Q, K, V = inputs(256, 256, 64, 64)
    with Memory(sram_bytes=192 * KiB), pytest.raises(SRAMOverflow):
        fa1_forward(Q, K, V, B_r=B_r, B_c=B_c)


# ---- dropout and the FA1 statistics ----

def drawn_mask(N_q, N_k, B_r, B_c, p, state):
    """FA1's mask as one matrix: drawn tile by tile, j outer, i inner."""
    generator = torch.Generator().set_state(state)
    keep = torch.empty(N_q, N_k, dtype=torch.bool)
    for cols, rows in itertools.product(tiles(N_k, B_c), tiles(N_q, B_r)):
        keep[rows, cols] = torch.rand(keep[rows, cols].shape, generator=generator) >= p
    return keep


@pytest.mark.parametrize("causal", [False, True])
def test_fa1_dropout_is_dropout_of_P(causal):
    Q, K, V = inputs(50, 70, 16, 24)
    state = torch.Generator().manual_seed(3).get_state()
    O, L = fa1_forward(Q, K, V, causal=causal, B_r=16, B_c=32, dropout_p=0.3, rng_state=state)
    keep = drawn_mask(50, 70, 16, 32, 0.3, state)
    expected, expected_L = attention(Q, K, V, causal=causal, dropout_p=0.3, keep=keep)
    assert max_error(O, expected) < 2e-6
    assert max_error(L, expected_L) < 2e-6                     # L is that of the softmax before dropout


def test_fa1_returns_sums_and_maxima_and_names_what_dropout_lacks():
    Q, K, V = inputs(50, 70, 16, 16)
    O, l, m = fa1_forward(Q, K, V, return_lm=True)
    assert max_error(m + l.log(), attention(Q, K, V)[1]) < 2e-6
    with pytest.raises(ValueError, match="rng_state must be a torch.Generator's get_state"):
        fa1_forward(Q, K, V, dropout_p=0.1)
    with pytest.raises(ValueError, match=r"dropout_p must lie in \[0, 1\), got 1.0"):
        fa1_forward(Q, K, V, dropout_p=1.0)


def test_ladder_is_in_order_and_finds_its_rungs():
    assert [r.number for r in RUNGS] == list(range(len(RUNGS)))
    assert rung("fa2_forward").function is fa2_forward
    with pytest.raises(ValueError, match="name must be one of naive_forward, .* got 'fa3'"):
        rung("fa3")
