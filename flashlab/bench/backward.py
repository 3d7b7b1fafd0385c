"""The backward pass on a GPU: `python -m flashlab bench backward --out results/backward_<gpu>.json`.

As `bench forward`: what has not just passed its check against float64 is not timed, all take turns, and the ceilings come from
the same run. Each implementation is run as autograd runs it, naive attention included, which keeps P from its forward.
TFLOP/s count 2.5 times the forward's operations, five matrix products for two, as the field does; what a kernel computes twice
does not count twice. peak_bytes is that of forward and backward together.
"""

import argparse
import shlex
import sys
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from tqdm import tqdm

from flashlab import oracle
from flashlab.attention import flash_attention
from flashlab.bench import forward as bench

QUICK_SIZES = (1024, 4096)


class Backward(NamedTuple):
    name: str
    forward: Callable                  # forward(Q, K, V, causal) -> O, which autograd can differentiate


def implementations():
    """name -> Backward: naive attention, the Triton kernels, PyTorch's backends."""
    found = [Backward("naive_backward", lambda *args: bench.naive_over_heads(*args)[0]),
             Backward("fa2_triton_backward", lambda Q, K, V, causal: flash_attention(Q, K, V, causal=causal, backend="triton"))]
    found += [Backward(name, lambda *args, forward=run.forward: forward(*args)[0])
              for name, run in bench.implementations().items() if name.startswith("sdpa_")]
    return {implementation.name: implementation for implementation in found}


def inputs(problem, device):
    """Random Q, K, V and dO, the same for every implementation."""
    Q, K, V = bench.inputs(problem, device)
    generator = torch.Generator(device).manual_seed(1)
    return Q, K, V, torch.randn(V.shape, generator=generator, device=device, dtype=V.dtype)


def gradient(forward, Q, K, V, dO, causal):
    """A function that runs the backward pass, of a forward pass that is run here."""
    leaves = [T.detach().requires_grad_() for T in (Q, K, V)]
    O = forward(*leaves, causal)
    return lambda: torch.autograd.grad(O, leaves, dO, retain_graph=True)


def check(forward, Q, K, V, dO, causal):
    """Run forward and backward on the whole problem, judge the last heads' gradients in float64: oracle.GradientVerdict."""
    grads = gradient(forward, Q, K, V, dO, causal)()
    H, N = Q.shape[1:3]
    heads = max(1, min(H, bench.CHECKED_SCORES // 2 // N**2))               # it takes about twice the memory of a forward's check
    part = (slice(-1, None), slice(-heads, None))
    return oracle.judge_gradients(*(T[part] for T in (*grads, Q, K, V, dO)), causal=causal)


def admit(row, forward, *tensors):
    """Fill in row's errors and peak_bytes; where the function fails or is wrong, row["skipped"] says so."""
    verdict, reason = bench.attempt(check, forward, *tensors)
    if verdict is not None:
        errors = {name: error if error == error else None for name, error in verdict.errors.items()}    # JSON knows no NaN
        row |= {f"error_{name}": error for name, error in errors.items()}
        row["error"] = None if None in errors.values() else max(errors.values())
        reason = None if verdict.ok else f"refused: {verdict}"
    if reason is None:
        row["peak_bytes"], reason = bench.attempt(bench.peak_bytes, lambda: gradient(forward, *tensors)())
    row["skipped"] = reason
    return row


def measure(problem, chosen, *, device="cuda", timer=bench.time_ms, rounds=3, expired=lambda: False):
    """One row for each Backward in `chosen`. What fails, is wrong or comes too late has a reason in row["skipped"]."""
    rows = {one.name: bench._empty_row(one.name, problem) | {"pass": "backward"} for one in chosen}
    tensors, reason = bench.attempt(inputs, problem, device)
    functions = {}
    for name, forward in chosen:
        row = rows[name]
        row["skipped"] = reason or (bench.OUT_OF_TIME if expired() else None)
        if row["skipped"] is None:
            rows[name] = admit(row, forward, *tensors, problem.causal)
        if rows[name]["skipped"] is None:
            functions[name] = partial(gradient, forward, *tensors, problem.causal)
    # what a forward keeps lives for one turn only: naive attention's would starve the others
    times, failed = bench.interleaved_times(functions, lambda prepare: timer(prepare()), rounds, expired)
    for name, ms in times.items():
        if ms and name not in failed:
            rows[name].update(bench._statistics(ms, problem.flops * 5 / 2))
        else:
            rows[name]["skipped"] = failed.get(name, bench.OUT_OF_TIME)
    baseline = rows.get(bench.BASELINE, {}).get("ms")
    for row in rows.values():
        row[f"vs_{bench.BASELINE}"] = round(baseline / row["ms"], 4) if baseline and row["ms"] else None
    return list(rows.values())


def run(problems, chosen, *, out=None, command=None, device="cuda", timer=bench.time_ms, rounds=3, expired=lambda: False):
    """Measure every problem. `out`, a path, is written after each, so that a run that is cut off keeps what it had."""
    results = {"what": "backward", "complete": False, "provenance": bench.provenance(command),
               "ceilings": bench.ceilings(device, timer), "rows": []}
    progress = tqdm(problems, unit="size")
    for problem in progress:
        progress.set_description(str(problem))
        results["rows"] += measure(problem, chosen, device=device, timer=timer, rounds=rounds, expired=expired)
        bench.save(results, out)
    results["complete"] = True
    bench.save(results, out)
    return results


def arguments(argv):
    parser = argparse.ArgumentParser("python -m flashlab bench backward", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    integer = bench._positive(int, "an integer >= 1")
    parser.add_argument("--N", type=integer, nargs="+", help="sequence lengths (512 ... 16384)")
    parser.add_argument("--d", type=integer, nargs="+", help="head dimensions (64 128)")
    parser.add_argument("--causal", choices=("both", "yes", "no"), default="both", help="(both)")
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), nargs="+", default=["bfloat16"], help="(bfloat16)")
    parser.add_argument("--implementations", choices=list(implementations()), nargs="+", metavar="NAME",
                        help=f"among {', '.join(implementations())} (all)")
    parser.add_argument("--quick", action="store_true", help="two sizes, one short round")
    parser.add_argument("--budget-seconds", type=bench._positive(float, "a number of seconds > 0"), default=900.0, metavar="S",
                        help="what is not measured by then is recorded as skipped (900)")
    parser.add_argument("--out", type=bench._out, help="the JSON to write; without it nothing is written")
    return parser.parse_args(argv)


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    args = arguments(argv)
    if why := bench.why_no_gpu():
        print(bench.NO_GPU.format(why=why), file=sys.stderr)
        return 2
    masks = {"both": (False, True), "yes": (True,), "no": (False,)}[args.causal]
    sizes = args.N or (QUICK_SIZES if args.quick else bench.SIZES)
    problems = bench.forward_problems(sizes, args.d or bench.HEAD_DIMS, masks, args.dtype)
    timer, rounds = (bench.quick_ms, 1) if args.quick else (bench.time_ms, 3)
    found = implementations()
    chosen = [found[name] for name in args.implementations or found]
    results = run(problems, chosen, out=args.out, command=shlex.join(["python", "-m", "flashlab", "bench", "backward", *argv]),
                  timer=timer, rounds=rounds, expired=bench.deadline(args.budget_seconds))
    print(bench.table(results))
    print(f"wrote {args.out}" if args.out else "nothing written: name a file with --out")
    return 0 if any(row["skipped"] is None for row in results["rows"]) else 1
