"""The calls that are made again by their plans, and those that must not be. Stand-ins take the place of compiled
kernels."""

import gc
import weakref
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import flashlab  # before Triton: it decides whether kernels are interpreted
from flashlab.oracle import judge, judge_gradients

triton = pytest.importorskip("triton")

from flashlab.kernels import driver, plans  # noqa: E402
from flashlab.kernels.launch import fit_for_tma, why_no_descriptor  # noqa: E402
from flashlab.memory import Memory  # noqa: E402
from flashlab.operator import pick  # noqa: E402
from flashlab.operator.attention import ATTENTION_BACKWARD, Options  # noqa: E402
from flashlab.triton_mode import interpreted  # noqa: E402


@pytest.fixture(autouse=True)
def none_before():
    plans.forget()
    yield
    plans.forget()


class Place(NamedTuple):
    name: str              # of the tensor that goes here, or a descriptor of it
    describe: Callable


class Again:
    """Stands for launches that are packed for the driver: it interprets them, with other tensors by their names."""

    def __init__(self, launches, compiled, names):
        self.launches = [(kernel, grid, {name: self.place(value, names) for name, value in arguments.items()})
                         for kernel, grid, arguments in launches]

    def place(self, value, names):
        if isinstance(value, torch.Tensor):
            return Place(names[id(value)], lambda T: T)
        if hasattr(value, "block_shape"):
            parts = value.shape, value.strides, value.block_shape
            return Place(names[id(value.base)], lambda T: type(value)(T, *parts))
        return value

    def launch(self, tensors, stream):
        for kernel, grid, arguments in self.launches:
            kernel[grid](**{name: value.describe(tensors[value.name]) if isinstance(value, Place) else value
                            for name, value in arguments.items()})


@pytest.fixture
def counted(monkeypatch):
    """How many kernels have been picked, and how many plans replayed."""
    if not interpreted():
        pytest.skip("it stands in for compiled kernels")
    counts, replay, picked = {"picked": 0, "replayed": 0}, plans.replay, pick.pick

    def count_replay(*given):
        counts["replayed"] += 1
        return replay(*given)

    def count(*tensors, **options):
        counts["picked"] += 1
        return picked(*tensors, **options)

    monkeypatch.setattr(driver, "Packed", Again)
    monkeypatch.setattr(plans, "replay", count_replay)
    monkeypatch.setattr(pick, "pick", count)
    return counts


def tensors(N_q=20, N_k=33, dtype=torch.float32, gradients=False):
    return [torch.randn(1, H, N, 16, dtype=dtype, requires_grad=gradients) for H, N in ((2, N_q), (1, N_k), (1, N_k))]


def attend(*QKV, **options):
    return flashlab.flash_attention(*QKV, **{"causal": True, "backend": "triton"} | options)


@pytest.mark.parametrize("backend", ["triton", "fa2_tma_forward"])
def test_the_next_call_of_the_operator_is_replayed(counted, backend):
    """With its own tensors in the same places, also where a kernel is given descriptors of them."""
    for n in range(3):
        Q, K, V = tensors()
        O, L = attend(Q, K, V, return_lse=True, backend=backend)
        assert judge(O, L, Q, K, V, causal=True).ok and counted["replayed"] == n
    assert counted["picked"] == 1 or backend != "triton"
    plans.forget()                                     # as when a search has found other tiles
    attend(*tensors(), return_lse=True, backend=backend)
    assert counted["replayed"] == 2


def test_a_watcher_of_launches_hears_every_one_and_few_plans_and_no_tensors_are_kept(counted, monkeypatch):
    attend(*tensors())
    with monkeypatch.context() as watched:
        watched.setattr(triton.JITFunction, "run", lambda *args, **kwargs: None)
        attend(*tensors())
    assert counted["replayed"] == 0
    monkeypatch.setattr(plans, "AT_MOST", 2)
    for N, replayed in ((20, 1), (21, 1), (22, 1), (23, 1), (23, 2), (21, 2)):
        attend(*tensors(N))
        assert counted["replayed"] == replayed, N
    given = tensors(24)
    gone = [weakref.ref(T.untyped_storage()) for T in given]
    attend(*given)
    del given
    gc.collect()
    assert [storage() for storage in gone] == [None] * 3


def test_launches_that_cannot_be_packed_are_worked_out_again(counted, monkeypatch):
    """Whatever is wrong with the driver, the call has been made."""
    monkeypatch.setattr(driver, "Packed", lambda *_: next(iter(())))
    QKV = tensors()
    assert torch.equal(attend(*QKV), attend(*QKV)) and counted == {"picked": 2, "replayed": 0}


def test_gradients_are_replayed(counted):
    """Of O alone, of O and L, and of a sum, whose dO is one expanded number."""
    losses = [lambda O, L, dO: (O * dO).sum(), lambda O, L, dO: (O * dO).sum() + L.sum(), lambda O, L, dO: O.sum()]
    for loss in losses:
        for repeated in range(2):
            QKV, dO = tensors(N_q=33, gradients=True), torch.randn(1, 2, 33, 16)
            before = counted["picked"]
            O, L = attend(*QKV, return_lse=True, deterministic=True)
            grads = torch.autograd.grad(loss(O, L, dO), QKV)
            plain = [T.detach().double().requires_grad_() for T in QKV]
            truth = flashlab.flash_attention(*plain, causal=True, return_lse=True)
            expected = torch.autograd.grad(loss(*truth, dO.double()), plain)
            torch.testing.assert_close([T.double() for T in grads], list(expected), rtol=1e-4, atol=1e-5)
            assert not repeated or counted["picked"] == before


def test_gradients_of_saved_tensors_that_come_back_with_other_strides(counted):
    """As save_on_cpu returns them; fails if the strides of the forward pass are taken for theirs."""
    dO = torch.randn(1, 2, 33, 16)
    for _ in range(2):
        Q, K, V = (torch.randn(1, 33, H, 16).transpose(1, 2).requires_grad_() for H in (2, 1, 1))
        expected = torch.autograd.grad(attend(Q, K, V, deterministic=True), (Q, K, V), dO)
        with torch.autograd.graph.saved_tensors_hooks(lambda T: T.clone(), lambda T: T.contiguous()):
            O = attend(Q, K, V, deterministic=True)
        assert all(torch.equal(*pair) for pair in zip(torch.autograd.grad(O, (Q, K, V), dO), expected, strict=True))
    assert counted["replayed"] > 2


def test_what_tma_cannot_read_is_copied_to_where_it_can():
    """A contiguous tensor may begin anywhere: contiguous() would return it as it is."""
    for T in (torch.zeros(65)[1:].view(1, 1, 4, 16), torch.zeros(1, 1, 4, 16).mT):
        assert why_no_descriptor(T=T) and not why_no_descriptor(T=fit_for_tma(T))


@pytest.mark.parametrize("window", [None, (20, 5)], ids=str)
def test_packed_sequences_are_replayed(counted, window):
    """Other numbers in cu_seqlens leave the key as it is; another window, or one sequence more, does not."""
    def hold(lengths_q, lengths_k, window):
        cu_q, cu_k = (torch.tensor([0, *lengths]).cumsum(0).int() for lengths in (lengths_q, lengths_k))
        QKV = [torch.randn(40, H, 16, requires_grad=True) for H in (2, 1, 1)]
        dO = torch.randn(40, 2, 16)
        options = {"window": window, "causal": window is None}
        O = flashlab.flash_attention_varlen(*QKV, cu_q, cu_k, backend="triton", **options)
        grads = torch.autograd.grad(O, QKV, dO)
        for s in range(len(lengths_q)):
            q, k = slice(*cu_q[s:s + 2].tolist()), slice(*cu_k[s:s + 2].tolist())
            Q, K, V, O_s, dO_s, dQ, dK, dV = (T[rows].transpose(0, 1) for T, rows in zip(
                (*QKV, O, dO, *grads), (q, k, k, q, q, q, k, k), strict=True))
            assert judge(O_s, None, Q, K, V, **options).ok and judge_gradients(dQ, dK, dV, Q, K, V, dO_s, **options).ok

    hold([10, 30], [25, 15], window)
    hold([33, 7], [20, 20], window)
    assert counted == {"picked": 2, "replayed": 2}     # forward and backward, once each
    hold([33, 7], [20, 20], (3, 4))
    hold([20, 13, 7], [0, 20, 20], window)
    assert counted == {"picked": 6, "replayed": 2}


@pytest.mark.parametrize("new, paged", [(False, True), (True, False), (True, True)])
def test_a_step_of_decoding_is_replayed(counted, new, paged):
    table = torch.randperm(6).view(2, 3).int() if paged else None
    for n in range(3):
        Q, K, V = torch.randn(2, 4, 1, 16), torch.randn(2, 2, 48, 16), torch.randn(2, 2, 48, 24)
        caches = [K.clone(), V.clone()]
        if paged:
            pages = [T.unflatten(2, (3, 16)).transpose(1, 2).flatten(0, 1) for T in caches]
            caches = [T[table.flatten().argsort()] for T in pages]
        added = {"K_new": K[:, :, 5 + n:6 + n].contiguous(), "V_new": V[:, :, 5 + n:6 + n].contiguous()} if new else {}
        lengths = torch.tensor([5 + n, 5 + n], dtype=torch.int32)
        O = flashlab.flash_attention_decode(Q, *caches, lengths, block_table=table, splits=2, backend="triton", **added)
        N_k = 5 + n + new
        assert judge(O, None, Q, K[:, :, :N_k], V[:, :, :N_k], causal=True).ok and counted["replayed"] == n


def test_launches_that_took_a_copy_are_not_replayed(counted):
    """An O whose rows do not lie as the forward pass leaves them is copied on the way to the kernels."""
    Q, K, V = (torch.randn(1, 2, 8, 16) for _ in range(3))
    cu = torch.tensor([0, 3, 8], dtype=torch.int32)
    options = Options(None, False, 0.25, 0.0, "triton", True, None, cu, cu)
    O, L = torch.ops.flashlab.attention_forward(Q, K, V, *options)
    expected = ATTENTION_BACKWARD(Q, K, V, O, torch.ones_like(O), L, None, *options)
    for _ in range(3):
        found = ATTENTION_BACKWARD(Q, K, V, O.contiguous(), torch.ones_like(O), L, None, *options)
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_another_call_is_looked_at(counted):
    """Fails if a plan is replayed where another kernel, other tiles or other checks may be due."""
    Q, K, V = tensors(33, 33)
    attend(Q, K, V)
    assert not torch.equal(attend(Q, K, V, dropout_p=0.5), attend(Q, K, V, dropout_p=0.5)), "the same draw twice"
    counted["picked"] = 1
    others = [tensors(34, 33), (Q, K[:, :, :5], V[:, :, :5]), (Q.transpose(1, 2).contiguous().transpose(1, 2), K, V),
              tensors(33, 33, torch.float16), (torch.randn(1 + Q.numel())[1:].view(Q.shape), K, V)]
    for other in others:                               # rows, keys, strides, dtype, alignment
        attend(*other)
    for options in {"causal": False}, {"scale": 0.5}, {"backend": "torch"}, {"deterministic": True}, {"window": (3, 3)}:
        attend(Q, K, V, **options)
    assert counted["picked"] == 10                     # all but the one on the torch backend
    for wrong in {"causal": 1}, {"return_lse": 0}, {"deterministic": 0}, {"backend": ["triton"]}:  # equal, unhashable
        with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
            attend(Q, K, V, **wrong)


class Listens(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **kwargs or {})


class Wrapped(torch.Tensor):
    """A subclass of someone's own."""


LISTENERS = [Listens, torch.overrides.BaseTorchFunctionMode,
             torch.autograd.profiler.profile, torch.autograd.forward_ad.dual_level, Memory]


def test_a_listener_to_operations_hears_of_every_call():
    Q, K, V = tensors()
    key = lambda *tensors: plans.key_of_call((True, None), *tensors)
    for listen in LISTENERS:
        with listen():
            assert key(Q, K, V) is None
    assert key(Q, K, V) == key(Q, K, V) and key(Q, None, V) is not None
    for T in (Q.as_subclass(Wrapped), Q.to_sparse(), [1.0]):
        assert key(T, K, V) is None
    leaf = Q.clone().requires_grad_()
    assert key(leaf, K, V) != key(Q, K, V)
    with torch.no_grad():
        assert key(leaf, K, V) == key(Q, K, V)


def test_neither_gradients_nor_transforms_nor_the_compiler_miss_a_call(counted):
    """After a call of the same key; fails if a replay stands where PyTorch would have to see an operation."""
    Q, K, V = tensors()
    expected = attend(Q, K, V)
    leaf = Q.clone().requires_grad_()
    attend(leaf, K, V).sum().backward()
    torch.testing.assert_close(torch.func.grad(lambda q: attend(q, K, V).sum())(Q), leaf.grad)
    torch.testing.assert_close(torch.func.vmap(lambda q: attend(q[None], K, V))(Q)[0], expected)
    torch._dynamo.reset()
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(Q, K, V), expected) and torch.equal(attend(Q.as_subclass(Wrapped), K, V), expected)
