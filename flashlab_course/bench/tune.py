"""The search for tile sizes, warps and stages: what fits is compiled, checked and timed. Kernels take the fastest from then on."""

import math
from functools import partial
from importlib import import_module

import torch
from tqdm import tqdm

from flashlab import ladder
from flashlab_course.bench import backward, forward, timing
from flashlab_course.bench.options import add_budget_and_out, add_sizes
from flashlab_course.bench.problems import MASKS, problem_grid
from flashlab_course.bench.results import finish, save, start

TUNABLE = ("fa2_tuned_forward", "fa2_pipelined_forward", "fa2_tma_forward", "fa2_persistent_forward",
           "fa2_tuned_backward", "fa2_atomic_backward", "fa2_tma_backward")


class Backward(torch.autograd.Function):
    """O, whose gradients are those of a backward kernel's launch with given tiles."""

    @staticmethod
    def forward(ctx, Q, K, V, causal, launch):
        from flashlab.kernels.fa2 import fa2_triton_forward  # here and below: it needs Triton

        O, L = fa2_triton_forward(Q, K, V, causal=causal)
        ctx.save_for_backward(Q, K, V, O, L)
        ctx.causal, ctx.launch = causal, launch
        return O

    @staticmethod
    def backward(ctx, dO):
        from flashlab.kernels.launch import backward

        Q, K, V, O, L = ctx.saved_tensors
        options = {"causal": ctx.causal, "scale": Q.shape[-1] ** -0.5}
        return *backward(ctx.launch, Q, K, V, O, dO, L, None, **options), None, None


def tunable_kernels(name):
    """The kernels of a rung that have tiles of their own, by what their programs keep on chip: "queries" or "keys"."""
    module = import_module(ladder.rung(name).module)
    return module.KERNELS if name.endswith("backward") else {"queries": module.KERNEL}


def forward_with(name, stays, tiles):
    """(Q, K, V, causal) -> (O, L), by a rung's kernel with these tiles; of a backward rung the gradients of O are."""
    from flashlab.kernels import launch

    launch_of_rung, kernel = ladder.rung(name).launch, tunable_kernels(name)[stays]
    if name.endswith("backward"):
        with_tiles = partial(launch_of_rung, tiles={stays: tiles})
        return lambda Q, K, V, causal: (Backward.apply(Q, K, V, causal, with_tiles), None)
    with_tiles = partial(launch_of_rung, tiles=tiles)
    return lambda Q, K, V, causal: launch.forward(kernel, with_tiles, Q, K, V, causal=causal, scale=Q.shape[-1] ** -0.5)


def search(name, problem, stays="queries", *, device="cuda", timer=timing.quick_ms, limit=None, grid=None, expired=lambda: False):
    """[tiles, ms or None, why not or None] for each candidate, the fastest first; remembered for this GPU.

    stays: which of the rung's kernels, by `tunable_kernels`
    """
    from flashlab.kernels import tuning

    measured = backward.BACKWARD if name.endswith("backward") else forward.FORWARD
    tensors, dtype = measured.inputs(problem, device), getattr(torch, problem.dtype)
    if limit is None:
        limit = torch.cuda.get_device_properties(device).shared_memory_per_block_optin
    table, kernel = [], tunable_kernels(name)[stays]
    chosen = tuning.candidates(problem.d, problem.d, dtype, limit, grid, stays)
    for tiles in tqdm(chosen, desc=f"{name}, {problem}", unit="tile"):
        call = (forward_with(name, stays, tiles), *tensors, problem.causal)
        verdict, reason = (None, timing.OUT_OF_TIME) if expired() else timing.attempt(measured.judge, *call)
        if verdict is not None and not verdict.ok:
            reason = f"refused: {verdict}"
        ms, reason = (None, reason) if reason else timing.attempt(lambda call=call: timer(measured.prepare(*call)))
        table.append([list(tiles), round(timing.statistics(ms)["ms"], 6) if ms else None, reason])
    table.sort(key=lambda row: row[1] or math.inf)
    if table and table[0][1]:
        tuning.remember(tuning.key(kernel, problem.d, problem.d, dtype, problem.causal), problem.N, table)
    return table


def run_asked(args, out, command):
    """What the options ask for."""
    expired, results = timing.deadline(args.budget_seconds), start("tune", command, rows=[])
    for problem in problem_grid(args.N or (4096,), args.d, MASKS[args.causal], args.dtype):
        kernels = [(name, stays, kernel.fn.__name__) for name in args.implementations
                   for stays, kernel in tunable_kernels(name).items()]
        for name, stays, kernel in kernels:
            table, flops = search(name, problem, stays, expired=expired), problem.flops * (2.5 if name.endswith("backward") else 1)
            print(f"\n{name}, {kernel}, {problem}\n{'B_r':>5}{'B_c':>5}{'warps':>7}{'stages':>8}{'ms':>10}{'TFLOP/s':>9}")
            for tiles, ms, reason in table:
                rate = f"{ms:10.4f}{flops / ms / 1e9:9.1f}" if ms else f"  {reason}"
                print("{:5}{:5}{:7}{:8}".format(*tiles) + rate)
                row = problem._asdict() | {"implementation": name, "kernel": kernel, "tiles": tiles, "ms": ms}
                results["rows"].append(row | ({"skipped": reason} if reason else {}))
            save(results, out)
    return finish(results, out)


def add_arguments(parser):
    """The options of `bench tune`, and what they run."""
    add_sizes(parser, TUNABLE, N=(4096,), quick_N=(4096,), d=(64, 128), causal="both")
    add_budget_and_out(parser, 900.0)
    parser.set_defaults(run=run_asked)
