"""The bytes that the GPU's counters saw move, by ncu (Nsight Compute), one launch of each implementation.

Under ncu every kernel starts with empty caches: what one kernel left in the L2 cache for the next is read from DRAM
again, and what still sits in the L2 when a kernel ends is not counted as written.
"""

import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch

from flashlab.ladder import KERNELS, RUNGS
from flashlab_course.bench.checks import check
from flashlab_course.bench.options import add_sizes
from flashlab_course.bench.problems import MASKS, SIZES, Problem, implementations, inputs, problem_grid, tiles
from flashlab_course.bench.results import ROOT
from flashlab_course.bench.timing import OUT_OF_TIME, attempt

SECONDS = 900.0
BYTES = {"dram__bytes_read.sum": "dram_read", "dram__bytes_write.sum": "dram_written", "lts__t_bytes.sum": "l2_bytes"}
SHARES = {                             # percent, averaged over the SMs while they work
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": "tensor_instructions",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor_pipe",
    "sm__inst_issued.avg.pct_of_peak_sustained_active": "issue_slots",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps",
}
METRICS = {**BYTES, **SHARES, "gpu__time_duration.sum": "ns"}
OPTIONS = ("--clock-control", "none", "--profile-from-start", "off", "--print-units", "base", "--csv")


def why_not():
    """Why there are no counters here, or ""."""
    return "" if shutil.which("ncu") else "ncu (Nsight Compute, part of the CUDA toolkit) is not on the PATH"


def launch_once(name, problem):
    """In the process under ncu: one launch, checked and warm, between cudaProfilerStart and cudaProfilerStop."""
    problem = Problem(*problem)
    tensors = inputs(problem, "cuda")
    call = partial(implementations()[name], *tensors, problem.causal)
    if reason := check(call, *tensors, causal=problem.causal)["skipped"]:
        raise SystemExit(reason)
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def counted(name, problem, run=subprocess.run):
    """The fields of a row: the kernels of one launch, and their bytes together.

    Raises: RuntimeError with ncu's or the child's last words if it fails; ValueError where bytes are missing
    """
    child = f"from flashlab_course.bench.counters import launch_once; launch_once({name!r}, {tuple(problem)!r})"
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "ncu.csv")
        command = ["ncu", *OPTIONS, "--metrics", ",".join(METRICS), "--log-file", str(log), sys.executable, "-c", child]
        env = os.environ | {"LC_ALL": "C"}                                 # ncu writes numbers as the locale does
        done = run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, env=env)
        text = log.read_text() if log.exists() else ""
    if done.returncode != 0:
        errors = "\n".join(line for line in text.splitlines() if line.startswith("==ERROR=="))
        raise RuntimeError(last_words(f"{done.stdout}\n{done.stderr}\n{errors}"))
    kernels = parse(text)
    for kernel in kernels:
        if missing := set(BYTES.values()) - set(kernel):
            raise ValueError(f"ncu: no {', '.join(sorted(missing))} for kernel {kernel['name']}")
    return {key: sum(kernel[key] for kernel in kernels) for key in BYTES.values()} | {"kernels": kernels}


def parse(text):
    """The kernels of an `ncu --csv` log in order of launch: [{"name", a number for each metric that this GPU counts}].

    Raises: ValueError if there is no table, or bytes are in another unit
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]   # ncu's own messages start with ==
    if len(lines) < 2 or not lines[0].startswith('"ID"'):
        raise ValueError(f"ncu wrote no table: {last_words(text)}")
    kernels = {}
    for cell in csv.DictReader(lines):
        kernel = kernels.setdefault(int(cell["ID"]), {"name": short_name(cell["Kernel Name"])})
        metric, unit, value = (cell[f"Metric {key}"] for key in ("Name", "Unit", "Value"))
        if metric not in METRICS or not value[:1].isdigit():
            continue
        if metric in BYTES and unit != "byte":
            raise ValueError(f"ncu: {metric} of {kernel['name']} must be in bytes, got {value!r} in unit {unit!r}")
        number = float(value.replace(",", ""))                             # 1,234,567
        kernel[METRICS[metric]] = int(number) if metric in BYTES else number
    return [kernels[number] for number in sorted(kernels)]


def short_name(kernel):
    """A C++ kernel's name without its namespaces, 160 characters at most."""
    return re.sub(r"^void |at::native::|c10::|\(anonymous namespace\)::|<unnamed>::", "", kernel)[:160]


def last_words(text):
    return " / ".join([line for line in text.splitlines() if line.strip()][-3:])[-300:] or "nothing at all"


def pieces(args, run=subprocess.run):
    """A row for every problem and implementation, of one sequence and 16 heads."""
    for problem in problem_grid(args.N, args.d, MASKS[args.causal], args.dtype):
        problem = problem._replace(B=1, H=16)
        for name in args.implementations:
            found, reason = (None, OUT_OF_TIME) if args.expired() else attempt(counted, name, problem, run)
            row = {"implementation": name} | problem._asdict() | tiles(name, problem)
            yield "rows", [row | (found or {}) | {"skipped": reason}]


def add_arguments(parser):
    names = [RUNGS[0].name, *(rung.name for rung in KERNELS)]
    add_sizes(parser, implementations(), N=SIZES[1:], d=(64,), causal="no", chosen=names)
