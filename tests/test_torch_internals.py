"""The private names of PyTorch that flashlab/torch_internals.py uses: there, and meaning what it says."""

import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

import flashlab
from flashlab import torch_internals
from flashlab.memory import Memory

KNOWN = ("2.11", "2.12", "2.13")                       # with another version, look at each of these functions
NAMES = ["_is_any_autocast_enabled", "_len_torch_dispatch_stack", "_len_torch_function_stack",
         "_are_functorch_transforms_active", "DisableTorchFunction", "_DisableTorchDispatch",
         # others are imported by name
         "DisableTorchFunction", "_get_tracing_state", "_get_dispatch_mode", "_AutoDispatchBelowAutograd",
         "_functorch.is_batchedtensor", "_set_deterministic_algorithms"]


def test_this_version_has_them():
    assert torch.__version__.startswith(KNOWN), f"flashlab knows PyTorch {KNOWN}: look at flashlab/torch_internals.py"
    for name in NAMES:
        found = torch._C
        for part in name.split("."):
            found = getattr(found, part)
    assert torch.autograd.forward_ad._current_level == -1 and torch.autograd.profiler._is_profiler_enabled is False


def test_autocast_and_observers():
    assert not torch_internals.autocast_is_on() and not torch_internals.observed()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch_internals.autocast_is_on()
    torch.func.vmap(lambda T: [pytest.fail("not seen") for _ in range(not torch_internals.observed())] and T
                    or T)(torch.zeros(2))


def test_tensors_without_numbers():
    seen = {"plain": torch_internals.has_numbers(torch.zeros(2)),
            "meta": torch_internals.has_numbers(torch.zeros(2, device="meta"))}

    def note(name):
        def function(T):
            seen[name] = torch_internals.has_numbers(T)
            return T + 1
        return function

    torch.func.vmap(note("vmap"))(torch.zeros(2))
    make_fx(note("make_fx"))(torch.zeros(2))
    with FakeTensorMode():
        note("fake")(torch.zeros(2))
    assert seen == {"plain": True, "meta": False, "vmap": False, "make_fx": False, "fake": False}


def test_modes_are_left_out():
    """Fails if looking at a tensor counts as an operation of the run that is looked at."""
    class Heard(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            heard.append(func)
            return func(*args, **kwargs or {})

    heard, T = [], torch.ones(2)
    with Heard(), Memory() as mem:
        with torch_internals.without_torch_function():
            T.shape  # noqa: B018
        with torch_internals.without_modes():
            T + T
        assert not heard and not mem.log
        T + T
    assert heard and mem.log


@pytest.mark.parametrize("tracing_mode", ["real", "fake"])
def test_packed_sequences_and_a_cache_are_traced(tracing_mode):
    """Fails if a check asks for numbers that are not there while PyTorch traces."""
    X, cu = torch.randn(8, 2, 16), torch.tensor([0, 3, 8], dtype=torch.int32)
    traced = make_fx(lambda X, cu: flashlab.flash_attention_varlen(X, X, X, cu, cu), tracing_mode=tracing_mode)(X, cu)
    assert torch.equal(traced(X, cu), flashlab.flash_attention_varlen(X, X, X, cu, cu))
    Q, cache, lengths = torch.randn(2, 2, 1, 16), torch.randn(2, 2, 8, 16), torch.tensor([3, 8], dtype=torch.int32)
    traced = make_fx(lambda *T: flashlab.flash_attention_decode(*T), tracing_mode=tracing_mode)(Q, cache, cache,
                                                                                                lengths)
    assert torch.equal(traced(Q, cache, cache, lengths), flashlab.flash_attention_decode(Q, cache, cache, lengths))


def test_nothing_is_watched_measured_or_attended_to_by_importing_the_compiler():
    """Fails if the first operation of an answer, of a Memory or of the operator takes seconds."""
    code = """
import sys, flashlab, torch
from flashlab.memory import Memory
from flashlab.torch_internals import DispatchMode, filled_with_nan

class Watch(DispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        heard.append(func)
        return func(*args, **kwargs or {})

heard = []
with Watch(), filled_with_nan():
    assert torch.empty(3).isnan().all()
X = torch.ones(1, 1, 4, 16)
with Memory() as mem:
    X + 1
flashlab.flash_attention(X, X, X)
assert heard and mem.read and "torch._dynamo" not in sys.modules
assert not torch.are_deterministic_algorithms_enabled()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
