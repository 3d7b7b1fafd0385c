"""What this machine can do for the course, and what to fix: `python -m flashlab doctor`."""

import argparse
import os
import platform
import shutil
import subprocess
import textwrap
from typing import NamedTuple

import numpy
import torch

from flashlab.operator import pick
from flashlab.operator.attention import pick_backend
from flashlab.triton_mode import (
    OLDEST,
    compiles_here,
    import_triton,
    interpreted,
    kernel_device,
    release,
    why_no_kernels,
)
from flashlab_course import command
from flashlab_course.chapters import CHAPTERS

MINIMUM = {"python": "3.11", "torch": "2.11", "triton": "3.6", "numpy": "2.0"}    # as in pyproject.toml
MiB = 2**20
PIP = f"{command.python()} -m pip install"
ELSEWHERE = "use Linux (on Windows: WSL2), or a Colab notebook; every chapter without Triton works here"


class Finding(NamedTuple):
    """One line of the report. `level` is "ok", "note" (the course works around it) or "broken"."""

    topic: str
    text: str
    level: str = "ok"
    fix: str = ""


def check_version(topic, version, remark=""):
    """A Finding that is broken if `version` is below the course's minimum."""
    if release(version) >= release(MINIMUM[topic]):
        return Finding(topic, version + remark)
    new_python = "rm -rf .venv && make lab PYTHON=python3.12"
    fix = new_python if topic == "python" else f'{PIP} "{topic}>={MINIMUM[topic]}"'
    return Finding(topic, f"{version}{remark}: the course needs {MINIMUM[topic]} or newer", "broken", fix)


def check_triton():
    triton = import_triton()
    if triton is None and platform.system() == "Linux":
        return Finding("triton", "not installed: its chapters cannot run", "broken", f'{PIP} "triton>=3.6"')
    if triton is None:
        return Finding("triton", f"not available: it has no wheels for {platform.system()}", "note", ELSEWHERE)
    gpu, version = compiles_here(), triton.__version__
    if interpreted() and gpu:
        return Finding("triton", f"{version}, interpreted on the CPU although there is a GPU", "note",
                       "unset TRITON_INTERPRET and restart Python")
    if why := why_no_kernels():
        reason, fix = why.split(": ", 1)
        return Finding("triton", f"{version}, but {reason}", "broken", fix)
    return check_version("triton", version, ", compiling for the GPU" if gpu else ", interpreted on the CPU")


def driver_version():
    """The NVIDIA driver's version, or "" if nvidia-smi is missing or sees no GPU."""
    if not shutil.which("nvidia-smi"):
        return ""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True)
    return "" if answer.returncode else answer.stdout.split("\n")[0].strip()


def check_gpu():
    driver = driver_version()
    if torch.cuda.is_available():
        return describe_gpu(torch.cuda.get_device_properties(0), driver or "unknown")
    if driver and os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1"):
        fix = "update the NVIDIA driver, then reboot" if torch.version.cuda else f"{PIP} --force-reinstall torch"
        return Finding("gpu", f"the driver ({driver}) sees one, this torch does not", "broken", fix)
    tip = "unset CUDA_VISIBLE_DEVICES to use the GPU" if driver else (
        "nothing to fix; docs/install.md says how to use a remote GPU")
    return Finding("gpu", "none seen; rungs run in PyTorch on the CPU, kernels in the interpreter, plots show "
                          "recorded GPU results", "note", tip)


def describe_gpu(gpu, driver):
    text = (f"{gpu.name}, compute capability {gpu.major}.{gpu.minor}, {gpu.multi_processor_count} SMs, "
            f"{gpu.total_memory / 2**30:.1f} GiB, L2 {gpu.L2_cache_size / MiB:.1f} MiB, "
            f"shared memory {gpu.shared_memory_per_multiprocessor // 1024} KiB per SM and "
            f"{gpu.shared_memory_per_block_optin // 1024} KiB per block, CUDA {torch.version.cuda}, driver {driver}")
    if (gpu.major, gpu.minor) < OLDEST:
        return Finding("gpu", f"{text}: too old for Triton, which interprets the kernels on the CPU instead", "note",
                       "use an A100, L4, RTX 30 or newer to run them on a GPU")
    return Finding("gpu", text)


def seconds_per_call(function, calls):
    """Best of five: the shortest run is the one least disturbed."""
    from torch.utils.benchmark import Timer  # here: it imports setuptools

    timer = Timer("function()", globals={"function": function}, num_threads=torch.get_num_threads())
    return min(timer.timeit(calls).mean for _ in range(5))


def copy_bandwidth(device):
    """GB/s of a tensor copy, bytes read plus bytes written. The tensor is far larger than any cache."""
    source = torch.ones((256 if device == "cuda" else 64) * MiB, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / seconds_per_call(lambda: target.copy_(source), calls=10 if device == "cuda" else 1) / 1e9


def matmul_rate(device, dtype=torch.float32):
    """TFLOP/s of a square matmul; 2·N³ floating-point operations."""
    N = 8192 if device == "cuda" else 1024
    A = torch.randn(N, N, device=device, dtype=dtype)
    return 2 * N**3 / seconds_per_call(lambda: A @ A, calls=5) / 1e12


def check_speed(device):
    """This machine's copy and matmul rates: the two ceilings everything in the course runs into."""
    try:
        found = [Finding("copy", f"{copy_bandwidth(device):.3g} GB/s, measured here (on {device}, read + written)")]
        for dtype in [torch.float32, torch.bfloat16][:2 if device == "cuda" else 1]:
            name = str(dtype).removeprefix("torch.")
            rate = f"{matmul_rate(device, dtype):.3g} TFLOP/s"
            found.append(Finding("matmul", f"{rate}, measured here (in {name} on {device})"))
        return found
    except RuntimeError as error:                           # a GPU this torch has no code for, or one that is full
        return [Finding("speed", f"a copy and a matmul failed on {device}: {error}", "broken",
                        "free the GPU, or install the torch build that supports it")]


def check_kernels(device):
    """What flash_attention runs here for plain inputs, and why none of the later kernels."""
    backend, reason = pick_backend(device)
    found = [Finding("backend", f'flash_attention(backend="auto") uses {backend}: {reason}')]
    if import_triton() is None:
        return found
    Q = torch.empty(1, 4, 1024, 128, dtype=torch.bfloat16, device=kernel_device())
    (forward, reasons), (backward, more) = (pick.pick(Q, Q, Q, backward=backward) for backward in (False, True))
    why = "".join(f"; not {name}: {reason}" for name, reason in (reasons | more).items())
    how = "at bfloat16, N 1024, d 128" if Q.is_cuda else "interpreted"
    return [*found, Finding("kernel", f"{forward.name} and {backward.name} run {how}{why}")]


def check_chapters():
    """Which notebooks run on this machine in full, and which show more with a GPU."""
    blocked = [c.number for c in CHAPTERS if c.needs_triton and import_triton() is None]
    lesser = [c.number for c in CHAPTERS if c.gpu_adds and not compiles_here() and c.number not in blocked]
    full = [c.number for c in CHAPTERS if c.number not in blocked + lesser]
    text = f"{' '.join(full)} run in full"
    if lesser:
        text += f"; {' '.join(lesser)} run, and show more with a GPU"
    if blocked:
        return Finding("chapters", f"{text}; {' '.join(blocked)} need Triton", "note", ELSEWHERE)
    return Finding("chapters", text)


def report():
    """Look at this machine and measure it (about a second): a list of Findings."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return [check_version("python", platform.python_version(), f" on {platform.system()}"),
            check_version("torch", torch.__version__, f", {torch.get_num_threads()} CPU threads"),
            check_triton(), check_version("numpy", numpy.__version__), check_gpu(), *check_speed(device),
            *check_kernels(device), check_chapters()]


def as_text(findings):
    """The report for a terminal or a notebook cell."""
    lines = []
    for f in findings:
        text = f"{f.topic:<9} {'' if f.level == 'ok' else f.level + ': '}{f.text}"
        lines += textwrap.wrap(text, 100, subsequent_indent=" " * 10)
        if f.fix:                                           # not wrapped: it is there to be copied
            lines.append(f"{'':<9} {'fix' if f.level == 'broken' else 'tip'}: {f.fix}")
    return "\n".join(lines)


def main(argv=None):
    argparse.ArgumentParser("python -m flashlab doctor", description=__doc__).parse_args(argv)
    findings = report()
    print(as_text(findings))
    return int(any(f.level == "broken" for f in findings))
