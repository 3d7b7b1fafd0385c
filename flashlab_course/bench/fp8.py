"""FP8 attention: its error on Gaussian inputs, and its time beside the bfloat16 Hopper kernel and cuDNN, by turns.

The kernel alone, on numbers that are quantised already; the quantising; both as flash_attention_fp8 does them. With --sweep
the kernel alone in its variants: keys of a block, consumers, slots of a ring, unrolled or not, one sum or two.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from statistics import median

import torch
from tqdm import tqdm

from flashlab import oracle
from flashlab.operator import fp8
from flashlab.operator.attention import flash_attention
from flashlab_course.bench import timing
from flashlab_course.bench.forward import poisoned_outputs
from flashlab_course.bench.options import add_budget_and_out, positive
from flashlab_course.bench.peers import peers
from flashlab_course.bench.problems import MASKS, inputs, problem_grid
from flashlab_course.bench.results import finish, save, start

SIZES, QUICK_SIZES = (4096, 16384), (16384,)
BASELINE, HOPPER = "sdpa_cudnn", "fa2_hopper_forward"
ALONE, QUANTISING, WHOLE = "fp8 kernel", "fp8 quantising", "flash_attention_fp8"
LARGEST_ERROR = 1.5 * 2 * fp8.EPS     # of Gaussian inputs, relative to O: four roundings, and what the tensor cores drop
CHECKED_SCORES = 2**26
PATIENCE = 150                         # seconds until a variant that is tried counts as hanging

# B, H_q, H_kv, N_q, N_k, d, causal: whole blocks, ragged ends, shared key heads, bottom-right, few rows, few keys
AWKWARD = [(2, 3, 3, 1024, 1024, 128, False), (2, 3, 3, 1024, 1024, 64, True), (1, 8, 2, 4095, 4095, 128, True),
           (1, 4, 4, 301, 700, 128, True), (1, 4, 1, 333, 690, 64, False), (2, 4, 2, 1, 200, 128, True),
           (1, 2, 2, 200, 7, 64, False), (1, 2, 2, 1000, 3001, 256, True), (1, 200, 200, 640, 640, 128, True)]


def prepared(Q, K, V, causal, choice=None):
    """{name: a call without arguments}: the quantising launches, and the kernel on what they have written, which gives O."""
    from flashlab.kernels import plans  # here: they need Triton
    from flashlab.operator import fp8_kernel as fa2_fp8  # here: they need Triton

    H = fp8.hadamard(Q.shape[-1], device=Q.device, dtype=Q.dtype)
    O, scale = torch.empty_like(Q), Q.shape[-1] ** -0.5
    *before, attend = fa2_fp8.launches(Q, K, V, O, H, causal=causal, scale=scale, choice=choice)
    plans.launch(before)

    def kernel():
        if torch.are_deterministic_algorithms_enabled():                           # under poisoned_outputs
            O.fill_(torch.nan)
        plans.launch([attend])
        return O

    return {ALONE: kernel, QUANTISING: partial(plans.launch, before)}


def functions(Q, K, V, causal):
    """{name: a call without arguments}, those that are checked give O."""
    found = {BASELINE: lambda: peers()[BASELINE](Q, K, V, causal)[0]}
    found[HOPPER] = partial(flash_attention, Q, K, V, causal=causal, backend=HOPPER)
    return found | prepared(Q, K, V, causal) | {WHOLE: partial(fp8.flash_attention_fp8, Q, K, V, causal=causal)}


def relative_error(call, Q, K, V, causal):
    """The root mean square of O's error over that of O, at the end of the last head, against float64."""
    with poisoned_outputs():
        O = call()
    keys = (slice(-1, None), slice(-1, None))
    part = (*keys, slice(-max(1, CHECKED_SCORES // K.shape[2]), None))
    truth = oracle.attention(Q[part], K[keys], V[keys], causal=causal)[0]
    return ((O[part].double() - truth).square().mean() / truth.square().mean()).sqrt().item()


def measure(problem, calls, tensors, rounds, expired, timer=timing.time_ms):
    """A row for each of calls {name: call}, those that are right by turns. vs_x: x's time over this one's."""
    rows, turns = {}, {name: [] for name in calls}
    for name, call in calls.items():
        error, reason = (None, None) if name == QUANTISING else timing.attempt(relative_error, call, *tensors, problem.causal)
        if error is not None and not error < LARGEST_ERROR:                        # NaN, too
            reason = f"refused: its error is {error:.4f} of O, {LARGEST_ERROR:.4f} at most was expected"
        rows[name] = problem._asdict() | {"implementation": name, "error": error if error == error else None, "skipped": reason}

    def one_turn(name):
        ms = timer(calls[name])
        turns[name].append(median(ms))
        return ms

    right = {name: name for name, row in rows.items() if row["skipped"] is None}
    times, failed = timing.interleaved_times(right, one_turn, rounds, expired)
    for name, ms in times.items():
        if ms and name not in failed:
            rows[name] |= timing.statistics(ms, flops=0 if name == QUANTISING else problem.flops) | {"runs": len(ms)}
            for other in (BASELINE, HOPPER):
                ratios = [theirs / ours for theirs, ours in zip(turns.get(other, ()), turns[name], strict=False)]
                rows[name][f"vs_{other}"] = round(median(ratios), 4) if ratios else None
        else:
            rows[name]["skipped"] = failed.get(name, timing.OUT_OF_TIME)
    return [{name: value for name, value in row.items() if name != "skipped" or value} for row in rows.values()]


# ---- variants of the kernel


SHAPES = {64: ((128, 3, 160), (128, 2, 240), (64, 3, 160)), 128: ((128, 2, 240), (64, 2, 240), (64, 3, 160)),
          256: ((128, 2, 240), (64, 2, 240))}    # keys, consumers, registers


def choices(d):
    """{name: how_many's answer} to try."""
    found = {}
    for (keys, consumers, registers), stages, unrolled, two_sums in product(SHAPES[d], (2, 3, 4), (False, True), (False, True)):
        if stages != 3 and (keys, consumers) != SHAPES[d][0][:2] or d == 256 and (two_sums or stages > (2 if keys == 128 else 3)):
            continue                                   # slots matter little: tried with the first shape; the rest does not fit
        name = f"{keys} keys, {consumers} consumers, {stages} slots{', unrolled' * unrolled}{', two sums' * two_sums}"
        found[name] = {"keys": keys, "consumers": consumers, "stages": stages, "unrolled": unrolled, "two_sums": two_sums,
                       "registers": registers}
    return found


def try_choice(d, causal, choice):
    """Compile a variant, in a process of its own, and run it once on little: None, or why not."""
    tensors = [torch.randn(1, 2, 1024, d, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    error, reason = timing.attempt(lambda: relative_error(prepared(*tensors, causal, choice)[ALONE], *tensors, causal))
    return reason or (None if error < LARGEST_ERROR else f"refused: its error is {error:.4f} of O")


def tried(kinds):
    """{(d, causal): {name: choice}} of those that compile, end and are right. Many at a time: compiling takes long."""
    pool = ProcessPoolExecutor(max(1, min(16, (os.cpu_count() or 2) - 1)), mp_context=get_context("spawn"))
    jobs = [(kind, name, choice) for kind in kinds for name, choice in choices(kind[0]).items()]
    pending, good = [pool.submit(try_choice, *kind, choice) for kind, _, choice in jobs], {kind: {} for kind in kinds}
    for (kind, name, choice), future in zip(jobs, tqdm(pending, desc="compiling", unit="variant"), strict=True):
        wrong, failed = timing.attempt(future.result, PATIENCE)
        if wrong or failed:
            print(f"d {kind[0]}{' causal' * kind[1]}, {name}: {wrong or failed}")
        else:
            good[kind][name] = choice
    pool.shutdown(wait=False, cancel_futures=True)
    return good


def soundness(expired, device="cuda"):
    """A row for each awkward call: what `tried_call` finds, or what it raised."""
    for case in AWKWARD:
        row = dict(zip(("B", "H_q", "H_kv", "N_q", "N_k", "d", "causal"), case, strict=True))
        found, raised = timing.attempt(tried_call, *case, 1 if expired() else 3, device)
        row |= {"ok": False, "raised": raised} if raised else found
        print(row if row["ok"] else f"WRONG {row}", flush=True)
        yield row


def tried_call(B, H_q, H_kv, N_q, N_k, d, causal, times, device):
    """Whether the kernels do the steps of `fp8.emulated`, and give the same bits so many times."""
    generator = torch.Generator(device).manual_seed(N_q)
    Q, K, V = (torch.randn(B, N, H, d, generator=generator, device=device).bfloat16().transpose(1, 2)
               for N, H in ((N_q, H_q), (N_k, H_kv), (N_k, H_kv)))
    V[:, :, -N_k // 3:] *= 8                           # blocks with other scales
    with poisoned_outputs():
        first, *more = (fp8.flash_attention_fp8(Q, K, V, causal=causal) for _ in range(times))
    quantized = (fp8.quantize(T, block, rotate=T is not V) for T, block in ((Q, fp8.ROWS), (K, fp8.KEYS), (V, fp8.KEYS)))
    same = fp8.emulated(*quantized, causal, d**-0.5).double()
    truth = oracle.attention(Q, K, V, causal=causal)[0]
    size = truth.square().mean().sqrt()
    from_emulated, error = (((first.double() - x).square().mean().sqrt() / size).item() for x in (same, truth))
    same_bits = all(torch.equal(first, again) for again in more)
    ok = from_emulated < fp8.EPS / 2 and error < LARGEST_ERROR and same_bits       # NaN compares false: it fails
    found = {"from_emulated": from_emulated, "error": error, "same_bits": same_bits, "ok": ok}
    return {name: value if value == value else None for name, value in found.items()}         # JSON knows no NaN


def run_asked(args, out, command):
    """What the options ask for."""
    expired = timing.deadline(args.budget_seconds)
    if args.soundness:
        rows = list(soundness(expired))
        right = sum(row["ok"] for row in rows)
        print(f"{right} of {len(rows)} are right")
        results = finish(start("fp8", command, rows=rows), out)
        if right < len(rows):
            raise SystemExit("FP8 attention is wrong: see above")
        return results
    results = start("fp8", command, ceilings=timing.ceilings(), rows=[])
    sizes = args.N or (QUICK_SIZES if args.quick or args.sweep else SIZES)
    timer, rounds = (timing.quick_ms, 2) if args.quick or args.sweep else (timing.time_ms, 5)
    variants = tried(list(product(args.d, MASKS[args.causal]))) if args.sweep else {}
    for problem in problem_grid(sizes, args.d, MASKS[args.causal]):
        tensors = inputs(problem, "cuda")
        calls = functions(*tensors, problem.causal)
        for name, choice in variants.get((problem.d, problem.causal), {}).items():
            calls[name] = prepared(*tensors, problem.causal, choice)[ALONE]
        rows = measure(problem, calls, tensors, rounds, expired, timer)
        results["rows"] += rows
        print(table(problem, rows), flush=True)
        save(results, out)
        del calls, tensors
    return finish(results, out)


def table(problem, rows):
    """What a terminal shows of one problem."""
    lines = [f"\n{problem}{'ms':>40}{'TFLOP/s':>9}{'error':>8}{'/cuDNN':>8}{'/Hopper':>9}"]
    for row in rows:
        if "ms" not in row:
            lines.append(f"{row['implementation']:<48}  {row['skipped']}")
            continue
        lines.append(f"{row['implementation']:<48}{row['ms']:9.4f}{row.get('tflops', 0):9.1f}{row['error'] or 0:8.4f}"
                     f"{row[f'vs_{BASELINE}'] or 0:8.3f}{row[f'vs_{HOPPER}'] or 0:9.3f}")
    return "\n".join(lines)


def why_not():
    """Why this GPU cannot run it, or ""."""
    capability = torch.cuda.get_device_capability()
    return "" if capability[0] == 9 else f"the kernels are for Hopper, compute capability 9.0, it has {capability}"


def add_arguments(parser):
    """The options of `bench fp8`, and what they run."""
    parser.add_argument("--N", type=positive(int, "an integer >= 1"), nargs="+", help="sequence lengths (4096 16384)")
    parser.add_argument("--d", type=int, choices=fp8.HEAD_DIMS, nargs="+", default=[64, 128], help="head dimensions (64 128)")
    parser.add_argument("--causal", choices=list(MASKS), default="both", help="(both)")
    parser.add_argument("--quick", action="store_true", help="N 16384 only, in two short rounds")
    parser.add_argument("--sweep", action="store_true", help="the kernel's variants beside the rest, as --quick")
    parser.add_argument("--soundness", action="store_true", help="time nothing: awkward calls, and the same steps in PyTorch")
    add_budget_and_out(parser, 300.0)
    parser.set_defaults(run=run_asked, why_not=why_not)
