"""The search for tile sizes, warps and stages: what fits is compiled, checked and timed, and the fastest kept."""

import math
from functools import partial
from importlib import import_module

import torch

from flashlab import ladder
from flashlab_course.bench import problems, timing
from flashlab_course.bench.checks import check, check_gradients
from flashlab_course.bench.options import add_integers, add_names

SECONDS = 900.0
TUNABLE = ("fa2_tuned_forward", "fa2_pipelined_forward", "fa2_tma_forward", "fa2_tuned_backward",
           "fa2_atomic_backward", "fa2_tma_backward")


def tunable_kernels(name):
    """{what a program keeps on chip, "queries" or "keys": kernel}, of a rung's kernels with tiles of their own."""
    module = import_module(ladder.rung(name).module)
    return module.KERNELS if name.endswith("backward") else {"queries": module.KERNEL}


def with_tiles(name, stays, problem, device):
    """(call(tiles) of a rung's kernel, its check), on random inputs."""
    from flashlab.kernels import launch  # here and below: they need Triton
    from flashlab.kernels.fa2 import fa2_triton_forward

    rung, kernel = ladder.rung(name), tunable_kernels(name)[stays]
    Q, K, V = problems.inputs(problem, device)
    options = {"causal": problem.causal, "scale": problem.d**-0.5}
    if not name.endswith("backward"):
        call = lambda tiles: launch.forward(kernel, partial(rung.launch, tiles=tiles), Q, K, V, **options)
        return call, lambda call: check(call, Q, K, V, causal=problem.causal)
    dO = torch.randn_like(Q)
    O, L = fa2_triton_forward(Q, K, V, causal=problem.causal)

    def call(tiles):
        return launch.backward(partial(rung.launch, tiles={stays: tiles}), Q, K, V, O, dO, L, None, **options)

    return call, lambda call: check_gradients(call, Q, K, V, dO, causal=problem.causal)


def search(name, problem, stays="queries", *, device="cuda", limit=None, grid=None, timer=timing.quick_ms, **timed):
    """[tiles, ms or None, why not or None] for each candidate, the fastest first; remembered for this GPU.

    stays: which of the rung's kernels, by `tunable_kernels`
    """
    from flashlab.kernels import tuning

    dtype, d = getattr(torch, problem.dtype), problem.d
    if limit is None:
        limit = torch.cuda.get_device_properties(device).shared_memory_per_block_optin
    call, check = with_tiles(name, stays, problem, device)
    calls = {tiles: partial(call, tiles) for tiles in tuning.candidates(d, d, dtype, limit, grid, stays)}
    rows = timing.measure(calls, check, 1, timer=timer, **timed)
    table = [[list(tiles), row["ms"], row["skipped"]] for tiles, row in rows.items()]
    table.sort(key=lambda row: row[1] or math.inf)
    if table and table[0][1]:
        key = tuning.key(tunable_kernels(name)[stays], d, d, dtype, problem.causal)
        tuning.remember(key, problem.N, table)
    return table


def pieces(args):
    """A row for each candidate of each kernel that the options ask for, the fastest of a kernel first."""
    for problem in problems.problem_grid(args.N, args.d):
        for name in args.implementations:
            for stays, kernel in tunable_kernels(name).items():
                size = problem._asdict() | {"implementation": name, "kernel": kernel.fn.__name__}
                table = search(name, problem, stays, expired=args.expired)
                yield "rows", [size | {"tiles": tiles, "ms": ms, "skipped": why} for tiles, ms, why in table]


def add_arguments(parser):
    add_integers(parser, "--N", (4096,), "sequence lengths")
    add_integers(parser, "--d", problems.HEAD_DIMS, "head dimensions")
    add_names(parser, "--implementations", TUNABLE)
