"""What this machine can do for the course, and what to fix: `python -m flashlab doctor`."""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import textwrap
import time
from dataclasses import asdict, dataclass, field

import numpy
import torch

from flashlab.triton_mode import import_triton, interpreted, why_no_kernels
from flashlab_course import command
from flashlab_course.chapters import CHAPTERS

MINIMUM = {"python": "3.11", "torch": "2.11", "triton": "3.6", "numpy": "2.0"}    # as in pyproject.toml
MiB = 2**20
PIP = f"{command.python()} -m pip install"
ELSEWHERE = "use Linux (on Windows: WSL2), or a Colab notebook; every chapter without Triton works here"


@dataclass
class Finding:
    """One line of the report. `level` is "ok", "note" (the course works around it) or "broken"."""

    topic: str
    text: str
    level: str = "ok"
    fix: str = ""
    data: dict = field(default_factory=dict)


def version_tuple(text):
    """(3, 6) of "3.6.0+cu130": enough to compare releases."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def check_version(topic, version, text="", upgrade=None):
    """A Finding that is broken if `version` is below the course's minimum."""
    text = text or version
    if version_tuple(version) >= version_tuple(MINIMUM[topic]):
        return Finding(topic, text, data={"version": version})
    fix = upgrade or f'{PIP} "{topic}>={MINIMUM[topic]}"'
    return Finding(topic, f"{text}: the course needs {MINIMUM[topic]} or newer", "broken", fix, {"version": version})


def check_python():
    return check_version("python", platform.python_version(), f"{platform.python_version()} on {platform.system()}",
                         upgrade="rm -rf .venv && make lab PYTHON=python3.12")


def check_torch():
    return check_version("torch", torch.__version__, f"{torch.__version__}, {torch.get_num_threads()} CPU threads")


def check_triton():
    triton = import_triton()
    if triton is None and platform.system() == "Linux":
        return Finding("triton", "not installed: its chapters cannot run", "broken", f'{PIP} "triton>=3.6"')
    if triton is None:
        return Finding("triton", f"not available: it has no wheels for {platform.system()}", "note", ELSEWHERE)
    gpu, version = torch.cuda.is_available(), triton.__version__
    if interpreted() and gpu:
        return Finding("triton", f"{version}, interpreted on the CPU although there is a GPU", "note",
                       "unset TRITON_INTERPRET and restart Python")
    if why := why_no_kernels():
        reason, fix = why.split(": ", 1)
        return Finding("triton", f"{version}, but {reason}", "broken", fix)
    how = "compiling for the GPU" if gpu else "interpreted on the CPU"
    return check_version("triton", version, f"{version}, {how}")


def check_numpy():
    triton, version = import_triton(), numpy.__version__
    old_triton = triton and interpreted() and version_tuple(triton.__version__) < (3, 7)
    if old_triton and version_tuple(version) >= (2, 4):
        text = f"{version}: Triton {triton.__version__}'s interpreter fails with it on range(0, n, B)"
        return Finding("numpy", text, "broken", f'{PIP} "numpy<2.4"', {"version": version})
    return check_version("numpy", version)


def driver_version():
    """The NVIDIA driver's version, or "" if nvidia-smi is missing or sees no GPU."""
    return (ask_driver("driver_version") or [""])[0]


def ask_driver(*fields):
    """The first GPU's fields as nvidia-smi prints them; [] if it is missing or sees no GPU."""
    if not shutil.which("nvidia-smi"):
        return []
    query = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    answer = subprocess.run(query, capture_output=True, text=True)
    if answer.returncode:
        return []
    return [piece.strip() for piece in answer.stdout.split("\n")[0].split(",")]


def check_gpu():
    driver = driver_version()
    if not torch.cuda.is_available():
        return no_gpu(driver)
    gpu = gpu_properties()
    text = (f"{gpu['name']}, compute capability {gpu['capability']}, {gpu['SMs']} SMs, {gpu['memory_GiB']} GiB, "
            f"L2 {gpu['L2_MiB']} MiB, shared memory {gpu['shared_per_SM_KiB']} KiB per SM and "
            f"{gpu['shared_per_block_KiB']} KiB per block, CUDA {torch.version.cuda}, driver {driver or 'unknown'}")
    data = gpu | {"cuda": torch.version.cuda, "driver": driver}
    if torch.cuda.get_device_capability() < (8, 0):
        return Finding("gpu", f"{text}: older than Triton supports (8.0)", "note",
                       "use an A100, L4, RTX 30 or newer for the Triton chapters", data)
    return Finding("gpu", text, data=data)


def no_gpu(driver):
    """Why torch sees no GPU: none is there, none is to be seen, or this torch cannot use the one the driver sees."""
    if driver and os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1"):
        fix = "update the NVIDIA driver, then reboot" if torch.version.cuda else f"{PIP} --force-reinstall torch"
        return Finding("gpu", f"the driver ({driver}) sees one, this torch does not", "broken", fix)
    tip = ("unset CUDA_VISIBLE_DEVICES to use the GPU" if driver else
           "nothing to fix; README says how to use a remote GPU")
    return Finding("gpu", "none seen; rungs run in PyTorch on the CPU, kernels in the interpreter, plots show "
                          "recorded GPU results", "note", tip)


def gpu_properties():
    """What CUDA says about GPU 0, in the units people use."""
    p = torch.cuda.get_device_properties(0)
    return {
        "name": p.name,
        "capability": f"{p.major}.{p.minor}",
        "SMs": p.multi_processor_count,
        "memory_GiB": round(p.total_memory / 2**30, 1),
        "L2_MiB": round(p.L2_cache_size / MiB, 1),
        "shared_per_SM_KiB": p.shared_memory_per_multiprocessor // 1024,
        "shared_per_block_KiB": p.shared_memory_per_block_optin // 1024,
    }


def seconds_per_call(function, device, calls):
    """Best of five: the shortest run is the one least disturbed."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None      # launches return at once
    times = []
    function()                                              # the first call pays for set-up
    for _ in range(5):
        wait()
        start = time.perf_counter()
        for _ in range(calls):
            function()
        wait()
        times.append((time.perf_counter() - start) / calls)
    return min(times)


def copy_bandwidth(device):
    """GB/s of a tensor copy, bytes read plus bytes written."""
    n_bytes = (1024 if device == "cuda" else 256) * MiB     # far larger than any cache
    source = torch.ones(n_bytes // 4, device=device)
    target = torch.empty_like(source)
    seconds = seconds_per_call(lambda: target.copy_(source), device, calls=10 if device == "cuda" else 1)
    rate = 2 * n_bytes / seconds / 1e9
    return Finding("copy", f"{rate:.3g} GB/s, measured here ({n_bytes // MiB} MiB float32 on {device}, read + written)",
                   data={"GB_per_s": rate, "bytes": n_bytes})


def matmul_rate(device, dtype=torch.float32):
    """TFLOP/s of a square matmul; 2·N³ floating-point operations."""
    N = 8192 if device == "cuda" else 1024
    A = torch.randn(N, N, device=device, dtype=dtype)
    seconds = seconds_per_call(lambda: A @ A, device, calls=5)
    name, rate = str(dtype).removeprefix("torch."), 2 * N**3 / seconds / 1e12
    return Finding("matmul", f"{rate:.3g} TFLOP/s, measured here ({N}³ {name} on {device})",
                   data={"TFLOP_per_s": rate, "N": N, "dtype": name})


def check_speed():
    """This machine's copy and matmul rates: the two ceilings everything in the course runs into."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        findings = [copy_bandwidth(device), matmul_rate(device)]
        return findings + ([matmul_rate(device, torch.bfloat16)] if device == "cuda" else [])
    except RuntimeError as error:                           # a GPU this torch has no code for, or one that is full
        return [Finding("speed", f"a copy and a matmul failed on {device}: {error}", "broken",
                        "free the GPU, or install the torch build that supports it")]


def check_backend():
    from flashlab.operator.attention import pick_backend

    name, reason = pick_backend("cuda" if torch.cuda.is_available() else "cpu")
    return Finding("backend", f'flash_attention(backend="auto") uses {name}: {reason}',
                   data={"backend": name, "reason": reason})


def check_kernel():
    """Which kernels of the ladder run here for plain inputs, forward and backward, and why no later one."""
    from flashlab.operator import pick

    Q = torch.empty(1, 4, 1024, 128, dtype=torch.bfloat16, device="cuda" if torch.cuda.is_available() else "cpu")
    (kernel, reasons), (back, backward_reasons) = (pick.pick(Q, Q, Q, backward=backward) for backward in (False, True))
    reasons = reasons | backward_reasons
    why = "".join(f"; not {name}: {reason}" for name, reason in reasons.items())
    how = "at bfloat16, N 1024, d 128" if Q.is_cuda else "interpreted"
    return Finding("kernel", f"{kernel.name} and {back.name} run {how}{why}",
                   data={"kernel": kernel.name, "backward": back.name, "why_not": reasons})


def check_chapters():
    """Which notebooks run on this machine in full, and what is different in the others."""
    gpu, triton = torch.cuda.is_available(), import_triton() is not None
    blocked = [c.number for c in CHAPTERS if c.needs_triton and not triton]
    lesser = [c for c in CHAPTERS if c.gpu_adds and not gpu and c.number not in blocked]
    full = [c.number for c in CHAPTERS if c not in lesser and c.number not in blocked]
    text = "".join([f"{' '.join(full)} run in full", *(f"; {c.number} runs, a GPU adds {c.gpu_adds}" for c in lesser)])
    data = {"full": full, "without_gpu": [c.number for c in lesser], "blocked": blocked}
    if blocked:
        return Finding("chapters", f"{text}; {' '.join(blocked)} need Triton", "note", ELSEWHERE, data)
    return Finding("chapters", text, data=data)


def report():
    """Look at this machine and measure it (about a second): a list of Findings."""
    checks = [check_python, check_torch, check_triton, check_numpy, check_gpu]
    kernel = [check_kernel()] if import_triton() else []
    return [*(check() for check in checks), *check_speed(), check_backend(), *kernel, check_chapters()]


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
    parser = argparse.ArgumentParser("python -m flashlab doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="machine-readable")
    args = parser.parse_args(argv)
    findings = report()
    print(json.dumps([asdict(f) for f in findings], indent=1) if args.json else as_text(findings))
    return 1 if any(f.level == "broken" for f in findings) else 0
