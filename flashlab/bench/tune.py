"""The search for tile sizes, warps and stages: what fits is compiled, checked and timed. Kernels take the fastest from then on."""

import math
from functools import partial
from importlib import import_module

import torch
from tqdm import tqdm

from flashlab import ladder
from flashlab.bench import timing
from flashlab.bench.forward import check
from flashlab.bench.options import add_budget_and_out, add_sizes
from flashlab.bench.problems import MASKS, inputs, problem_grid
from flashlab.bench.results import finish, save, start

TUNABLE = ("fa2_tuned_forward", "fa2_pipelined_forward", "fa2_tma_forward", "fa2_persistent_forward")


def search(name, problem, *, device="cuda", timer=timing.quick_ms, limit=None, grid=None, expired=lambda: False):
    """[tiles, ms or None, why not or None] for each candidate, the fastest first; remembered for this GPU."""
    from flashlab.kernels import launch, tuning

    module = import_module(ladder.rung(name).module)
    tensors, dtype = inputs(problem, device), getattr(torch, problem.dtype)
    if limit is None:
        limit = torch.cuda.get_device_properties(device).shared_memory_per_block_optin
    table = []
    for tiles in tqdm(tuning.candidates(problem.d, problem.d, dtype, limit, grid), desc=f"{name}, {problem}", unit="tile"):
        options = {"causal": problem.causal, "scale": problem.d**-0.5, "dropout_p": 0.0, "seed": None}
        run = lambda Q, K, V, causal: launch.forward(module.KERNEL, partial(module.launch, tiles=tiles), Q, K, V, **options)
        verdict, reason = (None, timing.OUT_OF_TIME) if expired() else timing.attempt(check, run, *tensors, problem.causal)
        if verdict is not None and not verdict.ok:
            reason = f"refused: {verdict}"
        ms, reason = (None, reason) if reason else timing.attempt(timer, partial(run, *tensors, problem.causal))
        table.append([list(tiles), round(timing.statistics(ms)["ms"], 6) if ms else None, reason])
    table.sort(key=lambda row: row[1] or math.inf)
    if table and table[0][1]:
        tuning.remember(tuning.key(module.KERNEL, problem.d, problem.d, dtype, problem.causal), problem.N, table)
    return table


def run_asked(args, out, command):
    """What the options ask for."""
    expired, results = timing.deadline(args.budget_seconds), start("tune", command, rows=[])
    for problem in problem_grid(args.N or (4096,), args.d, MASKS[args.causal], args.dtype):
        for name in args.implementations:
            table = search(name, problem, expired=expired)
            print(f"\n{name}, {problem}\n{'B_r':>5}{'B_c':>5}{'warps':>7}{'stages':>8}{'ms':>10}{'TFLOP/s':>9}")
            for tiles, ms, reason in table:
                rate = f"{ms:10.4f}{problem.flops / ms / 1e9:9.1f}" if ms else f"  {reason}"
                print("{:5}{:5}{:7}{:8}".format(*tiles) + rate)
                row = problem._asdict() | {"implementation": name, "tiles": tiles, "ms": ms}
                results["rows"].append(row | ({"skipped": reason} if reason else {}))
            save(results, out)
    return finish(results, out)


def add_arguments(parser):
    """The options of `bench tune`, and what they run."""
    add_sizes(parser, TUNABLE, N=(4096,), quick_N=(4096,), d=(64, 128), causal="both")
    add_budget_and_out(parser, 900.0)
    parser.set_defaults(run=run_asked)
