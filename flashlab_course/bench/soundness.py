"""Every kernel through flash_attention on awkward shapes, on this GPU: right on poisoned outputs, the same bits again and again.

Of a backward kernel that adds dQ up in any order, dK and dV have the same bits, and each dQ is held against float64; one that can
also add it up in order is tried both ways.
Nothing is timed. A kernel that hangs is reported and ends the process: a GPU does not give back a program that waits for ever.
"""

import os
import sys
import time
from functools import partial
from itertools import accumulate

import torch
from tqdm import tqdm

from flashlab import oracle
from flashlab.operator import pick
from flashlab.operator.attention import flash_attention, flash_attention_varlen
from flashlab_course.bench.forward import poisoned_outputs
from flashlab_course.bench.options import add_budget_and_out, add_jobs, in_processes, positive
from flashlab_course.bench.results import finish, save, start
from flashlab_course.bench.timing import OUT_OF_TIME, deadline

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
# and a window, or the lengths of packed sequences, of queries and of keys: the second holds NaN, which is to stay there
LENGTHS = [333, 50, 0, 1, 640, 200, 1000], [500, 60, 77, 300, 640, 0, 999]
WINDOWED, PACKED = (1, 4, 2, 4095, 4095), (1, 4, 2, sum(LENGTHS[0]) + 20, sum(LENGTHS[1]) + 5)
SHAPES += [
    (*WINDOWED, 64, 64, False, {"window": (512, 0)}), (*WINDOWED, 128, 128, False, {"window": (512, 0)}),
    (2, 3, 3, 2048, 2048, 128, 128, False, {"window": (256, 0)}), (*WINDOWED, 128, 128, False, {"window": (70, 3000)}),
    (1, 4, 4, 9000, 9000, 64, 64, False, {"window": (4500, 100)}), (1, 8, 1, 301, 2000, 64, 64, False, {"window": (33, 5)}),
    (1, 2, 2, 2000, 301, 128, 128, False, {"window": (90, 40)}), (1, 2, 2, 700, 700, 64, 64, False, {"window": (0, 0)}),
    *((*PACKED, d, d, causal, {"lengths": LENGTHS} | window) for d in (64, 128)
      for causal, window in ((False, {}), (True, {}), (False, {"window": (90, 20)}))),
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


def ways(kernel):
    """The values of `deterministic` that make a difference to a kernel."""
    return (False, True) if pick.ordered(kernel) else (False,)


def try_shape(kernel, shape, dtype, repeats, device="cuda", wait=wait, deterministic=False):
    """A row: the error and its bound, or why the kernel does not take the shape, or what is wrong."""
    B, H_q, H_kv, N_q, N_k, d, d_v, causal, *few = shape
    row = {"kernel": kernel.name, "shape": list(shape), "dtype": str(dtype).removeprefix("torch.")}
    row |= {"deterministic": True} if deterministic else {}
    g = torch.Generator(device).manual_seed(N_q + N_k)
    sizes = (N_q, H_q, d), (N_k, H_kv, d), (N_k, H_kv, d_v), (N_q, H_q, d_v)   # a token's heads side by side, as models have them
    Q, K, V, dO = (torch.randn(B, N, H, w, generator=g, device=device, dtype=dtype).transpose(1, 2) for N, H, w in sizes)
    options, parts = {"causal": causal}, [(slice(None), slice(None))]
    if few:
        options, parts = of_few(few[0], options, (Q, K, V, dO))
    if why_not := pick.why_not(kernel, Q, K, V, **options, **({"deterministic": True} if deterministic else {})):
        return row | {"skipped": why_not}
    backward = kernel in pick.BACKWARD_KERNELS
    call = partial(gradients if backward else outputs, kernel.name, Q, K, V, dO, options, deterministic)
    ordered = deterministic or not pick.ordered(kernel) and not pick.why_not(kernel, Q, K, V, **options, deterministic=True)
    moving = {"dQ"} if backward and not ordered else set()
    spreads = [0.0] * len(parts)                       # how far dQ moved from run to run, of each part
    with poisoned_outputs():
        first = parts_of(call(), parts)
        wait(row)
        for n in range(repeats):
            again = parts_of(call(), parts)
            wait(row)
            for part, (one, other) in enumerate(zip(again, first, strict=True)):
                if not all(torch.equal(one[name], other[name]) for name in one.keys() - moving):
                    return row | {"wrong": f"other bits at repeat {n + 1}"}
                spreads[part] = max([spreads[part], *(oracle.max_error(one[name], other[name]) for name in moving)])
    tensors = parts_of({"Q": Q, "K": K, "V": V, "dO": dO}, parts)
    masks = {"causal": causal, "window": options.get("window")}
    verdicts = [judged(backward, found, spread, one.values(), masks)
                for found, spread, one in zip(first, spreads, tensors, strict=True)]
    return row | max(verdicts, key=lambda one: ("wrong" in one, one["error"] / (one["bound"] or 1.0)))


def try_case(case, repeats):
    """try_shape of (name, shape, dtype, deterministic)."""
    name, shape, dtype, way = case
    return try_shape(pick.ALL[name], shape, dtype, repeats, deterministic=way)


def of_few(few, options, tensors):
    """The options of a call with a window or packed sequences, and where each sequence that counts has its queries and its keys."""
    options, parts = options | {name: list(few[name]) for name in few if name == "window"}, [(slice(None), slice(None))]
    if "lengths" in few:
        ends = [[0, *accumulate(lengths)] for lengths in few["lengths"]]
        options |= {f"cu_seqlens_{side}": torch.tensor(cu, dtype=torch.int32, device=tensors[0].device)
                    for side, cu in zip("qk", ends, strict=True)}
        parts = list(zip(*(list(map(slice, cu[:-1], cu[1:])) for cu in ends), strict=True))
        for T, side in zip(tensors, (0, 1, 1, 0), strict=True):
            T[:, :, parts[1][side]] = torch.nan
        del parts[1]
    return options, parts


def parts_of(tensors, parts):
    """For each part the rows of these tensors, by name."""
    return [{name: T[:, :, keys if name in ("K", "V", "dK", "dV") else queries] for name, T in tensors.items()}
            for queries, keys in parts]


def attend(name, Q, K, V, options, **more):
    """What flash_attention or flash_attention_varlen makes of (B, H, N, d), as (B, H, N, d)."""
    if "cu_seqlens_q" not in options:
        return flash_attention(Q, K, V, backend=name, **options, **more)
    O = flash_attention_varlen(*(T[0].transpose(0, 1) for T in (Q, K, V)), backend=name, **options, **more)
    return (O[0].transpose(0, 1)[None], O[1][None]) if more.get("return_lse") else O.transpose(0, 1)[None]


def outputs(name, Q, K, V, dO, options, deterministic):
    O, L = attend(name, Q, K, V, options, return_lse=True)
    return {"O": O, "L": L}


def gradients(name, Q, K, V, dO, options, deterministic):
    leaves = [T.detach().requires_grad_() for T in (Q, K, V)]
    O = attend(name, *leaves, options, deterministic=deterministic)
    return dict(zip(("dQ", "dK", "dV"), torch.autograd.grad(O, leaves, dO), strict=True))


def judged(backward, found, spread, tensors, masks):
    """The fields of a row: of gradients the worst one's error and bound. spread: how far dQ moved from run to run."""
    Q, K, V, dO = tensors
    if not backward:
        verdict = oracle.judge(**found, Q=Q, K=K, V=V, **masks)
        return {"error": verdict.error_O, "bound": verdict.bound_O} | ({} if verdict.ok else {"wrong": str(verdict)})
    verdict = oracle.judge_gradients(*found.values(), Q, K, V, dO, **masks)
    worst = max(found, key=lambda name: verdict.errors[name] / (verdict.bounds[name] or 1.0))
    row = {"of": worst, "error": verdict.errors[worst], "bound": verdict.bounds[worst], "spread": spread}
    ok = verdict.ok and spread <= verdict.bounds["dQ"]                     # NaN compares false: it fails
    return row | ({} if ok else {"wrong": f"{verdict}, dQ moved by {spread:.2e}"})


def run_asked(args, out, command):
    """What the options ask for."""
    expired, results = deadline(args.budget_seconds), start("soundness", command, rows=[])
    cases = [(name, shape, dtype, way) for name in args.implementations for way in ways(pick.ALL[name]) for shape in SHAPES
             for dtype in (torch.bfloat16, torch.float16)]
    with in_processes(args.jobs) as each:
        for row in tqdm(each(partial(try_case, repeats=args.repeats), cases), total=len(cases), unit="case"):
            if "wrong" in row:
                print("WRONG", row, flush=True)
                row["error"] = None                    # JSON knows no NaN
            results["rows"].append(row)
            save(results, out)
            if expired():
                break
    late = cases[len(results["rows"]):]
    results["rows"] += [{"kernel": name, "shape": list(shape), "skipped": OUT_OF_TIME} for name, shape, *_ in late]
    counts = {name: [sum(key in row for row in results["rows"] if row["kernel"] == name) for key in ("bound", "wrong", "skipped")]
              for name in args.implementations}
    for name, (judged, wrong, skipped) in counts.items():
        print(f"{name:<26}{judged:>4} held against float64, {wrong} wrong, {skipped} not for it")
    finish(results, out)
    if any("wrong" in row for row in results["rows"]):
        raise SystemExit("a kernel is wrong: see above")
    return results


def add_arguments(parser):
    """The options of `bench soundness`, and what they run."""
    names = [kernel.name for kernel in [*pick.KERNELS, pick.DECODE, *pick.BACKWARD_KERNELS]]
    parser.add_argument("--implementations", choices=names, nargs="+", metavar="NAME", default=names,
                        help=f"among {', '.join(names)} (all)")
    parser.add_argument("--repeats", type=positive(int, "an integer >= 1"), default=20, help="of each call, bit by bit (20)")
    add_jobs(parser)
    add_budget_and_out(parser, 900.0)
    parser.set_defaults(run=run_asked)
