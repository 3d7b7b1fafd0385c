"""The public operator: which backend runs, what it returns, what it refuses, and that PyTorch's compiler accepts it."""

import subprocess
import sys

import pytest
import torch

from flashlab.attention import flash_attention, pick_backend
from flashlab.oracle import judge

try:
    from flashlab.kernels import fa2
except ImportError:
    fa2 = None
needs_triton = pytest.mark.skipif(fa2 is None, reason="triton is not installed (it exists for Linux only)")
TRITON_DEVICE = "cpu" if fa2 is None or fa2.INTERPRETED else "cuda"
BACKENDS = [pytest.param("torch"), pytest.param("triton", marks=needs_triton)]


def inputs(N_q=33, N_k=50, d=16, d_v=24, dtype=torch.float32, B=2, H_q=4, H_kv=2, device=TRITON_DEVICE):
    g = torch.Generator().manual_seed(0)
    shapes = (B, H_q, N_q, d), (B, H_kv, N_k, d), (B, H_kv, N_k, d_v)
    return [torch.randn(shape, generator=g).to(device, dtype) for shape in shapes]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_every_backend_is_right(backend, causal, dtype):
    """Grouped heads, N_q != N_k and d_v != d; fails if a backend pairs heads its own way or aligns the mask top-left."""
    Q, K, V = inputs(dtype=dtype)
    O, L = flash_attention(Q, K, V, causal=causal, return_lse=True, backend=backend)
    assert (O.dtype, O.shape, L.dtype, L.shape) == (dtype, (2, 4, 33, 24), torch.float32, (2, 4, 33))
    assert judge(O, L, Q, K, V, causal=causal).ok
    alone = flash_attention(Q, K, V, causal=causal, backend=backend)
    assert torch.equal(alone, O)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sizes", [{"N_q": 0}, {"N_k": 0}, {"B": 0}, {"N_q": 9, "N_k": 4}], ids=str)
def test_empty_and_fully_masked(backend, sizes):
    Q, K, V = inputs(**sizes)
    O, L = flash_attention(Q, K, V, causal=True, return_lse=True, backend=backend)
    assert judge(O, L, Q, K, V, causal=True).ok and O.shape == (*Q.shape[:3], 24)


def test_float64_goes_to_torch():
    Q, K, V = inputs(dtype=torch.float64)
    O, L = flash_attention(Q, K, V, causal=True, return_lse=True)
    assert O.dtype == L.dtype == torch.float64
    assert judge(O, L, Q, K, V, causal=True).ok


@needs_triton
def test_triton_refuses_float64_by_name():
    with pytest.raises(TypeError, match="Q must be one of float16, bfloat16, float32, got a float64 tensor"):
        flash_attention(*inputs(dtype=torch.float64), backend="triton")


def spy(monkeypatch):
    """Replace both backends by ones that note their name."""
    ran = []

    def stand_in(name):
        def run(Q, K, V, causal, scale):
            ran.append(name)
            return Q.new_empty(*Q.shape[:3], V.shape[-1]), Q.new_empty(Q.shape[:3], dtype=torch.float32)
        return run

    monkeypatch.setattr("flashlab.attention._run_torch", stand_in("torch"))
    monkeypatch.setattr("flashlab.attention._run_triton", stand_in("triton"))
    return ran


def test_the_backend_asked_for_is_the_one_that_runs(monkeypatch):
    ran = spy(monkeypatch)
    Q, K, V = inputs(device="cpu")
    for backend in ("torch", "triton", "auto"):
        flash_attention(Q, K, V, backend=backend)
    assert ran == ["torch", "triton", "torch"]


def gpu(monkeypatch, capability=(9, 0), interpreted=False):
    """Pretend to have an NVIDIA GPU with triton compiled for it."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "Some GPU")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    if fa2:
        monkeypatch.setattr(fa2, "INTERPRETED", interpreted)


@needs_triton
@pytest.mark.parametrize("setting, asked, name, why", [
    ({}, ("cuda",), "triton", "compiled for Some GPU"),
    ({}, ("cuda:1", torch.bfloat16, 256), "triton", "compiled for Some GPU"),
    ({}, ("cuda", torch.float64), "torch", "float64"),
    ({}, ("cuda", torch.float16, 257), "torch", "up to 256, got 257"),
    ({}, ("cpu",), "torch", "interpreted"),
    ({}, ("mps",), "torch", "mps"),
    ({"capability": (7, 5)}, ("cuda",), "torch", "8.0 or newer, this one has 7.5"),
    ({"interpreted": True}, ("cuda",), "torch", "TRITON_INTERPRET"),
])
def test_what_auto_picks_and_why(monkeypatch, setting, asked, name, why):
    gpu(monkeypatch, **setting)
    picked, reason = pick_backend(*asked)
    assert picked == name and why in reason


def test_without_triton(monkeypatch):
    """As on macOS and Windows: auto works, and "triton" says what to do."""
    gpu(monkeypatch)
    monkeypatch.setitem(sys.modules, "flashlab.kernels.fa2", None)       # importing it now raises ModuleNotFoundError
    monkeypatch.delattr("flashlab.kernels.fa2", raising=False)
    assert pick_backend("cuda") == ("torch", "triton is not installed")
    Q, K, V = inputs(device="cpu")
    assert judge(*flash_attention(Q, K, V, return_lse=True), Q, K, V).ok
    with pytest.raises(RuntimeError, match="backend='triton' needs triton, .* Use backend='torch' or 'auto'"):
        flash_attention(Q, K, V, backend="triton")


def test_it_is_loaded_on_first_use_and_without_triton():
    """`import flashlab` must stay cheap; flashlab.attention must not need triton."""
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import flashlab\n"
        "assert 'flashlab.attention' not in sys.modules\n"
        "from flashlab.attention import flash_attention\n"
        "assert flashlab.flash_attention is flash_attention and not hasattr(flashlab, 'flash_atention')\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr


# ---- refusals


def test_dropout_says_it_is_missing():
    with pytest.raises(NotImplementedError, match=r"no dropout yet, got dropout_p=0.1. Pass dropout_p=0.0"):
        flash_attention(*inputs(), dropout_p=0.1, seed=0)


@pytest.mark.parametrize("which", range(3), ids="QKV")
def test_gradients_say_they_are_missing(which):
    QKV = inputs()
    QKV[which].requires_grad_()
    with pytest.raises(NotImplementedError, match="no backward pass yet, .* torch.no_grad()"):
        flash_attention(*QKV, backend="torch")
    with torch.no_grad():
        assert not flash_attention(*QKV, backend="torch").requires_grad


X = torch.zeros(1, 1, 8, 16)
REFUSED = {
    "not a tensor": ({"V": None}, TypeError, "V must be a torch.Tensor, got None"),
    "no batch": ({"Q": X[0]}, ValueError, r"Q must have 4 dimensions \(B, H, N, d\)"),
    "integers": ({"Q": X.int(), "K": X.int(), "V": X.int()}, TypeError, "Q must be one of float16.*got a int32 tensor"),
    "mixed dtypes": ({"V": X.half()}, TypeError, "V must match Q's dtype and device"),
    "mixed devices": ({"K": X.to("meta")}, TypeError, "K must match Q's dtype and device, torch.float32 on cpu, .* on meta"),
    "lengths differ": ({"V": X[:, :, 1:]}, ValueError, "V must have K's sizes"),
    "batches differ": ({"Q": X[:0]}, ValueError, "K must have Q's batch size B = 0"),
    "heads do not divide": ({"K": X.repeat(1, 2, 1, 1), "V": X.repeat(1, 2, 1, 1)}, ValueError, "H_q = 1 and H_kv = 2"),
    "causal as None": ({"causal": None}, TypeError, "causal must be True or False, got None"),
    "scale infinite": ({"scale": float("inf")}, ValueError, "scale must be finite, got inf"),
    "dropout_p = 1": ({"dropout_p": 1.0}, ValueError, r"dropout_p must lie in \[0, 1\), got 1.0"),
    "dropout_p as text": ({"dropout_p": "0"}, TypeError, "dropout_p must be a number"),
    "seed as float": ({"seed": 1.5}, TypeError, "seed must be an integer or None, got 1.5"),
    "return_lse as int": ({"return_lse": 1}, TypeError, "return_lse must be True or False, got 1"),
    "unknown backend": ({"backend": "cudnn"}, ValueError, "backend must be one of auto, triton, torch, got 'cudnn'"),
    "backend as None": ({"backend": None}, ValueError, "backend must be one of auto, triton, torch, got None"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_named(monkeypatch, case):
    ran = spy(monkeypatch)
    changes, error, words = REFUSED[case]
    arguments = {"Q": X, "K": X, "V": X} | changes
    with pytest.raises(error, match=words):
        flash_attention(**arguments)
    assert not ran, "a bad call reached a backend"


# ---- PyTorch's compiler


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_opcheck(backend, dtype):
    """PyTorch's own test of a custom operator: schema, shapes while tracing, nothing mutated or aliased."""
    Q, K, V = inputs(dtype=dtype, N_q=20, N_k=20)
    for K_ in (K, K.mT.contiguous().mT):
        torch.library.opcheck(torch.ops.flashlab.attention_forward.default, (Q, K_, V, True, 0.25, backend))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_traced_shapes_are_the_real_ones(dtype):
    QKV = inputs(dtype=dtype, device="cpu")
    O, L = flash_attention(*QKV, return_lse=True)
    O_meta, L_meta = flash_attention(*(T.to("meta") for T in QKV), return_lse=True)
    for real, meta in ((O, O_meta), (L, L_meta)):
        assert (real.shape, real.stride(), real.dtype) == (meta.shape, meta.stride(), meta.dtype)


@pytest.mark.parametrize("backend", BACKENDS)
def test_torch_compile_takes_it_whole(backend):
    """fullgraph fails at any Python the tracer has to leave. aot_eager needs no C++ compiler; lengths vary afterwards."""
    def layer(Q, K, V):
        O, L = flash_attention(2 * Q, K, V, causal=True, return_lse=True, backend=backend)
        return O + 1, L

    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for N in (20, 33, 47):
        Q, K, V = inputs(N_q=N, N_k=N)
        for got, expected in zip(compiled(Q, K, V), layer(Q, K, V), strict=True):
            assert torch.equal(got, expected)
