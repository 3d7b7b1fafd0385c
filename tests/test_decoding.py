"""flash_attention_decode on both backends against float64: ragged lengths, pages, windows, groups, chunks."""

import pytest
import torch

import flashlab
from flashlab.operator import decoding
from flashlab.operator.splits import MOST, choose_splits
from flashlab.oracle import judge, judge_gradients
from flashlab.triton_mode import interpreted
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, compile_all

try:
    from flashlab.operator import decode_kernels as decode
except ImportError:
    decode = None
needs_triton = pytest.mark.skipif(decode is None, reason="triton is not installed (it exists for Linux only)")
DEVICE = "cpu" if decode is None or interpreted() else "cuda"
BACKENDS = [pytest.param("torch"), pytest.param("triton", marks=needs_triton)]
RAGGED = [0, 1, 15, 16, 17, 75]        # empty, one key, a page of 16 but one, just one, and one more, several


def case(lengths, *, H_q=4, H_kv=2, N_q=1, N_max=80, d=24, d_v=16, page_size=None, dtype=torch.float32):
    """Q and a cache with NaN behind the keys of each sequence; paged: in shuffled pages, NaN in all others."""
    g, B = torch.Generator().manual_seed(0), len(lengths)
    Q = torch.randn(B, H_q, N_q, d, generator=g).to(DEVICE, dtype)
    caches = [torch.randn(B, H_kv, N_max, width, generator=g).to(DEVICE, dtype) for width in (d, d_v)]
    for cache in caches:
        for b, length in enumerate(lengths):
            cache[b, :, length:] = torch.nan
    whole, table = list(caches), None
    if page_size:
        each = -(-N_max // page_size)
        table = (torch.randperm(B * each, generator=g) + 3).reshape(B, each).to(DEVICE, torch.int32)
        caches = [paged(cache, table, page_size) for cache in caches]
    return Q, *whole, *caches, torch.tensor(lengths, dtype=torch.int32, device=DEVICE), table


def paged(cache, table, page_size):
    """The same keys in pages, three more of which nobody uses."""
    B, H, N, d = cache.shape
    pages = cache.new_full((table.numel() + 3, H, page_size, d), torch.nan)
    for b in range(B):
        for n, rows in enumerate(cache[b].split(page_size, 1)):
            pages[table[b, n], :, :rows.shape[1]] = rows
    return pages


def hold_against_float64(lengths, *, backend="triton", window=None, scale=None, splits=None, strange=lambda T: T,
                         **sizes):
    """Every sequence by itself, as if there were no cache."""
    Q, K, V, K_cache, V_cache, places, table = case(lengths, **sizes)
    O, L = flashlab.flash_attention_decode(
        strange(Q), strange(K_cache), strange(V_cache), places, block_table=table, window=window, scale=scale,
        splits=splits, return_lse=True, backend=backend)
    assert O.shape == (*Q.shape[:3], V.shape[-1]) and O.dtype == Q.dtype and L.shape == Q.shape[:3]
    assert O.is_contiguous()
    for b, length in enumerate(lengths):
        verdict = judge(O[b], L[b], Q[b], K[b, :, :length], V[b, :, :length], causal=True, window=window, scale=scale)
        assert verdict.ok, f"{length} keys: {verdict}"


HEADS, LONG = {"lengths": [97], "N_max": 113, "splits": 2}, {"lengths": [150, 3, 64], "N_max": 160, "splits": 2}
CALLS = {
    "ragged": {"lengths": RAGGED, "N_q": 3, "splits": 3}, "pages": {"lengths": RAGGED, "page_size": 16, "splits": 3},
    "pages, 3 queries": {"lengths": RAGGED, "page_size": 16, "N_q": 3, "splits": 3},
    "8:1": HEADS | {"H_q": 8, "H_kv": 1, "N_q": 3, "d": 59, "d_v": 80},
    "a key head for each": HEADS | {"H_q": 3, "H_kv": 3, "d": 128, "d_v": 128},
    "rows that fill a tile": HEADS | {"H_q": 16, "N_q": 2, "d": 64, "d_v": 64},
    "narrow": HEADS | {"H_q": 6, "H_kv": 3, "N_q": 4, "d": 1, "d_v": 7},
    "two tiles of rows": {"lengths": [50, 5], "H_q": 16, "H_kv": 1, "N_q": 5, "splits": 2},
    "own key": LONG | {"window": (0, 0), "N_q": 3}, "wide": LONG | {"window": (200, 5), "N_q": 3},
    "window in pages": LONG | {"window": (20, 0), "N_q": 3, "page_size": 8},
    "no window": LONG | {"window": (-1, 3), "N_q": 3, "page_size": 8},
    "float16": {"lengths": [70, 9], "dtype": torch.float16, "page_size": 32, "H_q": 8, "splits": 2},
    "bfloat16": {"lengths": [70, 9], "dtype": torch.bfloat16, "page_size": 32, "H_q": 8, "splits": 2},
    "scale 0": {"lengths": [70], "scale": 0.0, "splits": 3}, "negative": {"lengths": [70], "scale": -0.3, "splits": 3},
    "the largest scale": {"lengths": [70], "scale": 1e8, "splits": 3},
    "one weight counts, other chunks merge to nothing": {"lengths": [70], "scale": 60.0, "splits": 3},
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CALLS)
def test_every_sequence_has_its_own_length(backend, name):
    hold_against_float64(**CALLS[name], backend=backend)


@needs_triton
@pytest.mark.parametrize("splits", [1, 7, 40, None])
def test_any_number_of_chunks(splits):
    """40 are more than there are keys in some sequences, and more than the merge takes at a time."""
    hold_against_float64([30, 200], splits=splits, N_max=200, H_q=2, H_kv=1)


@needs_triton
def test_tiles_before_the_window_are_skipped():
    """NaN in the keys that no query sees does not show, and splits share out what is left."""
    Q, K, V, *_, lengths, _ = case([400], N_max=400, H_q=2, H_kv=1)
    K[:, :, :256], V[:, :, :256] = torch.nan, torch.nan
    O = flashlab.flash_attention_decode(Q, K, V, lengths, window=(99, 0), splits=2, backend="triton")
    assert judge(O, None, Q, K[:, :, 256:], V[:, :, 256:], causal=True, window=(99, 0)).ok


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("page_size", [None, 16])
def test_any_strides(backend, page_size):
    """Tokens before heads, and columns that are no neighbours."""
    strange = lambda T: T.permute(0, 3, 2, 1).contiguous().permute(0, 3, 2, 1)
    hold_against_float64([20, 70], backend=backend, page_size=page_size, strange=strange, splits=2)
    Q, K, V, *_, lengths, _ = case([20, 20])
    both = lengths[:1].expand(2)
    O = flashlab.flash_attention_decode(Q, K, V, both, backend=backend)
    assert torch.equal(O, flashlab.flash_attention_decode(Q, K, V, lengths, backend=backend))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("page_size,dtype", [(None, torch.float32), (16, torch.float32), (16, torch.bfloat16)], ids=str)
def test_a_cache_that_grows_token_by_token(backend, page_size, dtype):
    """Together the steps are one causal call, and the cache holds the keys that they wrote."""
    B, N = 2, 21
    Q, K, V = (torch.randn(B, H, N, 16, dtype=dtype, device=DEVICE) for H in (4, 2, 2))
    *_, K_cache, V_cache, lengths, table = case([0] * B, d=16, N_max=32, page_size=page_size, dtype=dtype)
    steps, n = [], 0
    for N_q in (1, 3, 11, 1, 5):
        new = slice(n, n + N_q)
        steps.append(flashlab.flash_attention_decode(
            Q[:, :, new], K_cache, V_cache, lengths, block_table=table, K_new=K[:, :, new], V_new=V[:, :, new],
            splits=2, backend=backend))
        lengths += N_q
        n += N_q
    assert judge(torch.cat(steps, 2), None, Q, K, V, causal=True).ok
    found = K_cache if table is None else torch.stack(
        [K_cache[pages.long()].transpose(0, 1).flatten(1, 2) for pages in table])
    assert torch.equal(found[:, :, :N], K) and K_cache.isnan().sum() == K_cache.numel() - K.numel()


@needs_triton
@pytest.mark.parametrize("pages", [True, False])
def test_numbers_that_a_gpu_is_not_asked_touch_nothing_outside(pages):
    """Lengths and pages that are negative or too large, unchecked: NaN around the cache stays there, and out."""
    ints = lambda numbers: torch.tensor(numbers, dtype=torch.int32, device=DEVICE)
    whole = torch.full((10, 1, 16, 16), torch.nan, device=DEVICE)
    cache = whole[3:7]
    cache.copy_(torch.randn(4, 1, 16, 16))
    before = whole.clone()
    Q, O, L = (torch.zeros(4, 1, 1, *width, device=DEVICE) for width in ((16,), (16,), ()))
    table = ints([[-1, 0, 3], [2**30, -7, 1], [5, 2, 2], [0, 4, -2]]) if pages else None
    for numbers in ([-9, 2**31 - 1, 99, 16], [0, 1, -(2**31), 48], [16, -1, 99, 2**31 - 1]):
        launches = decode.launch(Q, cache, cache, O, L, ints(numbers), table, scale=1.0, splits=2, added=int(pages))
        for kernel, grid, arguments in launches:
            kernel[grid](**arguments)
        assert O.isfinite().all()
    full = ints([48, -1, 2**31 - 1, 17])               # no room, no place, no page
    decode.append(Q + 7, Q + 7, cache, cache, full, table)
    assert torch.equal(whole.nan_to_num(nan=-99.0), before.nan_to_num(nan=-99.0))


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_in_a_key_that_is_seen_comes_out(backend):
    Q, K, V, *_, lengths, _ = case([60, 60])
    K[0, :, 7] = torch.nan
    O, L = flashlab.flash_attention_decode(Q, K, V, lengths, splits=3, return_lse=True, backend=backend)
    assert O[0].isnan().all() and L[0].isnan().all() and O[1].isfinite().all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("B,N_q,N_max", [(0, 1, 8), (2, 0, 8), (2, 1, 0)])
def test_nothing_to_attend_from_or_to(backend, B, N_q, N_max):
    Q, K, V, *_, lengths, _ = case([0] * B, N_q=N_q, N_max=N_max) if B else [T[:0] for T in case([0])[:6]] + [None]
    O, L = flashlab.flash_attention_decode(Q, K, V, lengths, return_lse=True, backend=backend)
    assert O.shape == (B, 4, N_q, 16) and (O == 0).all() and (L == -torch.inf).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_torch_compile_takes_it_whole(backend):
    def step(Q, K_cache, V_cache, lengths, K_new, V_new):
        O = decoding.flash_attention_decode(2 * Q, K_cache, V_cache, lengths, K_new=K_new, V_new=V_new, splits=2,
                                            window=(9, 0), backend=backend)
        return O + 1, lengths + 1

    torch._dynamo.reset()
    compiled, results = torch.compile(step, fullgraph=True, backend="aot_eager"), []
    for function in (compiled, step):
        Q, K, V, *_, lengths, _ = case([20, 5], d=16, N_max=32)
        new = torch.ones(2, 2, 1, 16, device=DEVICE)
        results.append((*function(Q, K, V, lengths, new, new), K.nan_to_num(), V.nan_to_num()))
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


def test_pytorch_finds_the_operators_as_it_expects_them():
    Q, K, V, *_, lengths, _ = (T.cpu() if T is not None else None for T in case([5, 9], d=16))
    new = torch.ones(2, 2, 1, 16)
    for operator, arguments in (
            (decoding.CACHE_APPEND, (new, new, K, V, lengths, None, "torch")),
            (decoding.ATTENTION_DECODE, (Q, K, V, lengths, None, 0, None, 0.5, None, "torch"))):
        torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))


X, CACHE, TWO = torch.zeros(2, 4, 1, 16), torch.zeros(2, 2, 8, 16), torch.tensor([3, 8], dtype=torch.int32)
TABLE, PAGES = torch.tensor([[0, 1], [2, 3]], dtype=torch.int32), torch.zeros(4, 2, 4, 16)
PAGED = {"K_cache": PAGES, "V_cache": PAGES, "block_table": TABLE}
DOUBLE = {"Q": X.double(), "K_cache": CACHE.double(), "V_cache": CACHE.double()}
NEW = X[:, :2]
REFUSED = {                                            # what is changed: the error, and words of its message
    "a list": ({"lengths": [3, 8]}, TypeError, r"lengths must be a torch.Tensor, got \[3, 8\]"),
    "int64": ({"lengths": TWO.long()}, TypeError, "lengths must be an int32 tensor on Q's device cpu, got a int64"),
    "batch": ({"lengths": TWO[:1]}, ValueError, r"lengths must have the shape \(B,\) with Q's batch size B = 2, got"),
    "too long": ({"lengths": TWO + 1}, ValueError, r"lengths must lie between 0 and 8, .* got \[4, 9\]"),
    "negative": ({"lengths": TWO - 4}, ValueError, r"lengths must lie between 0 and 8, .* got \[-1, 4\]"),
    "no room": ({"K_new": NEW, "V_new": NEW}, ValueError, "lengths must lie between 0 and 7, .* less 1 new ones, got"),
    "K alone": ({"K_new": NEW}, TypeError, "V_new must be a torch.Tensor, as K_new and V_new come together, got None"),
    "heads of new": ({"K_new": X, "V_new": X}, ValueError, r"K_new must have the shape .* = \(2, 2, 1, 16\), got"),
    "dtype of new": ({"K_new": NEW, "V_new": NEW.half()}, TypeError, "V_new must match Q's dtype and device"),
    "cache's dtype": ({"V_cache": CACHE.half()}, TypeError, "V_cache must match Q's dtype and device"),
    "cache's width": ({"K_cache": CACHE[..., :9]}, ValueError, "K_cache must have Q's head dimension d = 16, got"),
    "caches differ": ({"V_cache": CACHE[:, :1]}, ValueError, r"V_cache must have K_cache's sizes \(2, 2, 8\)"),
    "cache's batch": (PAGED | {"block_table": None}, ValueError, "K_cache must have Q's batch size B = 2, or come"),
    "heads": ({"Q": X[:, :3]}, ValueError, "H_q = 3 and H_kv = 2"),
    "no pages": (PAGED | {"K_cache": PAGES[:0], "V_cache": PAGES[:0]}, ValueError, "must have at least one page"),
    "table's type": (PAGED | {"block_table": TABLE.float()}, TypeError, "block_table must be an int32 tensor on Q's"),
    "table's shape": (PAGED | {"block_table": TABLE[0]}, ValueError, r"must have the shape \(B, max_pages\)"),
    "a page too far": (PAGED | {"block_table": TABLE + 1}, ValueError, r"must name pages 0 to 3 .* got \[3, 4\]"),
    "window": ({"window": 3}, TypeError, "window must be None or two integers"),
    "splits": ({"splits": 0}, ValueError, "splits must be an integer >= 1, got 0"),
    "backend": ({"backend": "cuda"}, ValueError, "backend must be one of auto, triton, torch, got 'cuda'"),
    "float64": (DOUBLE | {"backend": "triton"}, TypeError, "Q must be float16, bfloat16 or float32"),
    "wide": ({"V_cache": CACHE.repeat(1, 1, 1, 17), "backend": "triton"}, ValueError, "V_cache must have head dim"),
    "inf after log2(e)": ({"scale": 2.4e38}, ValueError, "scale must lie between -1e8 and 1e8, got 2.4e"),
    "gradient": ({"Q": X.clone().requires_grad_()}, RuntimeError, "and Q requires one. Call it under torch.no_grad"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_named(name):
    changes, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        flashlab.flash_attention_decode(**{"Q": X, "K_cache": CACHE, "V_cache": CACHE, "lengths": TWO} | changes)


def test_a_page_behind_the_last_key_need_not_be_there():
    table = torch.tensor([[0, -1], [2, 3]], dtype=torch.int32)
    flashlab.flash_attention_decode(X, **PAGED | {"block_table": table}, lengths=TWO)
    with torch.no_grad():
        flashlab.flash_attention_decode(X.clone().requires_grad_(), CACHE, CACHE, TWO)


# ---- in flash_attention, without a cache

@needs_triton
@pytest.mark.parametrize("N_q,N_k,options", [(1, 200, {}), (3, 130, {"causal": True}), (2, 97, {"window": (30, 5)}),
                                             (20, 7, {"causal": True})])
def test_the_kernel_by_name(N_q, N_k, options):
    """Not only causal, and with the gradients of any other forward pass."""
    Q, K, V = (torch.randn(2, H, N, 24, device=DEVICE) for H, N in ((4, N_q), (2, N_k), (2, N_k)))
    O, L = decode.fa2_decode_forward(Q, K, V, **options)
    assert judge(O, L, Q, K, V, **options).ok
    with pytest.raises(ValueError, match="it has no dropout"):
        decode.fa2_decode_forward(Q, K, V, dropout_p=0.1, seed=torch.tensor(3))


@needs_triton
def test_flash_attention_runs_it_by_name_and_differentiates():
    Q, K, V, dO = (torch.randn(1, H, N, 16, device=DEVICE) for H, N in ((4, 2), (2, 50), (2, 50), (4, 2)))
    QKV = [T.requires_grad_() for T in (Q, K, V)]
    O = flashlab.flash_attention(*QKV, causal=True, window=(30, 0), backend="fa2_decode_forward")
    assert judge_gradients(*torch.autograd.grad(O, QKV, dO), *QKV, dO, window=(30, 0)).ok
    with pytest.raises(ValueError, match="fa2_decode_forward does not take the call: it takes no packed sequences"):
        cu = torch.tensor([0, 2], dtype=torch.int32, device=DEVICE)
        flashlab.flash_attention_varlen(*(T[0].transpose(0, 1) for T in (Q, Q, Q)), cu, cu,
                                        backend="fa2_decode_forward")


def test_splits_fill_the_gpu():
    """One program is cut up as far as it goes, a full GPU stays whole, and no wave is begun for a few programs."""
    for programs, tiles, at_a_time, splits in (
            (1, 1000, 264, 250), (1, 16, 264, 16), (1, 10**6, 10**6, MOST), (264, 1000, 264, 1), (512, 1000, 264, 1),
            (4, 1024, 264, 64), (64, 1024, 264, 4), (128, 1024, 264, 2), (8, 0, 264, 1)):
        assert choose_splits(programs, tiles, at_a_time) == splits


# ---- what the compiler makes of it

def jobs(arch, *, H_q=32, N_q=1, d=128, dtype=torch.bfloat16, page_size=None, **options):
    """The launches of a call: 4 key heads, 4 sequences, room for 16384 keys, in chunks that are merged."""
    Q, O = (torch.empty(4, H_q, N_q, d, dtype=dtype, device="meta") for _ in range(2))
    cache = torch.empty(4096 if page_size else 4, 4, page_size or 16384, d, dtype=dtype, device="meta")
    lengths = torch.empty(4, dtype=torch.int32, device="meta")
    table = torch.empty(4, 16384 // page_size, dtype=torch.int32, device="meta") if page_size else None
    L = torch.empty(4, H_q, N_q, device="meta")
    launches = decode.launch(Q, cache, cache, O, L, lengths, table, scale=0.1, splits=16, **options)
    launches += decode.append_launches(Q[:, :4], Q[:, :4], cache, cache, lengths, table)
    return [(kernel, arguments, arch) for kernel, _, arguments in launches]


CASES = {} if decode is None else {
    "80": jobs(80, N_q=2)[0], "86 window": jobs(86, N_q=8, causal=False, left=99, right=0, tiles=(64, 8, 2))[0],
    "89 d 64": jobs(89, H_q=4, d=64, tiles=(128, 4, 2))[0], "90": jobs(90)[0],
    "90 pages of 64": jobs(90, page_size=64)[0],
    "90 pages of 16": jobs(90, page_size=16)[0],
    "90, 64 rows": jobs(90, N_q=8, tiles=(64, 4, 3))[0],
    "100, 64 rows": jobs(100, N_q=8)[0], "90 float32": jobs(90, dtype=torch.float32)[0],
    "100": jobs(100)[0], "merge": jobs(90)[1], "append": jobs(80, page_size=16)[2],
}


@pytest.fixture(scope="module")
def compiled(asked_for):
    found = asked_for(CASES) | {name: CASES[name] for name in ("90", "90 pages of 64", "90 pages of 16")}
    return dict(zip(found, compile_all(found.values()), strict=True))


@needs_triton
@pytest.mark.parametrize("name", CASES)
def test_what_the_compiler_made_of_it(compiled, name):
    """Fails if a change spills registers, outgrows shared memory, loses the tensor cores or the wide copies in the
    background."""
    kernel = compiled[name]
    at_most = 8 if name == "86 window" else 0          # bytes, which Triton 3.8's assembler spills
    assert kernel.spills <= at_most and not kernel.warnings and kernel.shared_bytes <= SHARED_LIMIT[kernel.arch]
    if name[0].isdigit():
        assert "cp.async.cg" in kernel.ptx and ("float32" in name or "mma" in kernel.ptx)
    if name.startswith(("90", "100")) and "float32" not in name:
        assert 2 * kernel.shared_bytes <= SHARED_LIMIT[90] + 2048      # two programs on an SM, as choose_splits counts


@needs_triton
def test_pages_cost_no_stage_of_the_pipeline(compiled):
    """Fails if the copies of K and V wait for the number of their page: they would be a tile less ahead."""
    shared = {name: compiled[name].shared_bytes for name in ("90", "90 pages of 64", "90 pages of 16")}
    assert len(set(shared.values())) == 1, shared


@pytest.mark.parametrize("of", ["Q", "K_cache"])
def test_a_forward_mode_derivative_is_refused(of):
    """torch.func.jvp would get a tangent of 0 without a word."""
    tensors = {"Q": X, "K_cache": CACHE, "V_cache": CACHE, "lengths": TWO}
    with pytest.raises(RuntimeError, match="flash_attention_decode has no gradient, nor a forward-mode derivative, as"):
        torch.func.jvp(lambda T: flashlab.flash_attention_decode(**tensors | {of: T}), (tensors[of],), (tensors[of],))


def test_vmap_writes_no_new_keys():
    with pytest.raises(NotImplementedError, match="writes no new keys under torch.vmap: pass the mapped dimension as"):
        torch.vmap(lambda new: flashlab.flash_attention_decode(X, CACHE, CACHE, TWO - 1, K_new=new, V_new=new))(
            torch.stack([NEW, NEW]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast(backend):
    """Fails if new keys are lost in a copy of the cache, or dtypes are refused that flash_attention casts."""
    Q, K, V, *_, lengths, _ = (T if T is None else T.nan_to_num() for T in case([20, 5], d=16, N_max=32))
    new, half, step = torch.full((2, 2, 1, 16), 1 / 3, device=DEVICE), torch.bfloat16, flashlab.flash_attention_decode
    before = K.clone()
    with torch.autocast(DEVICE, half):
        O = step(Q, K, V.half(), lengths, K_new=new, V_new=new.half(), backend=backend)
    expected = step(Q.to(half), before.to(half), V.half().to(half), lengths, K_new=new.to(half),
                    V_new=new.half().to(half), backend=backend)
    assert torch.equal(O, expected) and O.dtype == half
    assert (K[0, :, 20] == new[0, 0, 0].to(half)).all() and (K != before).sum() == new.numel()
