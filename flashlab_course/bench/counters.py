"""The bytes that the GPU's counters saw move, by ncu (Nsight Compute), one launch of each implementation."""

from functools import partial

import torch

from flashlab.ladder import KERNELS, RUNGS
from flashlab_course.bench import ncu
from flashlab_course.bench.checks import check
from flashlab_course.bench.options import add_sizes
from flashlab_course.bench.problems import MASKS, SIZES, Problem, implementations, inputs, problem_grid, tiles
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
why_not = ncu.why_no_ncu


def launch_once(name, problem):
    """In the process under ncu: one launch, checked and warm."""
    problem = Problem(*problem)
    tensors = inputs(problem, "cuda")
    call = partial(implementations()[name], *tensors, problem.causal)
    if reason := check(call, *tensors, causal=problem.causal)["skipped"]:
        raise SystemExit(reason)
    torch.cuda.empty_cache()
    ncu.profiled(call)


def counted(name, problem, count=ncu.count):
    """The fields of a row: the kernels of one launch, and their bytes together.

    Raises: as ncu.count, and ValueError where bytes are missing
    """
    child = f"from flashlab_course.bench.counters import launch_once; launch_once({name!r}, {tuple(problem)!r})"
    kernels = count(METRICS, child)
    for kernel in kernels:
        if missing := set(BYTES.values()) - set(kernel):
            raise ValueError(f"ncu: no {', '.join(sorted(missing))} for kernel {kernel['name']}")
    return {key: sum(kernel[key] for kernel in kernels) for key in BYTES.values()} | {"kernels": kernels}


def pieces(args, count=ncu.count):
    """A row for every problem and implementation, of one sequence and 16 heads."""
    for problem in problem_grid(args.N, args.d, MASKS[args.causal], args.dtype):
        problem = problem._replace(B=1, H=16)
        for name in args.implementations:
            found, reason = (None, OUT_OF_TIME) if args.expired() else attempt(counted, name, problem, count)
            row = {"implementation": name} | problem._asdict() | tiles(name, problem)
            yield "rows", [row | (found or {}) | {"skipped": reason}]


def add_arguments(parser):
    names = [RUNGS[0].name, *(rung.name for rung in KERNELS)]
    add_sizes(parser, implementations(), N=SIZES[1:], d=(64,), causal="no", chosen=names)
