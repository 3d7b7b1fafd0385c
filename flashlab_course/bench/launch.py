"""What a call costs the host: microseconds of Python and launching for a problem so small that the GPU waits, B = H = 1.

Each function is called many times without waiting for the GPU, and the clock is Python's. `compiled` is under torch.compile.
"""

import time
from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from flashlab import ladder
from flashlab.operator.attention import flash_attention
from flashlab_course.bench.options import add_budget_and_out, positive
from flashlab_course.bench.results import finish, start
from flashlab_course.bench.timing import attempt

CALLS, ROUNDS = 300, 15


def host_us(functions, calls=CALLS, rounds=ROUNDS, wait=torch.cuda.synchronize):
    """{name: microseconds a call takes the host}, {name: why there are none}: the least of several rounds, taken by turns.

    Others' work on the machine only adds, and a processor that has been idle runs slowly at first.
    """
    least, failed = {}, {}
    for turn in range(rounds + 1):                     # the first compiles, and is not counted
        for name in functions.keys() - failed.keys():
            _, reason = attempt(functions[name])
            wait()
            began = time.perf_counter()
            for _ in range(0 if reason else calls):
                functions[name]()
            us = 1e6 * (time.perf_counter() - began) / calls
            if reason:
                failed[name] = reason
            elif turn:
                least[name] = min(us, least.get(name, us))
    wait()
    return least, failed


def functions(N, d, device="cuda"):
    """{name: a call without arguments}: forward passes, and backward passes of outputs that stand, eager and compiled."""
    Q, K, V = (torch.randn(1, 1, N, d, device=device, dtype=torch.bfloat16) for _ in range(3))
    leaves = [T.clone().requires_grad_() for T in (Q, K, V)]
    dO = torch.randn_like(Q)
    named = {kernel.name: partial(flash_attention, backend=kernel.name) for kernel in ladder.KERNELS}
    both = {"flash_attention": flash_attention, "sdpa": scaled_dot_product_attention}
    found = {name: partial(call, Q, K, V) for name, call in (both | named).items()}
    found |= {f"{name}, compiled": partial(torch.compile(call), Q, K, V) for name, call in both.items()}
    for name, call in both.items():
        O = call(*leaves)
        found[f"{name}, backward"] = partial(torch.autograd.grad, O, leaves, dO, retain_graph=True)
    return found


def run_asked(args, out, command):
    """What the options ask for."""
    results = start("launch", command, rows=[])
    calls, reason = attempt(functions, args.N, args.d)
    if reason:
        raise SystemExit(reason)
    least, failed = host_us(calls)
    for name in calls:
        row = {"call": name, "N": args.N, "d": args.d, "us": round(least[name], 2) if name in least else None}
        results["rows"].append(row | ({"skipped": failed[name]} if name in failed else {}))
    times = {row["call"]: row["us"] for row in results["rows"]}
    for name, us in times.items():
        kind = next((end for end in (", compiled", ", backward") if name.endswith(end)), "")
        theirs = times.get("sdpa" + kind)
        print(f"{name:<28}" + (f"{us:8.1f} us  {us / theirs:5.2f} x SDPA" if us and theirs else "       -"))
    return finish(results, out)


def add_arguments(parser):
    """The options of `bench launch`, and what they run."""
    integer = positive(int, "an integer >= 1")
    parser.add_argument("--N", type=integer, default=128, help="(128)")
    parser.add_argument("--d", type=integer, default=64, help="(64)")
    add_budget_and_out(parser, 120.0)
    parser.set_defaults(run=run_asked)
