"""What the hardware's counters saw of a few launches: ncu (Nsight Compute) over a Python process, and its log.

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
from pathlib import Path

import torch

from flashlab_course.bench.results import ROOT

OPTIONS = ("--clock-control", "none", "--profile-from-start", "off", "--print-units", "base", "--csv")


def why_no_ncu():
    """Why there are no counters here, or ""."""
    return "" if shutil.which("ncu") else "ncu (Nsight Compute, part of the CUDA toolkit) is not on the PATH"


def profiled(launch):
    """In the process under ncu: one launch between cudaProfilerStart and cudaProfilerStop, all that ncu looks at."""
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    launch()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def count(metrics, child, *, timeout=120, run=subprocess.run):
    """The kernels that the Python code `child` launches while profiled, with their counters: see `parse`.

    Raises: RuntimeError with ncu's or the child's last words if it fails; ValueError as parse
    """
    if reason := why_no_ncu():
        raise RuntimeError(reason)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "ncu.csv")
        command = ["ncu", *OPTIONS, "--metrics", ",".join(metrics), "--log-file", str(log), sys.executable, "-c", child]
        env = os.environ | {"LC_ALL": "C"}                                 # ncu writes numbers as the locale does
        done = run(command, capture_output=True, text=True, cwd=ROOT, timeout=timeout, env=env)
        text = log.read_text() if log.exists() else ""
    if done.returncode != 0:
        errors = "\n".join(line for line in text.splitlines() if line.startswith("==ERROR=="))
        raise RuntimeError(last_words(f"{done.stdout}\n{done.stderr}\n{errors}"))
    return parse(text, metrics)


def parse(text, metrics):
    """The kernels of an `ncu --csv` log in order of launch: [{"name", a number for each metric that this GPU counts}].

    metrics: {ncu's name: ours}
    Raises:  ValueError if there is no table, or bytes are in another unit
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]   # ncu's own messages start with ==
    if len(lines) < 2 or not lines[0].startswith('"ID"'):
        raise ValueError(f"ncu wrote no table: {last_words(text)}")
    kernels = {}
    for cell in csv.DictReader(lines):
        kernel = kernels.setdefault(int(cell["ID"]), {"name": short_name(cell["Kernel Name"])})
        metric, unit, value = (cell[f"Metric {key}"] for key in ("Name", "Unit", "Value"))
        if metric not in metrics or not value[:1].isdigit():
            continue
        if "bytes" in metric and unit != "byte":
            raise ValueError(f"ncu: {metric} of {kernel['name']} must be in bytes, got {value!r} in unit {unit!r}")
        number = float(value.replace(",", ""))                             # 1,234,567
        kernel[metrics[metric]] = int(number) if "bytes" in metric else number
    return [kernels[number] for number in sorted(kernels)]


def short_name(kernel):
    """A C++ kernel's name without what all of them share, 160 characters at most."""
    return re.sub(r"^void |at::native::|c10::|\(anonymous namespace\)::|<unnamed>::", "", kernel)[:160]


def last_words(text):
    return " / ".join([line for line in text.splitlines() if line.strip()][-3:])[-300:] or "nothing at all"
