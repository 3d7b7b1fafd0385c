"""The public operator: which backend runs, what it returns, what it refuses, and that PyTorch's compiler accepts it."""

from types import SimpleNamespace

import pytest
import torch

from flashlab.operator import pick, torch_backend
from flashlab.operator.attention import ATTENTION_BACKWARD, ATTENTION_FORWARD, Options, flash_attention, pick_backend
from flashlab.oracle import attention, judge, judge_gradients, max_error
from flashlab.triton_mode import interpreted

try:
    from flashlab.kernels import fa2
except ImportError:
    fa2 = None
needs_triton = pytest.mark.skipif(fa2 is None, reason="triton is not installed (it exists for Linux only)")
TRITON_DEVICE = "cpu" if fa2 is None or interpreted() else "cuda"
BACKENDS = [pytest.param("torch"), pytest.param("triton", marks=needs_triton)]


def inputs(N_q=33, N_k=50, d=16, d_v=24, dtype=torch.float32, B=2, H_q=4, H_kv=2, device=TRITON_DEVICE):
    g = torch.Generator().manual_seed(0)
    shapes = (B, H_q, N_q, d), (B, H_kv, N_k, d), (B, H_kv, N_k, d_v)
    return [torch.randn(shape, generator=g).to(device, dtype) for shape in shapes]


def with_grad(**sizes):
    return [T.requires_grad_() for T in inputs(**sizes)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_every_backend_is_right(backend, causal, dtype):
    """Grouped heads, N_q != N_k and d_v != d; fails if a backend pairs heads its own way, aligns the mask top-left, or
    does not sum dK and dV over the query heads that share them."""
    Q, K, V = with_grad(dtype=dtype)
    O, L = flash_attention(Q, K, V, causal=causal, return_lse=True, backend=backend)
    assert (O.dtype, O.shape, L.dtype, L.shape) == (dtype, (2, 4, 33, 24), torch.float32, (2, 4, 33))
    assert judge(O, L, Q, K, V, causal=causal).ok
    dO = torch.randn_like(O)
    O.backward(dO)
    assert [T.grad.dtype for T in (Q, K, V)] == [dtype] * 3
    assert judge_gradients(Q.grad, K.grad, V.grad, Q, K, V, dO, causal=causal).ok


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sizes", [{"N_q": 0}, {"N_k": 0}, {"B": 0}, {"N_q": 9, "N_k": 4}], ids=str)
def test_empty_and_fully_masked(backend, sizes):
    Q, K, V = with_grad(**sizes)
    O, L = flash_attention(Q, K, V, causal=True, return_lse=True, backend=backend)
    assert judge(O, L, Q, K, V, causal=True).ok and O.shape == (*Q.shape[:3], 24)
    O.sum().backward()
    assert all(T.grad.shape == T.shape and T.grad.isfinite().all() for T in (Q, K, V))
    if sizes.get("N_q"):
        assert (Q.grad[:, :, :5] == 0).all() and (K.grad[:, :, 0] != 0).any()


MASKS = [{}, {"causal": True}, {"window": (20, 3)}, {"window": (-1, 9)}]


@pytest.mark.parametrize("masks", MASKS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("N_q, N_k", [(50, 97), (70, 33)])
def test_the_torch_backend_in_many_blocks(monkeypatch, masks, dtype, N_q, N_k):
    """Large scores, so that each block has another maximum; its own block sizes would take all of this at once."""
    monkeypatch.setattr(torch_backend, "ROWS", 16)
    monkeypatch.setattr(torch_backend, "SCORES", 16)
    Q, K, V = inputs(N_q, N_k, dtype=dtype, device="cpu")
    QKV = [T.requires_grad_() for T in (8 * Q, K, V)]
    O, L = flash_attention(*QKV, return_lse=True, backend="torch", **masks)
    assert judge(O, L, *QKV, **masks).ok
    dO = torch.randn_like(O)
    O.backward(dO)
    assert judge_gradients(*(T.grad for T in QKV), *QKV, dO, **masks).ok


def test_the_torch_backend_computes_no_hidden_block():
    """Fails if NaN in keys that a whole block of queries does not see comes out."""
    Q, K, V = inputs(300, 300, device="cpu")
    K[:, :, 140:], V[:, :, 140:] = torch.nan, torch.nan
    Q, K, V = (T.requires_grad_() for T in (Q, K, V))
    O = flash_attention(Q, K, V, causal=True, backend="torch")
    assert O[:, :, :torch_backend.ROWS].isfinite().all() and O[:, :, 140:].isnan().all()
    dQ, = torch.autograd.grad(O[:, :, :100].sum(), Q)
    assert dQ[:, :, :100].isfinite().all()


@needs_triton
def test_float64_goes_to_torch():
    Q, K, V = inputs(dtype=torch.float64)
    O, L = flash_attention(Q, K, V, causal=True, return_lse=True)
    assert O.dtype == L.dtype == torch.float64 and judge(O, L, Q, K, V, causal=True).ok
    with pytest.raises(TypeError, match="Q must be float16, bfloat16 or float32 for a kernel, got a float64 tensor"):
        flash_attention(Q, K, V, backend="triton")


def spy(monkeypatch):
    """Replace both backends by ones that note their name."""
    ran = []

    def stand_in(name):
        def run(Q, K, V, *options, **more):
            ran.append(name)
            return torch_backend.empty(Q, V.shape[-1]), torch_backend.empty_L(Q)
        return run

    monkeypatch.setattr(torch_backend, "run_forward", stand_in("torch"))
    monkeypatch.setattr(pick, "pick", lambda *_, **__: (SimpleNamespace(function=stand_in("triton")), {}))
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
    monkeypatch.setattr("flashlab.operator.attention.interpreted", lambda: interpreted)


@needs_triton
@pytest.mark.parametrize("setting, asked, name, why", [
    ({}, ("cuda",), "triton", "compute capability, 9.0"),
    ({}, ("cuda:1", torch.bfloat16, 256), "triton", "compute capability, 9.0"),
    ({}, ("cuda", torch.float64), "torch", "float64"),
    ({}, ("cuda", torch.float16, 257), "torch", "up to 256, got 257"),
    ({}, ("cpu",), "torch", "interpreted"),
    ({}, ("mps",), "torch", "mps"),
    ({"capability": (7, 5)}, ("cuda",), "torch", "capability 7.5, and Triton needs 8.0"),
    ({"interpreted": True}, ("cuda",), "torch", "TRITON_INTERPRET"),
])
def test_what_auto_picks_and_why(monkeypatch, setting, asked, name, why):
    gpu(monkeypatch, **setting)
    picked, reason = pick_backend(*asked)
    assert picked == name and why in reason


# ---- gradients


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_gradcheck_of_O_and_L(causal):
    QKV = with_grad(N_q=5, N_k=4, d=3, d_v=2, B=1, H_q=2, H_kv=1, dtype=torch.float64, device="cpu")

    def both(Q, K, V):
        O, L = flash_attention(Q, K, V, causal=causal, return_lse=True)
        return O, L[:, :, 1:]                                            # causal: row 0 sees no key, its L is -inf

    assert torch.autograd.gradcheck(both, QKV)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradient_of_L_alone_and_of_a_sum(backend):
    """A loss of L only, and one whose dO is an expanded scalar; fails if an unused output's gradient is not zero."""
    for loss in (lambda O, L: L.sum(), lambda O, L: O.sum(), lambda O, L: O.sum() + (L * L).sum()):
        grads = []
        for dtype, run in ((torch.float32, backend), (torch.float64, "torch")):
            QKV = with_grad(dtype=dtype, H_q=2, B=1)
            loss(*flash_attention(*QKV, return_lse=True, backend=run)).backward()
            grads.append([T.grad for T in QKV])
        for got, truth in zip(*grads, strict=True):
            torch.testing.assert_close(got.double(), truth, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_Q_K_V_O_L_are_kept_for_the_backward(backend):
    Q, K, V = with_grad()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda T: kept.append(T) or T, lambda T: T):
        O, L = flash_attention(Q, K, V, return_lse=True, backend=backend)
    assert sorted(T.data_ptr() for T in kept) == sorted(T.data_ptr() for T in (Q, K, V, O, L))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_derivative_is_refused_in_words(backend):
    Q, K, V = with_grad(N_q=8, N_k=8)
    dQ, = torch.autograd.grad(flash_attention(Q, K, V, backend=backend).sum(), Q, create_graph=True)
    with pytest.raises(RuntimeError, match="flash_attention is differentiable once"):
        dQ.sum().backward()


# ---- dropout


@needs_triton
def test_dropout_backward_drops_what_the_forward_dropped():
    from flashlab.kernels.dropout import dropout_keep_mask

    Q, K, V = with_grad()
    O = flash_attention(Q, K, V, causal=True, dropout_p=0.4, seed=-7, backend="triton")
    dO = torch.randn_like(O)
    O.backward(dO)
    mask = {"dropout_p": 0.4, "keep": dropout_keep_mask(2, 4, 33, 50, 0.4, -7).to(Q.device)}
    assert max_error(O, attention(Q, K, V, causal=True, **mask)[0]) < 1e-5
    assert judge_gradients(Q.grad, K.grad, V.grad, Q, K, V, dO, causal=True, **mask).ok


@needs_triton
def test_dropout_is_reproducible():
    QKV = inputs(B=1)
    run = lambda seed: flash_attention(*QKV, dropout_p=0.5, seed=seed, backend="triton")
    assert torch.equal(run(3), run(3)) and not torch.equal(run(3), run(4))
    torch.manual_seed(11)
    first, second = run(None), run(None)
    torch.manual_seed(11)
    assert torch.equal(run(None), first) and not torch.equal(first, second)


@needs_triton
def test_auto_runs_the_kernels_where_there_is_dropout():
    assert pick_backend("cpu", dropout_p=0.1)[0] == "triton"
    Q, K, V = inputs(device="cpu")
    if interpreted():
        assert flash_attention(Q, K, V, dropout_p=0.1, seed=1).isfinite().all()


# ---- refusals


@pytest.mark.parametrize("backend, change, words", [
    ("torch", lambda T: T, "d, d_v = 16, 24"),
    ("auto", torch.Tensor.double, "got dropout_p=0.1, float64"),
    ("auto", lambda T: T.repeat(1, 1, 1, 20), "d, d_v = 320, 480. .* up to 256"),
])
def test_dropout_without_triton_is_refused(backend, change, words):
    with pytest.raises(NotImplementedError, match=f"only the Triton kernels have dropout, .*{words}"):
        flash_attention(*(change(T) for T in inputs(device="cpu")), dropout_p=0.1, seed=0, backend=backend)


X = torch.zeros(1, 1, 8, 16)
NESTED = torch.nested.nested_tensor([torch.zeros(1, 8, 16)])
TWICE = X.repeat(1, 2, 1, 1)
REFUSED = {                                            # what is changed: the error, and words of its message
    "a list": ({"Q": [[0.0] * 10**5]}, TypeError, r"^Q must be a torch.Tensor, got .{10,90} \(list\)$"),
    "sparse": ({"K": X.to_sparse()}, TypeError, "K must be a dense tensor, .* got a sparse_coo float32 tensor of"),
    "mkldnn": ({"Q": X.to_mkldnn()}, TypeError, "Q must be a dense tensor, .* got a mkldnn float32 tensor of shape"),
    "nested": (dict.fromkeys("QKV", NESTED), TypeError, "Q must be a dense tensor, .* got a nested tensor on cpu"),
    "a huge scale": ({"scale": 10**400}, ValueError, r"scale must lie between .*, got 1000\d+\.\.\.0+ \(int\)"),
    "a tensor as scale": ({"scale": torch.tensor(0.5)}, TypeError, "scale must be a number or None"),
    "not a tensor": ({"V": None}, TypeError, "V must be a torch.Tensor, got None"),
    "no batch": ({"Q": X[0]}, ValueError, r"Q must have 4 dimensions \(B, H, N, d\)"),
    "integers": (dict.fromkeys("QKV", X.int()), TypeError, "Q must be one of float16.*got a int32 tensor"),
    "mixed dtypes": ({"V": X.half()}, TypeError, "V must match Q's dtype and device"),
    "mixed devices": ({"K": X.to("meta")}, TypeError, "K must match Q's dtype and device, .* on cpu, .* on meta"),
    "lengths differ": ({"V": X[:, :, 1:]}, ValueError, "V must have K's sizes"),
    "batches differ": ({"Q": X[:0]}, ValueError, "K must have Q's batch size B = 0"),
    "heads do not divide": ({"K": TWICE, "V": TWICE}, ValueError, "H_q = 1 and H_kv = 2"),
    "a window of one": ({"window": 4}, TypeError, r"window must be None or two integers \(left, right\), got 4"),
    "causal as None": ({"causal": None}, TypeError, "causal must be True or False, got None"),
    "scale infinite": ({"scale": float("inf")}, ValueError, "scale must lie between -1e8 and 1e8, got inf"),
    "inf after log2(e)": ({"scale": -2.4e38}, ValueError, r"scale must lie between -1e8 and 1e8, got -2.4e\+38"),
    "dropout_p = 1": ({"dropout_p": 1.0}, ValueError, r"dropout_p must lie in \[0, 1\), got 1.0"),
    "dropout_p as text": ({"dropout_p": "0"}, TypeError, "dropout_p must be a number"),
    "seed as float": ({"seed": 1.5}, TypeError, "seed must be an integer or None, got 1.5"),
    "seed too large": ({"seed": 2**63}, ValueError, "seed must fit in 64 bits, got 9223372036854775808"),
    "return_lse as int": ({"return_lse": 1}, TypeError, "return_lse must be True or False, got 1"),
    "deterministic as text": ({"deterministic": "yes"}, TypeError, "deterministic must be True or False, got 'yes'"),
    "unknown backend": ({"backend": "cudnn"}, ValueError, "one of auto, triton, torch or the name of a kernel, got 'c"),
    "backend as None": ({"backend": None}, ValueError, "one of auto, triton, torch or the name of a kernel, got None"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_named(monkeypatch, case):
    ran = spy(monkeypatch)
    changes, error, words = REFUSED[case]
    arguments = {"Q": X, "K": X, "V": X} | changes
    with pytest.raises(error, match=words):
        flash_attention(**arguments)
    assert not ran, "a bad call reached a backend"


REFUSED_BY_OPERATORS = {
    "backend must be one of": {"backend": "nonsense"}, "H_q = 1 and H_kv = 2": {"K": TWICE, "V": TWICE},
    "dropout_p must lie in": {"dropout_p": -0.5}, "V must have K's sizes": {"V": X[:, :, 1:]},
    "Q must have 4 dimensions": {"Q": X[0]}, "window must be None or": {"window": [1]},
    "cu_seqlens_q must begin with 0": {"cu_seqlens_q": torch.tensor([0, 9]).int()},
    "dO must be a float32 tensor": {"dO": X[:, :, 1:]}, "L must be a float32": {"L": X}, "dL must be": {"dL": X},
}


@pytest.mark.parametrize("words", REFUSED_BY_OPERATORS)
def test_the_operators_themselves_refuse_bad_input(words):
    """Fails if torch.ops.flashlab takes what flash_attention refuses, or runs on."""
    change, options = REFUSED_BY_OPERATORS[words], Options(None, False, 1.0, 0.0, "torch", False)._asdict()
    tensors = dict.fromkeys(("Q", "K", "V", "O", "dO"), X) | {"L": X[..., 0], "dL": None} | change
    options = [tensors.pop(name, value) for name, value in options.items()]
    with pytest.raises((TypeError, ValueError), match=words):
        ATTENTION_BACKWARD(*tensors.values(), *options)
    if not {"dO", "L", "dL"} & change.keys():
        with pytest.raises((TypeError, ValueError), match=words):
            ATTENTION_FORWARD(*(tensors[name] for name in "QKV"), *options)


# ---- PyTorch's compiler


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype, packed", [(torch.float16, False), (torch.float32, False), (torch.float32, True)])
def test_opcheck(backend, dtype, packed):
    """PyTorch's own test of a custom operator: schema, shapes while tracing, nothing mutated or aliased."""
    Q, K, V = inputs(dtype=dtype, N_q=9, N_k=9, B=1, H_q=2, H_kv=1)      # it runs each a dozen times
    options = Options(None, True, 0.25, 0.0, backend, False)
    if packed:
        cu = torch.tensor([0, 2, 8], dtype=torch.int32, device=Q.device)
        options = options._replace(causal=False, window=[2, 1], cu_seqlens_q=cu, cu_seqlens_k=cu)
    K = K if packed else K.mT.contiguous().mT
    torch.library.opcheck(ATTENTION_FORWARD, (Q, K, V, *options))
    O, L = ATTENTION_FORWARD(Q, K, V, *options)
    torch.library.opcheck(ATTENTION_BACKWARD, (Q, K, V, O, torch.ones_like(O), L, torch.zeros_like(L), *options))


@pytest.mark.parametrize("backend", BACKENDS)
def test_torch_compile_takes_forward_and_backward_whole(backend):
    """fullgraph fails at any Python the tracer has to leave. aot_eager needs no C++ compiler; lengths vary
    afterwards."""
    dropout = {"dropout_p": 0.25} if backend == "triton" else {}

    def layer(Q, K, V):
        O, L = flash_attention(2 * Q, K, V, causal=True, backend=backend, deterministic=True, return_lse=True,
                               **dropout)
        return O.square().sum() + L[:, :, 1:].sum()

    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for N in (20, 33):
        results = []
        for function in (compiled, layer):
            torch.manual_seed(5)                                         # draws dropout's seed
            QKV = with_grad(N_q=N, N_k=N)
            loss = function(*QKV)
            loss.backward()
            results.append([loss, *(T.grad for T in QKV)])
        assert all(torch.equal(*pair) for pair in zip(*results, strict=True))
