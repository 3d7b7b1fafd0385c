"""Every kernel on a GPU: right on awkward shapes, the same bits each time, no address that is not its own. Nothing is timed.

    python -m pytest tests/gpu -m gpu                           an hour, most of it compiling; without a GPU all are skipped
    python -m pytest tests/gpu -m gpu -k fa2_hopper_forward     one kernel
"""

import faulthandler
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from calls import KEY_SIDE, SHAPES, SMALL, Call, judge

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab import ladder, oracle
from flashlab.operator import fp8
from flashlab.triton_mode import import_triton
from flashlab_course.bench.checks import poisoned_outputs
from flashlab_course.bench.fp8 import LARGEST_ERROR

HERE = Path(__file__).resolve().parent
KERNELS = [kernel.name for kernel in [*ladder.KERNELS, ladder.DECODE, *ladder.BACKWARD_KERNELS]]
REPEATS = 5
PATIENCE = 120                         # seconds until a kernel counts as hanging
needs_triton = pytest.mark.skipif(not import_triton(), reason="triton is not installed (it exists for Linux only)")


@pytest.fixture
def patience():
    """A kernel that hangs is told and ends the process: a GPU does not give back a program that waits for ever."""
    yield lambda: faulthandler.dump_traceback_later(PATIENCE, exit=True)
    faulthandler.cancel_dump_traceback_later()


def wrong(name, call, device="cuda", repeats=REPEATS, deterministic=False):
    """What is wrong with a kernel's results in words, None where all is right; "not for it" where it does not take the call.

    Of a backward kernel that adds dQ up in any order each dQ is held against float64; all else has the same bits each time.
    """
    kernel, tensors, options = ladder.rung(name), call.tensors(device), call.options(device)
    options = {option: value for option, value in options.items() if option != "scale"}
    if reason := kernel.why_not(*tensors[:3], **options, **({"deterministic": True} if deterministic else {})):
        return f"not for it: {reason}"
    backward = kernel in ladder.BACKWARD_KERNELS
    run = (lambda: call.backward(tensors, name, deterministic)) if backward else (lambda: call.forward(tensors, name))
    never = not kernel.launches_in_order and not kernel.why_not(*tensors[:3], **options, **({"deterministic": True} if backward else {}))
    moving = {"dQ"} if backward and not (deterministic or never) else set()
    first = run()
    if reason := call.wrong(first, tensors):
        return reason
    for repeat in range(repeats):
        again = run()
        for key, T in again.items():
            if key not in moving and not torch.equal(T, first[key]) and not (call.spoilt is not None and equal(T, first[key])):
                return f"{call}: {key} has other bits at repeat {repeat + 1}"
        if moving and (reason := call.wrong(again, tensors)):
            return f"repeat {repeat + 1}: {reason}"
    return None


def equal(T, other):
    """The same numbers, and NaN in the same places."""
    return torch.equal(T.isnan(), other.isnan()) and torch.equal(T.nan_to_num(), other.nan_to_num())


@pytest.mark.gpu
@pytest.mark.parametrize("name", KERNELS)
def test_awkward_shapes(name, patience):
    """bfloat16 and float16 by turns. A kernel that can add dQ up in order is tried both ways."""
    found = []
    for n, call in enumerate(SHAPES):
        call = call._replace(dtype=(torch.bfloat16, torch.float16)[n % 2])
        for deterministic in (False, True) if ladder.rung(name).launches_in_order else (False,):
            patience()
            found.append(wrong(name, call, deterministic=deterministic))
    taken = [reason for reason in found if not (reason or "").startswith("not for it")]
    assert taken and not any(taken), [reason for reason in taken if reason]


@needs_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="about Triton's interpreter")
def test_a_wrong_kernel_is_told(monkeypatch):
    """Fails if numbers that are off, that move from run to run, or that a kernel forgets to write would pass on a GPU."""
    small = Call(1, 2, 1, 20, 30, 16, 16, True, dtype=torch.float16)
    for name in ("fa2_triton_forward", "fa2_split_backward", "fa2_atomic_backward"):
        assert wrong(name, small, "cpu", 1) is None, name
    assert "118 bytes" in wrong("fa2_tma_forward", small._replace(d=59, d_v=59), "cpu", 1)
    off = lambda Q, K, V, **_: (torch.empty_like(Q), torch.empty(Q.shape[:3]))
    runs, real = iter(range(9)), Call.backward
    monkeypatch.setattr("calls.flash_attention", off)
    assert "O off by" in wrong("fa2_triton_forward", small, "cpu", 1)
    monkeypatch.undo()
    move = lambda *call: {key: T + 0.001 * next(runs) ** 4 * (key == "dQ") for key, T in real(*call).items()}
    monkeypatch.setattr(Call, "backward", move)
    assert "other bits" in wrong("fa2_split_backward", small, "cpu", 1)
    runs = iter((0, *range(9)))
    assert "dQ off by" in wrong("fa2_atomic_backward", small, "cpu", 5)


# ---- tensors of more than 2**31 elements, where offsets need 64 bits

ROWS = 1000                            # of each end of a long sequence
LARGE = [Call(1040, 16, 16, 1024, 1024, 128, 128, True), Call(1, 1, 1, 2**24 + 1000, 2**24 + 1000, 128, 128, False, (256, 0))]


def wrong_ends(name, call, device="cuda", rows=ROWS):
    """As `wrong`, of the first and the last head, or where there is a window of the first and the last rows."""
    kernel, every, tensors = ladder.rung(name), slice(None), call.tensors(device)
    options = call.options(device)
    if reason := kernel.why_not(*tensors[:3], **options):
        return f"not for it: {reason}"
    parts = [(one, one, every, every) for one in (slice(0, 1), slice(-1, None))]
    if call.window:
        seen = slice(-rows - call.window[0], None)
        parts = [(every, every, slice(0, rows), slice(0, rows)), (every, every, slice(-rows, None), seen)]
        tensors[3][:, :, rows:-rows] = 0               # keys before a part then owe it their whole gradient
    found = (call.backward if kernel in ladder.BACKWARD_KERNELS else call.forward)(tensors, name)
    named = dict(zip(("Q", "K", "V", "dO"), tensors, strict=True)) | found
    for batches, heads, queries, keys in parts:
        one = {key: T[batches, heads, keys if key in KEY_SIDE else queries] for key, T in named.items()}
        verdict = judge(one, every, {"causal": call.causal, "window": call.window})
        if not verdict.ok:
            return str(verdict)
    return None


@pytest.mark.gpu
@pytest.mark.parametrize("name", KERNELS)
def test_offsets_of_64_bits(name, patience):
    for call in LARGE:
        patience()
        reason = wrong_ends(name, call) or ""
        assert not reason or reason.startswith("not for it"), reason
        torch.cuda.empty_cache()


@needs_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="about Triton's interpreter")
def test_a_wrong_last_row_is_seen(monkeypatch):
    heads, rows = Call(3, 2, 2, 40, 40, 16, 16, True), Call(1, 1, 1, 90, 90, 16, 16, False, (7, 0))
    assert all(call.B * call.H_q * call.N_q * call.d > 2**31 for call in LARGE)
    for call in (heads, rows):
        for name in ("fa2_triton_forward", "fa2_triton_backward"):
            assert wrong_ends(name, call, "cpu", 20) is None

    def spoilt(*arguments):
        found = real(*arguments)
        found["O"][-1, -1, -1] += 1
        return found

    real = Call.forward
    monkeypatch.setattr(Call, "forward", spoilt)
    assert all("O off by" in wrong_ends("fa2_triton_forward", call, "cpu", 20) for call in (heads, rows))


# ---- compute-sanitizer

def run_small(name):
    """In the process under the tool: each of SMALL that the kernel takes. Prints how many."""
    results = [wrong(name, call, repeats=0) for call in SMALL]
    taken = [reason for reason in results if not (reason or "").startswith("not for it")]
    assert not any(taken), taken
    print("calls", len(taken))


@pytest.mark.gpu
@pytest.mark.skipif(not shutil.which("compute-sanitizer"), reason="compute-sanitizer (of the CUDA toolkit) is not on the PATH")
@pytest.mark.parametrize("name", ["fa2_hopper_forward", "fa2_hopper_backward"])
def test_no_kernel_touches_memory_that_is_not_its_own(name):
    command = ["compute-sanitizer", "--tool", "memcheck", sys.executable, "-c",
               f"from test_gpu_kernels import run_small; run_small({name!r})"]
    env = os.environ | {"PYTHONPATH": f"{HERE.parent.parent}:{HERE}", "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, env=env, timeout=900)
    made = re.search(r"^calls (\d+)$", done.stdout, re.MULTILINE)
    assert made and int(made[1]) >= len(SMALL) - 1, (done.stdout + done.stderr)[-2000:]
    assert re.search(r"SUMMARY: 0 errors", done.stdout + done.stderr), done.stdout[-2000:]


# ---- FP8: the kernels do the steps that flashlab.operator.fp8.emulated does in PyTorch

# B, H_q, H_kv, N_q, N_k, d, causal: whole blocks, ragged ends, shared key heads, bottom-right, few rows, few keys
AWKWARD = [(2, 3, 3, 1024, 1024, 128, False), (2, 3, 3, 1024, 1024, 64, True), (1, 8, 2, 4095, 4095, 128, True),
           (1, 4, 4, 301, 700, 128, True), (1, 4, 1, 333, 690, 64, False), (2, 4, 2, 1, 200, 128, True),
           (1, 2, 2, 200, 7, 64, False), (1, 2, 2, 1000, 3001, 256, True), (1, 200, 200, 640, 640, 128, True)]


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.get_device_capability()[0] != 9, reason="the kernels are for Hopper")
@pytest.mark.parametrize("B, H_q, H_kv, N_q, N_k, d, causal", AWKWARD)
def test_fp8_on_awkward_shapes(B, H_q, H_kv, N_q, N_k, d, causal):
    fp8_is_right(B, H_q, H_kv, N_q, N_k, d, causal, "cuda")


def test_fp8_that_is_wrong_is_told(monkeypatch):
    """Here it is the emulation that runs."""
    fp8_is_right(1, 4, 2, 70, 200, 64, True, "cpu")
    monkeypatch.setattr(fp8, "flash_attention_fp8", lambda Q, *others, **options: Q)
    with pytest.raises(AssertionError):
        fp8_is_right(1, 4, 2, 70, 200, 64, True, "cpu")


def fp8_is_right(B, H_q, H_kv, N_q, N_k, d, causal, device):
    """Raises: AssertionError if it is far from the emulation or from float64, or gives other bits at its second call"""
    generator = torch.Generator(device).manual_seed(N_q)
    Q, K, V = (torch.randn(B, N, H, d, generator=generator, device=device).bfloat16().transpose(1, 2)
               for N, H in ((N_q, H_q), (N_k, H_kv), (N_k, H_kv)))
    V[:, :, -N_k // 3:] *= 8                           # blocks with other scales
    with poisoned_outputs():
        first, again = (fp8.flash_attention_fp8(Q, K, V, causal=causal) for _ in range(2))
    quantized = (fp8.quantize(T, block, rotate=T is not V) for T, block in ((Q, fp8.ROWS), (K, fp8.KEYS), (V, fp8.KEYS)))
    truth = oracle.attention(Q, K, V, causal=causal)[0]
    size = truth.square().mean().sqrt()
    off = lambda x: ((first.double() - x).square().mean().sqrt() / size).item()
    assert off(fp8.emulated(*quantized, causal, d**-0.5).double()) < fp8.EPS / 2 and off(truth) < LARGEST_ERROR
    assert torch.equal(first, again)
