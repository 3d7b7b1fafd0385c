"""The bytes that the GPU's counters saw move, by ncu (Nsight Compute), one launch of each implementation."""

import shlex
from functools import partial
from itertools import product

import torch
from tqdm import tqdm

from flashlab.ladder import RUNGS
from flashlab_course.bench import ncu
from flashlab_course.bench.forward import check
from flashlab_course.bench.options import add_budget_and_out, add_sizes
from flashlab_course.bench.problems import MASKS, QUICK_SIZES, SIZES, Problem, implementations, inputs, tiles
from flashlab_course.bench.results import finish, save, start
from flashlab_course.bench.rows import CounterRow, as_json, table
from flashlab_course.bench.timing import OUT_OF_TIME, attempt, deadline

BYTES = {"dram__bytes_read.sum": "dram_read", "dram__bytes_write.sum": "dram_written", "lts__t_bytes.sum": "l2_bytes"}
SHARES = {                             # percent, averaged over the SMs while they work
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": "tensor_instructions",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor_pipe",
    "sm__inst_issued.avg.pct_of_peak_sustained_active": "issue_slots",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps",
}
METRICS = {**BYTES, **SHARES, "gpu__time_duration.sum": "ns"}


def launch_once(name, problem):
    """One launch, checked and warm: what ncu is to look at."""
    problem, forward = Problem(*problem), implementations()[name].forward
    tensors = inputs(problem, "cuda")
    verdict = check(forward, *tensors, problem.causal)
    if not verdict.ok:
        raise SystemExit(f"refused: {verdict}")
    torch.cuda.empty_cache()
    ncu.profiled(partial(forward, *tensors, problem.causal))


def child(name, problem):
    """The Python code that ncu runs."""
    return f"from flashlab_course.bench.counters import launch_once; launch_once({name!r}, {tuple(problem)!r})"


def count_bytes(name, problem, **options):
    """The kernels of one launch of implementation `name`, the bytes of each, and of METRICS what else this GPU counts.

    Raises: as ncu.count, and ValueError where bytes are missing
    """
    kernels = ncu.count(METRICS, child(name, problem), partial=True, **options)
    for kernel in kernels:
        if missing := set(BYTES.values()) - set(kernel):
            raise ValueError(f"ncu: no {', '.join(sorted(missing))} for kernel {kernel['name']}")
    return kernels


def run(problems, names, *, out=None, command=None, count=count_bytes, expired=lambda: False):
    """Read the counters for every problem and implementation. `out` is written after each."""
    results = start("counters", command, rows=[])
    results["provenance"]["ncu"] = shlex.join(ncu.command(METRICS, "", "LOG")[:-3])
    for problem, name in tqdm([(problem, name) for problem in problems for name in names], unit="launch"):
        row = CounterRow(name, **problem._asdict())
        kernels, row.skipped = (None, OUT_OF_TIME) if expired() else attempt(count, name, problem)
        if kernels:
            for key, value in tiles(name, problem).items():
                setattr(row, key, value)
            for key in BYTES.values():
                setattr(row, key, sum(kernel[key] for kernel in kernels))
            row.kernels = kernels
        results["rows"].append(as_json(row))
        save(results, out)
    return finish(results, out)


def run_asked(args, out, command):
    """What the options ask for."""
    sizes = args.N or (QUICK_SIZES if args.quick else SIZES[1:])
    problems = [Problem(N, d, causal, dtype) for dtype, d, causal, N in product(args.dtype, args.d, MASKS[args.causal], sizes)]
    results = run(problems, args.implementations, out=out, command=command, expired=deadline(args.budget_seconds))
    print(table(results))
    return results


def add_arguments(parser):
    """The options of `bench counters`, and what they run."""
    names = [RUNGS[0].name, *(rung.name for rung in RUNGS if rung.heads)]
    add_sizes(parser, implementations(), N=SIZES[1:], quick_N=QUICK_SIZES, d=(64,), causal="no", chosen=names)
    add_budget_and_out(parser, 900.0)
    parser.set_defaults(run=run_asked, why_not=ncu.why_no_ncu)
