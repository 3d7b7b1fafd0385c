"""Calls that are made again the short way, and all those that must not be. What launches is a stand-in."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from flashlab.memory import Memory
from flashlab.operator import again, decoding
from flashlab.operator.attention import flash_attention
from flashlab.operator.decoding import flash_attention_decode

ORDINARY = {"causal": False, "window": None, "scale": None, "seed": None, "return_lse": False, "backend": "auto",
            "deterministic": False}


def tensors(*shape, dtype=torch.float32):
    return [torch.randn(*shape or (1, 2, 8, 16), dtype=dtype) for _ in range(3)]


def signature(Q, K, V, **options):
    return again.signature(tuple((ORDINARY | options).values()), Q, K, V)


@pytest.fixture
def short(monkeypatch):
    """Makes a call known; what its launches then are given."""
    monkeypatch.setattr(again, "_made", {})
    noted, counts = [], [True]

    def replay(plan, given, device):
        noted.append(given)
        given["O"].fill_(7)
        given["L"].fill_(8)
        return counts[0]

    def know(*of_a_call, **options):
        again.remember(signature(*of_a_call, **options), replay, "a plan")
        return noted, counts
    return know


def test_a_known_call_goes_straight_to_its_launches(short):
    noted, _ = short(*tensors())
    Q, K, V = tensors()
    O = flash_attention(Q, K, V)
    assert len(noted) == 1 and noted[0]["Q"] is Q and noted[0]["K"] is K and noted[0]["V"] is V
    assert O.shape == (1, 2, 8, 16) and (O == 7).all()
    noted, _ = short(*tensors(), return_lse=True)
    assert flash_attention(Q, K, V, return_lse=True)[1].shape == (1, 2, 8) and len(noted) == 2


def test_launches_that_count_no_more_are_not_made(short):
    """As when a search has found other tiles, or somebody wants to hear of every launch."""
    noted, counts = short(*tensors())
    counts[0] = False
    Q, K, V = tensors()
    torch.testing.assert_close(flash_attention(Q, K, V), torch.nn.functional.scaled_dot_product_attention(Q, K, V))
    assert len(noted) == 1


CHANGES = ["shape", "keys", "strides", "dtype", "alignment", "causal", "scale", "backend", "deterministic"]


@pytest.mark.parametrize("change", CHANGES)
def test_another_call_is_looked_at(short, change):
    """Fails if the short way is taken where another kernel, other tiles or other checks may be due."""
    Q, K, V = tensors()
    noted, _ = short(Q, K, V)
    if change in ("causal", "scale", "backend", "deterministic"):
        flash_attention(Q, K, V, **{change: {"scale": 0.5, "backend": "torch"}.get(change, True)})
    else:
        Q, K, V = {"shape": tensors(1, 2, 9, 16), "keys": (Q, K[:, :, :5], V[:, :, :5]),
                   "strides": (Q.transpose(1, 2).contiguous().transpose(1, 2), K, V), "dtype": tensors(dtype=torch.float16),
                   "alignment": (torch.randn(1 + Q.numel())[1:].view(Q.shape), K, V)}[change]
        flash_attention(Q, K, V)
    assert not noted


@pytest.mark.parametrize("wrong, error", [
    ({"causal": 1}, TypeError), ({"causal": "no"}, TypeError), ({"backend": ["auto"]}, ValueError), ({"return_lse": 1}, TypeError),
    ({"deterministic": 0}, TypeError),
])
def test_what_only_equals_a_known_call_is_refused_as_before(short, wrong, error):
    Q, K, V = tensors()
    noted, _ = short(Q, K, V, causal=True)
    with pytest.raises(error):
        flash_attention(Q, K, V, **{"causal": True} | wrong)
    assert not noted


class Listens(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **kwargs or {})


class Wrapped(torch.Tensor):
    """Somebody's subclass."""


LISTENERS = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16), "a dispatch mode": Listens,
    "a function mode": torch.overrides.BaseTorchFunctionMode, "a profiler": torch.autograd.profiler.profile,
    "forward_ad": torch.autograd.forward_ad.dual_level, "the memory model": Memory,
}


@pytest.mark.parametrize("name", LISTENERS)
def test_who_wants_to_hear_of_a_call_does(short, name):
    Q, K, V = tensors()
    noted, _ = short(Q, K, V)
    with LISTENERS[name]():
        assert signature(Q, K, V) is None
    assert signature(Q, K, V) is not None


def test_neither_gradients_nor_transforms_nor_the_compiler_miss_a_call(short):
    Q, K, V = tensors()
    noted, _ = short(Q, K, V)
    leaf = Q.clone().requires_grad_()
    flash_attention(leaf, K, V).sum().backward()
    assert leaf.grad is not None
    torch.func.vmap(lambda q: flash_attention(q[None], K, V))(Q)
    torch.func.grad(lambda q: flash_attention(q, K, V).sum())(Q)
    compiled = torch.compile(flash_attention, fullgraph=True, backend="eager")(Q, K, V)
    flash_attention(Q.as_subclass(Wrapped), K, V)
    assert not noted and not (compiled == 7).any()
    with torch.no_grad():
        assert (flash_attention(leaf, K, V) == 7).all() and noted


def test_only_so_many_are_remembered(short, monkeypatch):
    monkeypatch.setattr(again, "AT_MOST", 3)
    for n in range(1, 6):
        short(*tensors(1, 1, n, 16))
    assert len(again._made) == 3


# ---- flash_attention_decode

def cached(new=False):
    Q, K, V = torch.randn(2, 4, 1, 16), torch.randn(2, 2, 40, 16), torch.randn(2, 2, 40, 24)
    added = {"K_new": torch.randn(2, 2, 1, 16), "V_new": torch.randn(2, 2, 1, 24)} if new else {}
    return (Q, K, V, torch.tensor([30, 5], dtype=torch.int32)), added


def of_decoding(Q, K, V, lengths, K_new=None, V_new=None):
    return again.signature((None, None, None, False, "auto"), Q, K, V, lengths, None, K_new, V_new)


@pytest.mark.parametrize("new", [False, True])
def test_a_known_step_goes_straight_to_its_launches(short, new):
    noted, _ = short(*tensors())
    replay, plan = again._made.popitem()[1]
    tensors_, added = cached(new)
    again.remember(of_decoding(*tensors_, **added), replay, plan)
    tensors_, added = cached(new)
    O = flash_attention_decode(*tensors_, **added)
    assert O.shape == (2, 4, 1, 24) and (O == 7).all() and noted[0]["lengths"] is tensors_[3]
    assert noted[0]["K_new"] is added.get("K_new")
    tensors_, added = cached(not new)
    assert not (flash_attention_decode(*tensors_, **added) == 7).any()
    with pytest.raises(TypeError, match="K_new"):
        flash_attention_decode(*tensors_, V_new=torch.randn(2, 2, 1, 24))
    assert len(noted) == 1


@pytest.mark.parametrize("new", [False, True])
def test_what_is_remembered_of_a_step_is_what_it_launched(monkeypatch, new):
    """The plans are looked up under the keys that they were made under, and made again in their order."""
    pytest.importorskip("triton")
    from flashlab.kernels import plans

    made = []
    monkeypatch.setattr(plans, "_run", lambda kind, launches, tensors, device, run=plans._run: (
        made.append(kind), run(kind, launches, tensors, device)))
    monkeypatch.setattr(plans, "known", lambda kind: made.index(kind) + 1)
    monkeypatch.setattr(again, "_made", {})
    (Q, K, V, lengths), added = cached(new)
    flash_attention_decode(Q, K, V, lengths, backend="triton", window=(9, 0), **added)
    given = {"Q": Q, "K": K, "V": V, "lengths": lengths, "block_table": None, "K_new": None, "V_new": None} | added
    decoding._remember("call", given, len(added) // 2, [9, 0], 0.25, None)
    assert again._made["call"] == (decoding._replay, (1, 2) if new else (1,)) and len(made) == 1 + new
