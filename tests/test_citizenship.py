"""The operator in PyTorch: torch.func, vmap, autocast, compile, export, checkpoints, FLOP counts, fake tensors,
threads."""

import threading

import numpy as np
import pytest
import torch
from test_attention import BACKENDS, inputs, needs_triton, with_grad
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

from flashlab.operator.attention import flash_attention, flash_attention_varlen
from flashlab.triton_mode import interpreted

SMALL = {"N_q": 9, "N_k": 12, "d": 4, "d_v": 3, "B": 2, "H_q": 2, "H_kv": 1, "device": "cpu"}


def small(**changes):
    return inputs(**SMALL | {"dtype": torch.float64} | changes)


# ---- forward-mode derivatives: refused, never a tangent of 0


def dual(f, Q):
    with forward_ad.dual_level():
        return f(forward_ad.make_dual(Q, torch.ones_like(Q)))


FORWARD_MODE = {
    "jvp": lambda f, Q: torch.func.jvp(f, (Q,), (Q,)),
    "jvp, requires_grad": lambda f, Q: torch.func.jvp(f, (Q.clone().requires_grad_(),), (Q,)),
    "jvp, no_grad": lambda f, Q: torch.no_grad()(torch.func.jvp)(f, (Q,), (Q,)),
    "jacfwd": lambda f, Q: torch.func.jacfwd(f)(Q),
    "linearize": lambda f, Q: torch.func.linearize(f, Q),
    "forward_ad": dual,
    "forward_ad, requires_grad": lambda f, Q: dual(f, Q.clone().requires_grad_()),
}


@pytest.mark.parametrize("way", FORWARD_MODE)
def test_a_forward_mode_derivative_is_refused_in_words(way):
    """Fails if a tangent comes out as 0, or is lost without a word."""
    Q, K, V = small()
    with pytest.raises(NotImplementedError, match="flash_attention has no forward-mode derivative"):
        FORWARD_MODE[way](lambda Q: flash_attention(Q, K, V), Q)


def test_a_tangent_of_the_gradient_is_refused_in_words():
    Q, K, V = small()
    gradient = torch.func.grad(lambda Q: flash_attention(Q, K, V).sum())
    with pytest.raises((NotImplementedError, RuntimeError), match="no forward-mode derivative|differentiable once"):
        torch.func.jvp(gradient, (Q,), (Q,))


def test_what_has_no_tangent_runs_while_others_have_one():
    """Fails if forward-mode differentiation of another part of a model is refused because attention stands beside
    it."""
    Q, K, V = small()
    O, tangent = torch.func.jvp(lambda x: x * flash_attention(Q, K, V).sum(), (torch.tensor(2.0),),
                                (torch.tensor(1.0),))
    assert tangent == flash_attention(Q, K, V).sum() and O == 2 * tangent


# ---- torch.func


@pytest.mark.parametrize("backend", BACKENDS)
def test_torch_func_gradients(backend):
    """grad, vjp and jacrev, which maps the backward over the rows of the Jacobian."""
    Q, K, V = inputs(N_q=3, N_k=5, d=2, d_v=2, B=1, H_q=2, H_kv=1)
    of = lambda *QKV: flash_attention(*QKV, causal=True, backend=backend)
    QKV = [T.clone().requires_grad_() for T in (Q, K, V)]
    dO = torch.randn_like(of(Q, K, V))
    expected = torch.autograd.grad(of(*QKV), QKV, dO)
    assert all(torch.equal(*pair) for pair in zip(torch.func.vjp(of, Q, K, V)[1](dO), expected, strict=True))
    total = torch.func.grad(lambda *QKV: (of(*QKV) * dO).sum(), argnums=(0, 1, 2))(Q, K, V)
    assert all(torch.equal(*pair) for pair in zip(total, expected, strict=True))
    if backend == "torch":
        jacobian = torch.func.jacrev(of)(Q, K, V)
        torch.testing.assert_close(torch.tensordot(dO, jacobian, 4), expected[0])


MAPS = {"all": (0, 0, 0), "other dimensions": (2, 1, 3), "Q alone": (0, None, None), "K and V": (None, 1, 1)}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("in_dims", MAPS.values(), ids=MAPS)
@pytest.mark.filterwarnings("error:There is a performance drop")         # PyTorch's own loop over the mapped dimension
def test_vmap_folds_the_mapped_dimension_into_the_batch(backend, in_dims):
    QKV = inputs(N_q=5, N_k=6, d=4, d_v=3, B=2, H_q=4, H_kv=2)
    mapped = [T if dim is None else torch.stack([T, -T, 2 * T], dim) for T, dim in zip(QKV, in_dims, strict=True)]
    of = lambda *QKV: flash_attention(*QKV, causal=True, backend=backend, return_lse=True)
    found = torch.func.vmap(of, in_dims)(*mapped)
    for n in range(3):
        one = [T if dim is None else T.select(dim, n) for T, dim in zip(mapped, in_dims, strict=True)]
        for got, expected in zip(found, of(*one), strict=True):
            torch.testing.assert_close(got[n], expected, rtol=0, atol=1e-6)


def test_gradients_under_vmap():
    """Per-sample gradients, and a vmapped call whose inputs require gradients; fails if the gradient is lost without a
    word."""
    Q, K, V = (torch.stack([T, -T]) for T in small())
    loss = lambda *QKV: flash_attention(*QKV, causal=True).square().sum()
    grads = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(Q, K, V)
    QKV = [T.clone().requires_grad_() for T in (Q, K, V)]
    torch.func.vmap(loss)(*QKV).sum().backward()
    for n in range(2):
        one = [T[n].clone().requires_grad_() for T in (Q, K, V)]
        loss(*one).backward()
        for T, mapped, together in zip(one, grads, QKV, strict=True):
            torch.testing.assert_close(mapped[n], T.grad)
            torch.testing.assert_close(together.grad[n], T.grad)


def test_vmap_of_packed_sequences():
    Q, K, V = (T.transpose(1, 2).flatten(0, 1) for T in small(N_k=9))     # (T, H, d)
    cu_seqlens = torch.tensor([0, 5, 11, 17], dtype=torch.int32)
    of = lambda Q, K, V: flash_attention_varlen(Q, K, V, cu_seqlens, cu_seqlens, causal=True)
    found = torch.func.vmap(of)(*(torch.stack([T, -T]) for T in (Q, K, V)))
    torch.testing.assert_close(found, torch.stack([of(Q, K, V), of(-Q, -K, -V)]))
    with pytest.raises(NotImplementedError, match="wants the same cu_seqlens_q and cu_seqlens_k for all"):
        torch.func.vmap(lambda cu: torch.ops.flashlab.attention_forward(
            *(T[None] for T in (Q, K, V)), None, False, 1.0, 0.0, "torch", False, None, cu, cu))(
                torch.stack([cu_seqlens] * 2))


@needs_triton
def test_vmap_of_dropout_is_refused_in_words():
    with pytest.raises(NotImplementedError, match="no dropout under torch.vmap.* got dropout_p=0.5"):
        torch.func.vmap(lambda Q: flash_attention(Q, Q, Q, dropout_p=0.5, seed=1))(torch.zeros(2, 1, 1, 4, 8))


# ---- autocast


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_casts_as_scaled_dot_product_attention_does(backend):
    """Mixed inputs too; gradients come back in each input's own dtype, and what runs inside is not cast once more."""
    QKV = inputs(N_q=20, N_k=20, d=16, d_v=16, H_kv=4)
    for dtypes in ([torch.float32] * 3, [torch.bfloat16, torch.float32, torch.float16]):
        T = [T.to(dtype, copy=True).requires_grad_() for T, dtype in zip(QKV, dtypes, strict=True)]
        with torch.autocast(T[0].device.type, torch.bfloat16):
            O = flash_attention(*T, backend=backend)
            assert O.dtype == torch.nn.functional.scaled_dot_product_attention(*T).dtype == torch.bfloat16
            O.sum().backward()
        by_hand = [one.detach().to(torch.bfloat16, copy=True).requires_grad_() for one in T]
        outside = flash_attention(*by_hand, backend=backend)
        outside.sum().backward()
        assert torch.equal(O, outside)
        assert all(torch.equal(a.grad, b.grad.to(a.dtype)) for a, b in zip(T, by_hand, strict=True))


def test_autocast_of_packed_sequences_and_what_it_leaves_alone():
    cu_seqlens = torch.tensor([0, 3, 7], dtype=torch.int32)
    with torch.autocast("cpu", torch.bfloat16):
        assert flash_attention_varlen(*[torch.randn(7, 2, 8)] * 3, cu_seqlens, cu_seqlens).dtype == torch.bfloat16
        assert flash_attention(*small()).dtype == torch.float64
        assert flash_attention(*(T.to("meta") for T in small())).is_meta
        with pytest.raises(TypeError, match="Q must be a torch.Tensor, got None"):
            flash_attention(None, *small()[1:])


# ---- the compiler, export, checkpoints, fake tensors


def test_torch_compile_with_a_scale_that_varies():
    torch._dynamo.reset()
    compiled = torch.compile(lambda Q, K, V, scale: flash_attention(Q, K, V, scale=scale), fullgraph=True,
                             backend="aot_eager", dynamic=True)
    QKV = small()
    for scale in (0.1, 0.2, -0.3):
        assert torch.equal(compiled(*QKV, scale), flash_attention(*QKV, scale=scale))


def test_torch_compile_under_autocast(monkeypatch):
    """Without a function of PyTorch that the compiler of 2.11 cannot trace."""
    monkeypatch.setattr(torch.amp, "is_autocast_available", None)

    def layer(Q, K, V):
        with torch.autocast("cpu", torch.bfloat16):
            return flash_attention(Q, K, V)

    QKV = small(dtype=torch.float32)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(layer, fullgraph=True, backend="aot_eager")(*QKV), layer(*QKV))


def test_torch_compile_of_one_tensor_twice():
    """As packed self-attention passes its cu_seqlens, and a layer without projections its input."""
    cu_seqlens = torch.tensor([0, 4, 9], dtype=torch.int32)
    calls = [(lambda X: flash_attention(X, X, X), (1, 2, 9, 4)),
             (lambda X: flash_attention(2 * X[:, :, :5], X, X), (1, 2, 9, 4)),
             (lambda X: flash_attention_varlen(X, X, X, cu_seqlens, cu_seqlens), (9, 2, 4))]
    for call, shape in calls:
        torch._dynamo.reset()
        grads = []
        for function in (torch.compile(call, fullgraph=True, backend="aot_eager"), call):
            X = torch.linspace(-1, 1, 72).reshape(shape).requires_grad_()
            function(X).square().sum().backward()
            grads.append(X.grad)
        torch.testing.assert_close(*grads)             # dQ, dK and dV may be added up in another order


LOSS = lambda *QKV: flash_attention(*QKV, causal=True).square().sum()
TRANSFORMED = {"vmap": torch.func.vmap(flash_attention),
               "grad": torch.func.grad(lambda *QKV: torch.func.vmap(LOSS)(*QKV).sum()),
               "vmap of grad": torch.func.vmap(torch.func.grad(LOSS))}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_torch_compile_of_a_transform(name):
    """Fails if the gradient that is lost while the tracer looks through the transform is lost for good."""
    transformed = TRANSFORMED[name]
    stacked = [torch.stack([T, -T]) for T in small(dtype=torch.float32)]
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(transformed, backend="aot_eager")(*stacked), transformed(*stacked))
    if name == "vmap":
        torch._dynamo.reset()
        of_inputs = []
        for function in (torch.compile(transformed, backend="aot_eager"), transformed):
            QKV = [T.clone().requires_grad_() for T in stacked]
            function(*QKV).square().sum().backward()
            of_inputs.append([T.grad for T in QKV])
        assert all(torch.equal(*pair) for pair in zip(*of_inputs, strict=True))


def test_inductor_on_the_cpu():
    from torch._inductor import cpp_builder, exc

    try:
        cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler:
        pytest.skip("there is no C++ compiler")
    results, layer = [], lambda Q, K, V: flash_attention(2 * Q, K, V, causal=True).square().sum()
    torch._dynamo.reset()
    for function in (torch.compile(layer, fullgraph=True), layer):
        QKV = [T.requires_grad_() for T in small(dtype=torch.float32)]
        function(*QKV).backward()
        results.append([T.grad for T in QKV])
    for compiled, eager in zip(*results, strict=True):
        torch.testing.assert_close(compiled, eager)


class Layer(torch.nn.Module):
    def forward(self, Q, K, V):
        return flash_attention(Q, K, V, causal=True)


def test_torch_export_with_a_length_that_varies():
    """Fails if a check of the arguments fixes the length, or the operator dissolves into its parts."""
    QKV, N = small(N_k=9, dtype=torch.float32), torch.export.Dim("N")
    program = torch.export.export(Layer(), tuple(QKV), dynamic_shapes=({2: N},) * 3)
    assert "flashlab.attention_forward" in program.graph_module.code
    other = small(N_q=14, N_k=14, dtype=torch.float32)
    assert torch.equal(program.module()(*other), Layer()(*other))


@pytest.mark.parametrize("use_reentrant, dropout_p", [(False, 0.0), pytest.param(True, 0.5, marks=needs_triton)])
def test_checkpoint(use_reentrant, dropout_p):
    """With dropout, the second forward must draw the seed of the first."""
    from torch.utils.checkpoint import checkpoint

    of, results = lambda *QKV: flash_attention(*QKV, dropout_p=dropout_p), []
    for run in (lambda *QKV: checkpoint(of, *QKV, use_reentrant=use_reentrant), of):
        QKV = with_grad(N_q=9, N_k=9, B=1)
        torch.manual_seed(3)
        run(*QKV).square().sum().backward()
        results.append([T.grad for T in QKV])
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


# ---- FLOPs


def counted(function):
    with FlopCounterMode(display=False) as counter:
        function()
    return {str(name): flops for name, flops in counter.get_flop_counts().get("Global", {}).items()}


@pytest.mark.parametrize("options, pairs", [({}, 108), ({"causal": True}, 54), ({"window": (2, 1)}, 35)], ids=str)
def test_flops_are_counted(options, pairs):
    """2 N_q N_k (d + d_v) a head forward; the backward has S and dP again, and dQ, dK, dV. In the window a query sees
    four keys, the last one three."""
    Q, K, V = (T.requires_grad_() for T in small())
    flops = counted(lambda: flash_attention(Q, K, V, **options).sum().backward())
    assert flops == {"flashlab.attention_forward": 4 * pairs * 2 * (4 + 3),
                     "flashlab.attention_backward": 4 * pairs * 2 * (3 * 4 + 2 * 3)}


def test_flops_of_packed_sequences():
    cu_seqlens = torch.tensor([0, 2, 7], dtype=torch.int32)
    for n, scores in ((3, 2 * 2 + 5 * 5), (1, 0)):     # two sequences, none
        flops = counted(lambda: flash_attention_varlen(*[torch.randn(7, 3, 8)] * 3, cu_seqlens[:n], cu_seqlens[:n]))
        assert flops == {"flashlab.attention_forward": 3 * scores * 4 * 8}


# ---- threads


@needs_triton
@pytest.mark.skipif(not interpreted(), reason="compiled kernels run beside each other")
def test_threads_share_the_interpreter():
    """Triton's interpreter rewrites Triton's language while a kernel runs; fails if two threads do so at once."""
    QKV, errors = inputs(N_q=16, N_k=16, d=16, d_v=16, B=1, H_q=1, H_kv=1), []
    expected = flash_attention(*QKV, backend="triton")

    def work():
        try:
            for _ in range(4):
                assert torch.equal(flash_attention(*QKV, backend="triton"), expected)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


# ---- refusals and numbers


@needs_triton
def test_numbers_of_numpy():
    QKV = inputs(N_q=4, N_k=4, B=1, d=16, d_v=16)
    for scale in (np.float32(0.5), np.float16(0.5), np.float64(0.5)):
        assert torch.equal(flash_attention(*QKV, scale=scale), flash_attention(*QKV, scale=0.5))
    assert torch.equal(flash_attention(*QKV, scale=np.int64(2)), flash_attention(*QKV, scale=2))
    dropped = flash_attention(*QKV, dropout_p=np.float32(0.5), seed=np.int64(7), backend="triton")
    assert torch.equal(dropped, flash_attention(*QKV, dropout_p=0.5, seed=7, backend="triton"))
    windowed = flash_attention(*QKV, window=(np.int64(2), np.int32(1)))
    assert torch.equal(windowed, flash_attention(*QKV, window=(2, 1)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_scores_beyond_float32(backend):
    """As the docstring says: -inf is a score that weighs nothing, and rows of such alone see no key; +inf is NaN."""
    far = torch.full((1, 1, 2, 16), 1e20, device=inputs()[0].device)
    O, L = flash_attention(far, -far, far, return_lse=True, backend=backend)
    assert (O == 0).all() and (L == -torch.inf).all()
    assert flash_attention(far, far, far, backend=backend).isnan().all()
