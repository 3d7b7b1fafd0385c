"""Every kernel through flash_attention on awkward shapes, on this GPU: right on poisoned outputs, the same bits again and again.

Of a backward kernel that adds dQ up by atomic operations, dK and dV have the same bits, and each dQ is held against float64.
Nothing is timed. A kernel that hangs is reported and ends the process: a GPU does not give back a program that waits for ever.
"""

import os
import sys
import time
from functools import partial

import torch
from tqdm import tqdm

from flashlab import ladder, oracle
from flashlab.attention import flash_attention
from flashlab.bench.forward import poisoned_outputs
from flashlab.bench.options import add_budget_and_out, positive
from flashlab.bench.results import finish, save, start
from flashlab.bench.timing import OUT_OF_TIME, deadline

PATIENCE = 60                          # seconds until a kernel counts as hanging

# B, H_q, H_kv, N_q, N_k, d, d_v, causal: whole tiles, ragged ends, grouped heads, bottom-right, rows without keys, odd widths
SHAPES = [
    (1, 2, 2, 128, 128, 128, 128, False), (2, 3, 3, 1024, 1024, 64, 64, True), (1, 96, 96, 640, 640, 128, 128, True),
    (1, 4, 4, 4095, 4095, 128, 128, False), (1, 4, 4, 4095, 4095, 128, 128, True), (1, 4, 4, 4095, 4095, 64, 64, True),
    (2, 16, 2, 1000, 1000, 128, 128, True), (2, 16, 2, 1000, 1000, 64, 64, False), (1, 8, 1, 301, 2000, 64, 64, True),
    (1, 8, 8, 333, 690, 128, 128, True), (4, 8, 8, 1, 5000, 128, 128, True), (1, 2, 2, 500, 7, 64, 64, False),
    (1, 2, 2, 500, 77, 128, 128, True), (1, 2, 2, 200, 300, 80, 64, True), (1, 2, 1, 97, 113, 59, 24, True),
    (1, 1, 1, 200, 200, 256, 256, False), (300, 7, 7, 64, 64, 64, 64, True),
]


def wait(what):
    """Until the GPU is done, or for PATIENCE seconds."""
    done, began = torch.cuda.Event(), time.monotonic()
    done.record()
    while not done.query():
        if time.monotonic() - began > PATIENCE:
            print(f"HANG: {what}", file=sys.stderr, flush=True)
            os._exit(3)
        time.sleep(0.001)


def try_shape(kernel, shape, dtype, repeats, device="cuda", wait=wait):
    """A row: the error and its bound, or why the kernel does not take the shape, or what is wrong."""
    B, H_q, H_kv, N_q, N_k, d, d_v, causal = shape
    row = {"kernel": kernel.name, "shape": list(shape), "dtype": str(dtype).removeprefix("torch.")}
    g = torch.Generator(device).manual_seed(N_q + N_k)
    sizes = (N_q, H_q, d), (N_k, H_kv, d), (N_k, H_kv, d_v), (N_q, H_q, d_v)   # a token's heads side by side, as models have them
    Q, K, V, dO = (torch.randn(B, N, H, w, generator=g, device=device, dtype=dtype).transpose(1, 2) for N, H, w in sizes)
    if why_not := kernel.why_not(Q, K, V, causal=causal):
        return row | {"skipped": why_not}
    backward = kernel in ladder.BACKWARD_KERNELS
    call = partial(gradients if backward else outputs, kernel.name, Q, K, V, dO, causal)
    moving = {"dQ"} if backward and kernel.why_not(Q, K, V, causal=causal, deterministic=True) else set()
    spread = 0.0
    with poisoned_outputs():
        first = call()
        wait(row)
        for n in range(repeats):
            again = call()
            wait(row)
            if not all(torch.equal(again[name], first[name]) for name in first.keys() - moving):
                return row | {"wrong": f"other bits at repeat {n + 1}"}
            spread = max([spread, *(oracle.max_error(again[name], first[name]) for name in moving)])
    return row | judged(backward, first, spread, (Q, K, V, dO), causal)


def outputs(name, Q, K, V, dO, causal):
    O, L = flash_attention(Q, K, V, causal=causal, return_lse=True, backend=name)
    return {"O": O, "L": L}


def gradients(name, Q, K, V, dO, causal):
    leaves = [T.detach().requires_grad_() for T in (Q, K, V)]
    O = flash_attention(*leaves, causal=causal, backend=name, deterministic=False)
    return dict(zip(("dQ", "dK", "dV"), torch.autograd.grad(O, leaves, dO), strict=True))


def judged(backward, found, spread, tensors, causal):
    """The fields of a row: of gradients the worst one's error and bound. spread: how far dQ moved from run to run."""
    if not backward:
        verdict = oracle.judge(**found, **dict(zip("QKV", tensors, strict=False)), causal=causal)
        return {"error": verdict.error_O, "bound": verdict.bound_O} | ({} if verdict.ok else {"wrong": str(verdict)})
    verdict = oracle.judge_gradients(*found.values(), *tensors, causal=causal)
    worst = max(found, key=lambda name: verdict.errors[name] / (verdict.bounds[name] or 1.0))
    row = {"of": worst, "error": verdict.errors[worst], "bound": verdict.bounds[worst], "spread": spread}
    ok = verdict.ok and spread <= verdict.bounds["dQ"]                     # NaN compares false: it fails
    return row | ({} if ok else {"wrong": f"{verdict}, dQ moved by {spread:.2e}"})


def run_asked(args, out, command):
    """What the options ask for."""
    expired, results = deadline(args.budget_seconds), start("soundness", command, rows=[])
    kernels = [ladder.rung(name) for name in args.implementations]
    cases = [(kernel, shape, dtype) for kernel in kernels for shape in SHAPES for dtype in (torch.bfloat16, torch.float16)]
    for kernel, shape, dtype in tqdm(cases, unit="case"):
        late = {"kernel": kernel.name, "shape": list(shape), "skipped": OUT_OF_TIME}
        row = late if expired() else try_shape(kernel, shape, dtype, args.repeats)
        if "wrong" in row:
            print("WRONG", row, flush=True)
            row["error"] = None                        # JSON knows no NaN
        results["rows"].append(row)
        save(results, out)
    counts = {kernel.name: [sum(key in row for row in results["rows"] if row["kernel"] == kernel.name)
                            for key in ("bound", "wrong", "skipped")] for kernel in kernels}
    for name, (judged, wrong, skipped) in counts.items():
        print(f"{name:<26}{judged:>4} held against float64, {wrong} wrong, {skipped} not for it")
    finish(results, out)
    if any("wrong" in row for row in results["rows"]):
        raise SystemExit("a kernel is wrong: see above")
    return results


def add_arguments(parser):
    """The options of `bench soundness`, and what they run."""
    names = [kernel.name for kernel in [*ladder.KERNELS, ladder.DECODE, *ladder.BACKWARD_KERNELS]]
    parser.add_argument("--implementations", choices=names, nargs="+", metavar="NAME", default=names,
                        help=f"among {', '.join(names)} (all)")
    parser.add_argument("--repeats", type=positive(int, "an integer >= 1"), default=20, help="of each call, bit by bit (20)")
    add_budget_and_out(parser, 900.0)
    parser.set_defaults(run=run_asked)
