"""compute-sanitizer over awkward calls of kernels: does one touch memory that is not its own, or race in shared memory?

racecheck takes a barrier it does not know for none. So it looks at `controls`, too: kernels of a few lines that hand over one
number through a barrier, and have nothing to race. What it reports of those says nothing about a kernel that uses the same barrier.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

import torch
from tqdm import tqdm

from flashlab.operator import pick
from flashlab_course.bench.ncu import last_words
from flashlab_course.bench.options import add_budget_and_out, add_jobs
from flashlab_course.bench.results import ROOT, finish, save, start
from flashlab_course.bench.soundness import gradients, of_few, outputs, ways
from flashlab_course.bench.timing import OUT_OF_TIME, deadline

TOOLS = ("memcheck", "racecheck")
KERNELS = ("fa2_hopper_forward", "fa2_hopper_backward")
CONTROLS = ("control_dispatch", "control_mbarrier", "control_named_barrier")

# as soundness.SHAPES, small: under the tool a kernel takes hundreds of times as long
SHAPES = [
    *((*sizes, d, d, causal) for sizes in ((1, 2, 2, 256, 256), (1, 2, 1, 97, 213), (1, 2, 2, 300, 300)) for d in (64, 128)
      for causal in (False, True)),
    *((1, 2, 1, 97, 213, d, d, False, {"window": (70, 10)}) for d in (64, 128)),
    *((1, 2, 1, 501, 501, d, d, True, {"lengths": ([70, 0, 230, 201], [70, 0, 230, 201])}) for d in (64, 128)),
]


def why_no_sanitizer():
    """Why there is no compute-sanitizer here, or ""."""
    return "" if shutil.which("compute-sanitizer") else "compute-sanitizer (part of the CUDA toolkit) is not on the PATH"


def calls(name):
    """In the process under the tool: each of SHAPES that the kernel takes, once in each of its ways. Prints how many."""
    if name in CONTROLS:
        from flashlab_course.bench import controls

        print("result", controls.run(name))
        return
    kernel, made = pick.ALL[name], 0
    for shape, deterministic in product(SHAPES, ways(kernel)):
        B, H_q, H_kv, N_q, N_k, d, d_v, causal, *few = shape
        sizes = (N_q, H_q, d), (N_k, H_kv, d), (N_k, H_kv, d_v), (N_q, H_q, d_v)
        tensors = [torch.randn(B, N, H, w, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for N, H, w in sizes]
        options = {"causal": causal}
        if few:
            options, _ = of_few(few[0], options, tensors)
        if not pick.why_not(kernel, *tensors[:3], **options, **({"deterministic": True} if deterministic else {})):
            (gradients if kernel in pick.BACKWARD_KERNELS else outputs)(name, *tensors, options, deterministic)
            torch.cuda.synchronize()
            made += 1
    print("calls", made)


def examine(case, timeout, run=subprocess.run):
    """A row: what a tool reports of a kernel. case: (kernel, tool)

    Raises: RuntimeError with the last words of the tool or of the process under it, where there is no report
    """
    name, tool = case
    child = f"from flashlab_course.bench.sanitizer import calls; calls({name!r})"
    command = ["compute-sanitizer", "--tool", tool, "--print-limit", "1000", sys.executable, "-c", child]
    began = time.monotonic()
    done = run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | {"LC_ALL": "C"}, timeout=timeout)
    return {"kernel": name, "tool": tool, "seconds": round(time.monotonic() - began, 1)} | parse(f"{done.stdout}\n{done.stderr}")


def parse(text):
    """{"calls" or "result", "errors", "places": {what: how often}} of what a tool printed.

    Raises: RuntimeError where the process under it did not come to its end, or the tool to its summary
    """
    made = re.search(r"^(calls|result) (\d+)$", text, re.MULTILINE)
    summary = re.search(r"SUMMARY: (\d+) (?:error|hazard)s?", text)
    if not made or not summary:
        raise RuntimeError(last_words(text))
    places, reading = Counter(), ""
    for line in text.splitlines():
        if race := re.search(r"Race reported between (\w+) access at .* in (\S+)", line):
            reading = " ".join(race.groups())
        if other := re.search(r"and (\w+) access at .* in (\S+) \[(\d+) hazards\]", line):
            places[f"{reading}, {other[1]} {other[2]}"] += int(other[3])
        if error := re.search(r"=+ +(Invalid .*|.*uninitialized.*)", line):
            places[error[1].strip()] += 1
    return {made[1]: int(made[2]), "errors": int(summary[1]), "places": dict(places)}


def run_asked(args, out, command):
    """What the options ask for."""
    expired, results = deadline(args.budget_seconds), start("sanitizer", command, rows=[])
    cases = list(product([*args.implementations, *([] if args.no_controls else CONTROLS)], args.tools))
    with ThreadPoolExecutor(args.jobs) as threads:
        rows = threads.map(partial(attempted, expired=expired, timeout=args.budget_seconds), cases)
        for row in tqdm(rows, total=len(cases), unit="case"):
            results["rows"].append(row)
            save(results, out)
    for row in results["rows"]:
        print(f"{row['kernel']:<24}{row['tool']:<11}", row.get("skipped") or f"{row['errors']} errors, {row['seconds']} s")
        for place, n in row.get("places", {}).items():
            print(f"    {n:>5} × {place}")
    return finish(results, out)


def attempted(case, expired, timeout):
    """examine, or a row that says why there is nothing."""
    try:
        return {"kernel": case[0], "tool": case[1], "skipped": OUT_OF_TIME} if expired() else examine(case, timeout)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return {"kernel": case[0], "tool": case[1], "skipped": f"{type(error).__name__}: {error}"[:300]}


def add_arguments(parser):
    """The options of `bench sanitizer`, and what they run."""
    names = [kernel.name for kernel in [*pick.KERNELS, *pick.BACKWARD_KERNELS]]
    parser.add_argument("--implementations", choices=names, nargs="+", metavar="NAME", default=list(KERNELS),
                        help=f"among {', '.join(names)} ({' '.join(KERNELS)})")
    parser.add_argument("--tools", choices=TOOLS, nargs="+", default=list(TOOLS), help=f"({' '.join(TOOLS)})")
    parser.add_argument("--no-controls", action="store_true", help="leave out the kernels that have nothing to race")
    add_jobs(parser)
    add_budget_and_out(parser, 600.0)
    parser.set_defaults(run=run_asked, why_not=why_no_sanitizer)
