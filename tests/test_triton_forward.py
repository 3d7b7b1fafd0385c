"""The forward kernels against float64, and every address of the first one: compiled on a GPU, else interpreted."""

import collections

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab import cost, ladder
from flashlab.oracle import judge
from flashlab.triton_mode import interpreted
from flashlab_course.lesson.accesses import touched

fa2 = pytest.importorskip("flashlab.kernels.fa2", reason="triton is not installed (it exists for Linux only)")
fa2_triton_forward = fa2.fa2_triton_forward
MASKS = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])

DEVICE = "cpu" if interpreted() else "cuda"
DTYPES = fp16, bf16, fp32 = [torch.float16, torch.bfloat16, torch.float32]
KERNELS = [kernel for kernel in ladder.KERNELS if kernel.name != "fa2_hopper_forward"]        # Gluon has no interpreter
interpreted_only = pytest.mark.skipif(not interpreted(), reason="watches the interpreter's memory accesses")

# (N_q, N_k, d, d_v, B_r, B_c): ragged tails, N_q != N_k, d_v != d, B_r != B_c, at least three key blocks, rows that see nothing
SIZES = [
    (1, 1, 16, 16, None, None),
    (1, 97, 64, 64, 16, 32),       # a decode step
    (7, 7, 24, 59, 16, 16),
    (16, 113, 59, 16, 16, 32),
    (97, 16, 24, 80, 32, 16),      # causal: whole query blocks see no key
    (113, 97, 80, 24, 32, 16),
    (128, 128, 128, 128, 64, 32),
    (200, 200, 64, 64, 16, 64),
    (97, 200, 16, 128, 64, 32),
    (200, 113, 59, 59, None, None),
    (33, 70, 256, 1, 32, 16),
]
LARGE = [(97, 113, 64, 64, 32, 32), (113, 97, 24, 59, 16, 32), (128, 128, 128, 80, 64, 64)]     # with large logits


def inputs(N_q, N_k, d, d_v, dtype=fp32, B=1, H_q=1, H_kv=1, logits=1, seed=0):
    """Q, K, V, dO"""
    g = torch.Generator().manual_seed(seed)
    shapes = (B, H_q, N_q, d), (B, H_kv, N_k, d), (B, H_kv, N_k, d_v), (B, H_q, N_q, d_v)
    Q, K, V, dO = (torch.randn(shape, generator=g) for shape in shapes)
    return tuple(T.to(DEVICE, dtype) for T in (Q * logits, K, V, dO))


def check_forward(Q, K, V, *, kernel=KERNELS[0], causal=False, scale=None, B_r=None, B_c=None):
    """Run the kernel, judge it, and return its outputs."""
    O, L = kernel.function(Q, K, V, causal=causal, scale=scale, B_r=B_r, B_c=B_c)
    assert O.dtype == Q.dtype and O.shape == (*Q.shape[:3], V.shape[-1])
    assert L.dtype == fp32 and L.shape == Q.shape[:3]
    verdict = judge(O, L, Q, K, V, causal=causal, scale=scale)
    assert verdict.ok, str(verdict)
    hidden = max(0, Q.shape[2] - K.shape[2]) if causal else 0
    assert (O[:, :, :hidden] == 0).all() and (L[:, :, :hidden] == -torch.inf).all()
    return O, L


@pytest.mark.parametrize("size, logits", [(size, 1) for size in SIZES] + [(size, 60) for size in LARGE], ids=str)
@MASKS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_within_the_error_bound(size, logits, causal, dtype):
    """With large logits a maximum that is not subtracted, or a sum that is not rescaled, overflows or is far off."""
    *shape, B_r, B_c = size
    O, _ = check_forward(*inputs(*shape, dtype, logits=logits)[:3], causal=causal, B_r=B_r, B_c=B_c)
    assert O.isfinite().all()


CALLS = [       # sizes, then how it is called
    ((50, 70, 24, 40, fp16), {"causal": True, "B_r": 32, "B_c": 16}),                     # ragged, bottom-right causal
    ((97, 70, 16, 16, fp16), {"causal": True, "B_r": 16, "B_c": 64}),                     # wide key blocks
    ((64, 96, 16, 16, fp16), {"B_r": 32, "B_c": 32}),                                     # whole tiles
    ((70, 33, 16, 16, fp16), {"B_r": 16, "B_c": 32}),
    ((33, 50, 80, 64), {"scale": -0.3, "B_r": 16, "B_c": 32}),                            # d not a power of two
    ((17, 40, 16, 16), {"scale": 0.0, "causal": True, "B_r": 16, "B_c": 16}),
    ((50, 17, 16, 16, bf16, 2, 4, 2), {"causal": True, "B_r": 32, "B_c": 16}),            # shared heads, rows without keys
    ((33, 50, 24, 16, fp16, 3, 6, 2), {"scale": 2, "B_r": 32, "B_c": 32}),                # batches, groups of three
    ((40, 64, 64, 16, fp16, 1, 1, 1, 60), {"causal": True, "B_r": 16, "B_c": 16}),        # large logits
    ((33, 50, 24, 16, torch.float32, 1, 1, 1, 1e-7), {"scale": 1e8}),                     # the largest scale
    ((1, 97, 64, 64, bf16), {"causal": True}),                                            # one query, tiles by default
    ((150, 70, 64, 64, bf16, 1, 4, 2), {}),
]
EACH_CALL = pytest.mark.parametrize("call", range(len(CALLS)))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@EACH_CALL
def test_every_kernel_is_right(kernel, call):
    """Fails if base 2, the split loop, the order of tiles, heads or the coordinates of a tile are wrong in any of these."""
    sizes, how = CALLS[call]
    QKV = [T.transpose(1, 2).contiguous().transpose(1, 2) for T in inputs(*sizes)[:3]]    # a token's heads side by side
    copies = [T.clone() for T in QKV]
    check_forward(*QKV, kernel=kernel, **how)
    assert all(torch.equal(T, copy) for T, copy in zip(QKV, copies, strict=True)), "an input was changed"


def stretched(T, *factors):
    """The same values, spread out in memory by a factor for each dimension; NaN in between."""
    big = T.new_full([n * f for n, f in zip(T.shape, factors, strict=True)], torch.nan)
    view = big[tuple(slice(None, None, f) for f in factors)]
    view.copy_(T)
    return view


LAYOUTS = {
    "(B, N, H, d)": lambda T: T.transpose(1, 2).contiguous().transpose(1, 2),
    "column-major": lambda T: T.mT.contiguous().mT,
    "every third row": lambda T: stretched(T, 1, 1, 3, 1),
    "all spread out": lambda T: stretched(T, 2, 3, 2, 5),
    "heads expanded": lambda T: T[:, :1].expand_as(T),
    "rows expanded": lambda T: T[:, :, :1].expand_as(T),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides(layout):
    """Sizes differ, and so do the strides: fails if one tensor is read by the strides of another."""
    Q, K, V, _ = (LAYOUTS[layout](T) for T in inputs(33, 50, 24, 16, fp16, B=2, H_q=4, H_kv=2))
    check_forward(Q, K, V, causal=True, B_r=32, B_c=32)


@pytest.mark.parametrize("where", ["K", "V"])
@MASKS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_reaches_the_rows_that_see_it(where, causal, dtype):
    """Fails if a maximum that drops NaN, or a mask, turns a broken model's NaN into a number."""
    Q, K, V, _ = inputs(70, 70, 16, 16, dtype)
    (K if where == "K" else V)[:, :, 40, 3] = torch.nan
    O, L = fa2_triton_forward(Q, K, V, causal=causal, B_r=32, B_c=16)
    sees = torch.arange(70) >= (40 if causal else 0)
    broken = O[0, 0].isnan().cpu()
    if where == "K":
        assert torch.equal(broken, sees[:, None].expand_as(broken)), "exactly the rows that see the key, in every column"
        assert torch.equal(L[0, 0].isnan().cpu(), sees)
    else:
        assert broken[sees, 3].all()                   # 0 · NaN: rows that share a tile with the key may have it too
        assert not broken[:, :3].any() and not broken[:, 4:].any() and not L.isnan().any()


# ---- what the kernel touches

def bytes_moved(launches, tensors):
    """{"load": bytes, "store": bytes}, after a look at each address: no element outside, each output written once."""
    moved = collections.Counter()
    for kernel, grid, arguments in launches:
        seen = touched(lambda: kernel[grid](**arguments))
        for access in seen.accesses:
            assert not seen.strays(access).any(), f"{access.kind} outside {access.tensor}"
            moved[access.kind] += int(access.mask.sum()) * tensors[access.tensor].element_size()
        for name in seen.tensors:
            assert seen.kind(name) != "store" or (seen.times(name) == 1).all(), f"{name} not written once"
    return moved


@interpreted_only
@pytest.mark.parametrize("N_q, N_k, causal", [(50, 70, False), (50, 70, True), (70, 33, True), (64, 64, True)])
def test_traffic_is_the_closed_form_of_fa2(N_q, N_k, causal):
    """Fails if a load or store goes astray, an output is written twice, or a hidden tile is loaded all the same."""
    Q, K, V, _ = (stretched(T, 1, 1, 2, 2) for T in inputs(N_q, N_k, 24, 40, fp16))
    O, L = torch.empty(1, 1, N_q, 40, dtype=fp16), torch.empty(1, 1, N_q)
    grid, arguments = fa2.launch(Q, K, V, O, L, causal=causal, scale=1.0, B_r=32, B_c=16)
    moved = bytes_moved([(fa2.KERNEL, grid, arguments)], {"Q": Q, "K": K, "V": V, "O": O, "L": L})
    expected = cost.fa2_forward(N_q, N_k, 24, 40, B_r=32, B_c=16, causal=causal, element_size=2)
    assert moved == {"load": expected.read, "store": expected.written}


# ---- more than 2^31 elements: memory that is never touched is never allocated, so the CPU can test it too

def far_apart(T, axis, step):
    """T's values, `step` elements apart along one axis. At most the touched pages take up memory."""
    strides = [0] * 4
    strides[axis] = step
    room = 1
    for n in (other for other in range(3, -1, -1) if other != axis):
        strides[n], room = room, room * T.shape[n]
    try:
        view = torch.empty(step * (T.shape[axis] - 1) + room, dtype=T.dtype, device=DEVICE).as_strided(T.shape, strides)
    except RuntimeError as error:
        pytest.skip(f"no room for {step * T.shape[axis] * T.element_size() >> 30} GiB of addresses: {error}")
    return view.copy_(T)


FAR = [(0, 2**30), (1, 2**30), (2, 2**26), (3, 2**27)]         # axis, step: batch, head, row, column


@pytest.mark.parametrize("turn", range(4))
def test_offsets_beyond_2_to_the_31(turn):
    """Fails (or crashes) if an offset is computed in 32 bits: last elements lie 2^31 elements or more from the first."""
    Q, K, V, _ = inputs(34, 34, 18, 18, fp16, B=3, H_q=3, H_kv=3)
    Q, K, V = (far_apart(T, *FAR[(turn + n) % 4]) for n, T in enumerate((Q, K, V)))
    check_forward(Q, K, V, causal=True, B_r=16, B_c=16)


def test_output_offsets_beyond_2_to_the_31():
    """The last query block's rows of an O with more than 2^31 elements; the other programs are not started."""
    N_q = 2**23 + 9
    Q, K, V, _ = inputs(1, 40, 16, 256, fp16)
    try:
        O = torch.empty(1, 1, N_q, 256, dtype=fp16, device=DEVICE)
    except RuntimeError as error:
        pytest.skip(f"no room for 4 GiB of addresses: {error}")
    L = torch.empty(1, 1, N_q, device=DEVICE)
    _, arguments = fa2.launch(Q.expand(-1, -1, N_q, -1), K, V, O, L, causal=False, scale=0.25, B_r=16, B_c=32)
    fa2.fa2_forward_kernel[1,](**arguments)
    last = slice(N_q - 9, None)
    assert judge(O[:, :, last], L[:, :, last], Q.expand(-1, -1, 9, -1), K, V, scale=0.25).ok


# ---- refusals

X = torch.zeros(1, 1, 8, 16, device=DEVICE)
ELSEWHERE = torch.empty(1, 1, 8, 16, device="meta" if interpreted() else "cpu")
REFUSED = [         # by the kernels alone: what they share with the PyTorch rungs is refused in test_rungs.py
    ({"Q": X[0]}, ValueError, r"Q must have 4 dimensions \(B, H, N, d\), got a float32 tensor of shape"),
    (dict.fromkeys("QKV", X.double()), TypeError, "Q must be float16, bfloat16 or float32"),
    (dict.fromkeys("QK", X.repeat(1, 1, 1, 17)), ValueError, "Q must have head dimension d <= 256"),
    ({"Q": X.repeat(1, 3, 1, 1), "K": X.repeat(1, 2, 1, 1), "V": X.repeat(1, 2, 1, 1)}, ValueError,
     "Q must have a multiple of K's heads, at least one, got H_q = 3 and H_kv = 2"),
    ({"B_r": 48}, ValueError, "B_r must be a power of two >= 16, got 48"),
    ({"B_c": 16.0}, TypeError, "B_c must be an integer >= 1, got 16.0"),
    (dict.fromkeys("QKV", ELSEWHERE), ValueError, "Q, K, V must be on (the CPU|a GPU).*TRITON_INTERPRET.*got one on (meta|cpu)"),
]


def test_bad_input_is_named():
    for changes, error, words in REFUSED:
        with pytest.raises(error, match=words):
            fa2_triton_forward(**{"Q": X, "K": X, "V": X} | changes)
