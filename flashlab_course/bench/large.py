"""Tensors of more than 2³¹ elements, where offsets need 64 bits: every kernel on many heads, and on one long one with a window.

Held against float64 are the first and the last head of the one, the first and the last rows of the other. Nothing is timed.
"""

from functools import partial
from itertools import product
from typing import NamedTuple

import torch
from tqdm import tqdm

from flashlab.operator import pick
from flashlab_course.bench.forward import poisoned_outputs
from flashlab_course.bench.options import add_budget_and_out
from flashlab_course.bench.results import finish, save, start
from flashlab_course.bench.soundness import gradients, judged, outputs
from flashlab_course.bench.timing import OUT_OF_TIME, attempt, deadline

ROWS = 1000                            # of each end of a long sequence


class Case(NamedTuple):
    B: int
    H: int
    N: int
    d: int
    left: int | None                   # of its window (left, 0); None: causal, and heads are judged, not rows

    @property
    def masks(self):
        return {"causal": True} if self.left is None else {"window": (self.left, 0)}

    def parts(self):
        """What is judged: for each part the batches, heads, queries and keys."""
        everything = slice(None)
        if self.left is None:
            return [(one, one, everything, everything) for one in (slice(0, 1), slice(-1, None))]
        return [(everything, everything, slice(0, ROWS), slice(0, ROWS)),
                (everything, everything, slice(-ROWS, None), slice(-ROWS - self.left, None))]


CASES = [Case(1040, 16, 1024, 128, None), Case(1, 1, 2**24 + 1000, 128, 256)]


def try_case(name, case, device="cuda"):
    """A row of this kernel: the worst part's error and its bound, or why the kernel does not take the case, or what is wrong."""
    kernel = pick.ALL[name]
    backward = kernel in pick.BACKWARD_KERNELS
    row = {"kernel": name, **case._asdict(), "elements": case.B * case.H * case.N * case.d}
    g = torch.Generator(device).manual_seed(case.N)
    sizes = case.B, case.H, case.N, case.d
    Q, K, V, dO = (torch.randn(sizes, generator=g, device=device, dtype=torch.bfloat16) for _ in range(4))
    if why_not := pick.why_not(kernel, Q, K, V, **case.masks):
        return row | {"skipped": why_not}
    if case.left is not None:                          # keys before a part then owe it their whole gradient
        dO[:, :, ROWS:-ROWS] = 0
    with poisoned_outputs():
        found = (gradients if backward else outputs)(name, Q, K, V, dO, case.masks, False)
    verdicts = []
    for batches, heads, queries, keys in case.parts():
        of_keys = {"K", "V", "dK", "dV"}
        at = {n: T[batches, heads, keys if n in of_keys else queries]
              for n, T in ({"Q": Q, "K": K, "V": V, "dO": dO} | found).items()}
        verdicts.append(judged(backward, {n: at[n] for n in found}, 0.0, [at[n] for n in ("Q", "K", "V", "dO")], case.masks))
    return row | max(verdicts, key=lambda one: ("wrong" in one, one["error"] / (one["bound"] or 1.0)))


def run(names, cases=CASES, *, out=None, command=None, device="cuda", expired=lambda: False):
    """Try every kernel on every case. `out` is written after each."""
    results = start("large", command, rows=[])
    for name, case in tqdm(list(product(names, cases)), unit="call"):
        row, reason = (None, OUT_OF_TIME) if expired() else attempt(partial(try_case, device=device), name, case)
        results["rows"].append(row or {"kernel": name, **case._asdict(), "skipped": reason})
        if "wrong" in results["rows"][-1]:
            print("WRONG", results["rows"][-1], flush=True)
            results["rows"][-1]["error"] = None        # JSON knows no NaN
        save(results, out)
    return finish(results, out)


def run_asked(args, out, command):
    """What the options ask for."""
    results = run(args.implementations, out=out, command=command, expired=deadline(args.budget_seconds))
    for row in results["rows"]:
        words = row.get("skipped") or row.get("wrong") or f"{row['error']:.2e} off, {row['bound']:.2e} allowed"
        print(f"{row['kernel']:<26}{row['B']:>5} x {row['H']:<3} heads, N {row['N']:<10}{words}")
    if any("wrong" in row for row in results["rows"]):
        raise SystemExit("a kernel is wrong: see above")
    return results


def add_arguments(parser):
    """The options of `bench large`, and what they run."""
    names = [kernel.name for kernel in [*pick.KERNELS, *pick.BACKWARD_KERNELS]]
    parser.add_argument("--implementations", choices=names, nargs="+", metavar="NAME", default=names,
                        help=f"among {', '.join(names)} (all)")
    add_budget_and_out(parser, 300.0)
    parser.set_defaults(run=run_asked)
