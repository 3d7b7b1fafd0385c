"""The search for tile sizes, warps and stages: what fits is compiled, checked and timed. Kernels take the fastest from then on."""

import math
from functools import cache, partial
from importlib import import_module

import torch

from flashlab import ladder
from flashlab_course.bench import backward, forward, timing
from flashlab_course.bench.options import add_sizes
from flashlab_course.bench.problems import MASKS, problem_grid

SECONDS = 900.0
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
        options = {"causal": ctx.causal, "scale": Q.shape[-1] ** -0.5, "dropout_p": 0.0, "seed": None}
        return *backward(ctx.launch, Q, K, V, O, dO, L, None, **options), None, None


def tunable_kernels(name):
    """The kernels of a rung that have tiles of their own, by what their programs keep on chip: "queries" or "keys"."""
    module = import_module(ladder.rung(name).module)
    return module.KERNELS if name.endswith("backward") else {"queries": module.KERNEL}


def forward_with(name, stays, tiles):
    """(Q, K, V, causal) -> (O, L), by a rung's kernel with these tiles; of a backward rung the gradients of O are."""
    from flashlab.kernels import launch

    module, kernel = import_module(ladder.rung(name).module), tunable_kernels(name)[stays]
    if name.endswith("backward"):
        with_tiles = partial(module.launch, tiles={stays: tiles})
        return lambda Q, K, V, causal: (Backward.apply(Q, K, V, causal, with_tiles), None)
    call = partial(launch.forward, kernel, partial(module.launch, tiles=tiles), dropout_p=0.0, seed=None)
    return lambda Q, K, V, causal: call(Q, K, V, causal=causal, scale=Q.shape[-1] ** -0.5)


def search(name, problem, stays="queries", *, device="cuda", timer=timing.quick_ms, limit=None, grid=None, expired=timing.never):
    """[tiles, ms or None, why not or None] for each candidate, the fastest first; remembered for this GPU.

    stays: which of the rung's kernels, by `tunable_kernels`
    """
    from flashlab.kernels import tuning

    which = backward.BACKWARD if name.endswith("backward") else forward.FORWARD
    tensors, dtype = cache(partial(which.inputs, problem, device)), getattr(torch, problem.dtype)
    if limit is None:
        limit = torch.cuda.get_device_properties(device).shared_memory_per_block_optin
    calls = {tiles: partial(which.call, forward_with(name, stays, tiles), tensors, problem.causal)
             for tiles in tuning.candidates(problem.d, problem.d, dtype, limit, grid, stays)}
    check = lambda call: which.check(call, tensors(), problem.causal)
    rows = timing.measure(calls, check, 1, timer=partial(which.timed, timer), expired=expired)
    table = sorted(([list(tiles), row["ms"], row["skipped"]] for tiles, row in rows.items()), key=lambda row: row[1] or math.inf)
    if table and table[0][1]:
        kernel = tunable_kernels(name)[stays]
        tuning.remember(tuning.key(kernel, problem.d, problem.d, dtype, problem.causal), problem.N, table)
    return table


def pieces(args):
    """A row for each candidate of each kernel that the options ask for, the fastest of a kernel first."""
    for problem in problem_grid(args.N or (4096,), args.d, MASKS[args.causal], args.dtype):
        for name in args.implementations:
            for stays, kernel in tunable_kernels(name).items():
                size = problem._asdict() | {"implementation": name, "kernel": kernel.fn.__name__}
                table = search(name, problem, stays, expired=args.expired)
                yield "rows", [size | {"tiles": tiles, "ms": ms, "skipped": reason} for tiles, ms, reason in table]


def add_arguments(parser):
    """The options of `bench tune`."""
    add_sizes(parser, TUNABLE, N=(4096,), quick_N=(4096,), d=(64, 128), causal="both")
