"""Every kernel on a GPU: right on awkward shapes, the same bits each time, no access outside its tensors.

    python -m pytest tests/gpu -m gpu                           everything; most of the time goes into compiling
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
from flashlab import oracle
from flashlab.operator import fp8, pick
from flashlab.triton_mode import import_triton
from flashlab_course.bench.checks import poisoned_outputs
from flashlab_course.bench.fp8 import LARGEST_ERROR

HERE = Path(__file__).resolve().parent
KERNELS = [kernel.name for kernel in [*pick.KERNELS, pick.DECODE, *pick.BACKWARD_KERNELS]]
REPEATS = 5
PATIENCE = 120                         # seconds until a kernel counts as hanging
interpreted = pytest.mark.skipif(torch.cuda.is_available() or not import_triton(), reason="in Triton's interpreter")


@pytest.fixture
def patience():
    """Ends the process if a kernel hangs, and says where: nothing else stops a program that waits for ever."""
    yield lambda: faulthandler.dump_traceback_later(PATIENCE, exit=True)
    faulthandler.cancel_dump_traceback_later()


def ways(kernel):
    """The values of `deterministic` to try a kernel with: both where its sums may come in any order, or in one."""
    return (False, True) if hasattr(kernel.home, "launch_in_order") else (False,)


def why_not(kernel, call, tensors, deterministic=False):
    """Why the kernel does not take the call, in words; None where it does."""
    options = call.options(tensors[0].device) | ({"deterministic": True} if deterministic else {})
    return pick.why_not(kernel, *tensors[:3], **options)


def run(kernel, call, tensors, deterministic=False):
    """{"O", "L"}, or {"dQ", "dK", "dV"} of a backward kernel."""
    if kernel in pick.BACKWARD_KERNELS:
        return call.backward(tensors, kernel.name, deterministic)
    return call.forward(tensors, kernel.name)


def wrong(name, call, device="cuda", repeats=REPEATS, deterministic=False):
    """What is wrong with a kernel's results in words; None if they are right; "not for it" if it refuses the call.

    Repeats must give the same bits. Where a backward kernel adds dQ up in any order, each dQ is compared with float64.
    """
    kernel, tensors = pick.ALL[name], call.tensors(device)
    if reason := why_not(kernel, call, tensors, deterministic):
        return f"not for it: {reason}"
    moving = set()
    if kernel in pick.BACKWARD_KERNELS and not deterministic:
        in_order = ways(kernel) == (False,) and not why_not(kernel, call, tensors, True)
        moving = set() if in_order else {"dQ"}
    first = run(kernel, call, tensors, deterministic)
    if reason := call.wrong(first, tensors):
        return reason
    for repeat in range(repeats):
        again = run(kernel, call, tensors, deterministic)
        if other := [key for key in again if key not in moving and not same_bits(again[key], first[key])]:
            return f"{call}: other bits of {other} at repeat {repeat + 1}"
        if moving and (reason := call.wrong(again, tensors)):
            return f"repeat {repeat + 1}: {reason}"
    return None


def same_bits(T, other):
    """The same numbers, and NaN in the same places: behind the last sequence, and in one that holds NaN."""
    return torch.equal(T.isnan(), other.isnan()) and torch.equal(T.nan_to_num(), other.nan_to_num())


@pytest.mark.gpu
@pytest.mark.parametrize("name", KERNELS)
def test_awkward_shapes(name, patience):
    """In bfloat16 and float16 by turns; a kernel that can add dQ up in order, both ways."""
    found = []
    for n, call in enumerate(SHAPES):
        call = call._replace(dtype=(torch.bfloat16, torch.float16)[n % 2])
        for deterministic in ways(pick.ALL[name]):
            patience()
            found.append(wrong(name, call, deterministic=deterministic) or "")
    taken = [reason for reason in found if not reason.startswith("not for it")]
    assert taken and not any(taken), [reason for reason in taken if reason]


@interpreted
def test_a_kernel_that_is_wrong(monkeypatch):
    """Fails if wrong numbers, numbers that change from run to run, or numbers never written would pass."""
    small = Call(1, 2, 1, 20, 30, 16, 16, True, dtype=torch.float16)
    for name in ("fa2_triton_forward", "fa2_split_backward", "fa2_atomic_backward"):
        assert wrong(name, small, "cpu", 1) is None, name
    assert "118 bytes" in wrong("fa2_tma_forward", small._replace(d=59, d_v=59), "cpu", 1)
    real, runs = Call.backward, iter(range(9))
    with monkeypatch.context() as patch:
        forgets = lambda Q, K, V, **_: (torch.empty_like(Q), torch.empty(Q.shape[:3]))
        patch.setattr("calls.flash_attention", forgets)
        assert "O off by" in wrong("fa2_triton_forward", small, "cpu", 1)
    move = lambda *call: (found := real(*call)) | {"dQ": found["dQ"] + 0.001 * next(runs) ** 4}
    monkeypatch.setattr(Call, "backward", move)
    assert "other bits of ['dQ']" in wrong("fa2_split_backward", small, "cpu", 1)
    runs = iter((0, *range(9)))
    assert "dQ off by" in wrong("fa2_atomic_backward", small, "cpu", 5)


# ---- tensors of more than 2**31 elements, where offsets need 64 bits

ROWS = 1000                            # of each end of a long sequence
N = 2**24 + 1000
LARGE = [Call(1040, 16, 16, 1024, 1024, 128, 128, True), Call(1, 1, 1, N, N, 128, 128, False, (256, 0))]


def wrong_ends(name, call, device="cuda", rows=ROWS):
    """As `wrong`, for the first and the last head only, or with a window for the first and the last rows."""
    kernel, every, tensors = pick.ALL[name], slice(None), call.tensors(device)
    if reason := why_not(kernel, call, tensors):
        return f"not for it: {reason}"
    parts = [(one, one, every, every) for one in (slice(0, 1), slice(-1, None))]
    if call.window:
        seen = slice(-rows - call.window[0], None)
        parts = [(every, every, slice(0, rows), slice(0, rows)), (every, every, slice(-rows, None), seen)]
        tensors[3][:, :, rows:-rows] = 0               # so a part's keys get gradients from its own rows alone
    named = dict(zip(("Q", "K", "V", "dO"), tensors, strict=True)) | run(kernel, call, tensors)
    for batches, heads, queries, keys in parts:
        one = {key: T[batches, heads, keys if key in KEY_SIDE else queries] for key, T in named.items()}
        verdict = judge(one, every, {"causal": call.causal, "window": call.window})
        if not verdict.ok:
            return str(verdict)
    return None


@pytest.mark.gpu
@pytest.mark.parametrize("call", LARGE, ids=["heads", "rows"])
@pytest.mark.parametrize("name", KERNELS)
def test_offsets_of_64_bits(name, call, patience):
    assert call.B * call.H_q * call.N_q * call.d > 2**31
    patience()
    reason = wrong_ends(name, call) or ""
    torch.cuda.empty_cache()
    assert not reason or reason.startswith("not for it"), reason


@interpreted
def test_a_wrong_last_row_is_found(monkeypatch):
    real = Call.forward
    for call in (Call(3, 2, 2, 40, 40, 16, 16, True), Call(1, 1, 1, 90, 90, 16, 16, False, (7, 0))):
        assert [wrong_ends(f"windows_{what}", call, "cpu", 20) for what in ("forward", "backward")] == [None, None]
        off = (torch.arange(call.N_q) == call.N_q - 1)[:, None]
        with monkeypatch.context() as patch:
            patch.setattr(Call, "forward", lambda *call, off=off: (found := real(*call)) | {"O": found["O"] + off})
            assert "O off by" in wrong_ends("windows_forward", call, "cpu", 20)


# ---- compute-sanitizer

def run_small(name):
    """In the process under the tool: runs the kernel on all of SMALL that it takes. Prints how many."""
    kernel, made = pick.ALL[name], 0
    for call in SMALL:
        tensors = call.tensors("cuda")
        for deterministic in ways(kernel):
            if not why_not(kernel, call, tensors, deterministic):
                run(kernel, call, tensors, deterministic)
                made += 1
    torch.cuda.synchronize()
    print("calls", made)


@pytest.mark.gpu
@pytest.mark.skipif(not shutil.which("compute-sanitizer"), reason="compute-sanitizer is not on the PATH")
@pytest.mark.parametrize("name", ["fa2_hopper_forward", "fa2_hopper_backward"])
def test_no_kernel_reads_or_writes_outside_its_tensors(name):
    child = f"from test_gpu_kernels import run_small; run_small({name!r})"
    command = ["compute-sanitizer", "--tool", "memcheck", sys.executable, "-c", child]
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


def fp8_is_right(B, H_q, H_kv, N_q, N_k, d, causal, device="cuda"):
    """Whether it is near the emulation and float64, and gives the same bits twice."""
    generator = torch.Generator(device).manual_seed(N_q)
    Q, K, V = (torch.randn(B, N, H, d, generator=generator, device=device).bfloat16().transpose(1, 2)
               for N, H in ((N_q, H_q), (N_k, H_kv), (N_k, H_kv)))
    V[:, :, -N_k // 3:] *= 8                           # blocks with other scales
    with poisoned_outputs():
        first, again = (fp8.flash_attention_fp8(Q, K, V, causal=causal) for _ in range(2))
    blocks = ((Q, fp8.ROWS), (K, fp8.KEYS), (V, fp8.KEYS))
    quantized = (fp8.quantize(T, block, rotate=T is not V) for T, block in blocks)
    truth = oracle.attention(Q, K, V, causal=causal)[0]
    size = truth.square().mean().sqrt()
    off = lambda x: ((first.double() - x).square().mean().sqrt() / size).item()
    near = off(fp8.emulated(*quantized, causal, d**-0.5).double()) < fp8.EPS / 2 and off(truth) < LARGEST_ERROR
    return near and torch.equal(first, again)


@pytest.mark.gpu
def test_fp8_on_awkward_shapes():
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("the kernels are for Hopper")
    assert not [case for case in AWKWARD if not fp8_is_right(*case)]


def test_fp8_that_is_wrong(monkeypatch):
    """Here it is the emulation that runs."""
    assert fp8_is_right(1, 4, 2, 70, 200, 64, True, "cpu")
    monkeypatch.setattr(fp8, "flash_attention_fp8", lambda Q, *others, **options: Q)
    assert not fp8_is_right(1, 4, 2, 70, 200, 64, True, "cpu")
