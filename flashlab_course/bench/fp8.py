"""FP8 attention: its error on Gaussian inputs, and its time beside the bfloat16 Hopper kernel and cuDNN.

Timed are the kernel alone, on quantised numbers; the quantising; and flash_attention_fp8, which does both.
"""

from functools import partial

import torch

from flashlab import oracle
from flashlab.operator import fp8
from flashlab.operator.attention import flash_attention
from flashlab_course.bench import timing
from flashlab_course.bench.checks import poisoned_outputs
from flashlab_course.bench.options import add_integers
from flashlab_course.bench.peers import BACKENDS, run_sdpa
from flashlab_course.bench.problems import inputs, problem_grid

SECONDS = 300.0
BASELINE, HOPPER = "sdpa_cudnn", "fa2_hopper_forward"
ALONE, QUANTISING, WHOLE = "fp8 kernel", "fp8 quantising", "flash_attention_fp8"
LARGEST_ERROR = 1.5 * 2 * fp8.EPS      # relative to O, of Gaussian inputs: four roundings, and the tensor cores' own
CHECKED_SCORES = 2**26


def prepared(Q, K, V, causal):
    """{name: a call}: the quantising launches, and the kernel on what they have written, which gives O."""
    from flashlab.kernels import plans  # here: they need Triton
    from flashlab.operator import fp8_kernel

    H = fp8.hadamard(Q.shape[-1], device=Q.device, dtype=Q.dtype)
    O = torch.empty_like(Q)
    *before, attend = fp8_kernel.launches(Q, K, V, O, H, causal=causal, scale=Q.shape[-1] ** -0.5)
    plans.launch(before)

    def kernel():
        if torch.are_deterministic_algorithms_enabled():                   # under poisoned_outputs
            O.fill_(torch.nan)
        plans.launch([attend])
        return O

    return {ALONE: kernel, QUANTISING: partial(plans.launch, before)}


def functions(Q, K, V, causal):
    """{name: a call}; all but the quantising give O."""
    found = {BASELINE: lambda: run_sdpa(BACKENDS[BASELINE], Q, K, V, causal)[0]}
    found[HOPPER] = partial(flash_attention, Q, K, V, causal=causal, backend=HOPPER)
    return found | prepared(Q, K, V, causal) | {WHOLE: partial(fp8.flash_attention_fp8, Q, K, V, causal=causal)}


def check(call, Q, K, V, causal):
    """The first fields of a row. error: the root mean square of O's error over that of O, at the last head's end."""
    with poisoned_outputs():
        O = call()
    keys = (slice(-1, None), slice(-1, None))
    part = (*keys, slice(-max(1, CHECKED_SCORES // K.shape[2]), None))
    truth = oracle.attention(Q[part], K[keys], V[keys], causal=causal)[0]
    error = ((O[part].double() - truth).square().mean() / truth.square().mean()).sqrt().item()
    if error < LARGEST_ERROR:                          # NaN is not
        return {"error": error, "skipped": None}
    refused = f"refused: its error is {error:.4f} of O, {LARGEST_ERROR:.4f} at most was expected"
    return {"error": None, "skipped": refused}


def measure(problem, calls, tensors, **timed):
    """A row for each of calls {name: call}. The quantising is checked with the kernel that takes its numbers."""
    quantising = calls.get(QUANTISING)
    right = lambda call: {"skipped": None} if call is quantising else check(call, *tensors, problem.causal)
    rows = timing.measure(calls, right, flops=problem.flops, **timed)
    rows.get(QUANTISING, {}).pop("tflops", None)
    return [problem._asdict() | {"implementation": name} | row for name, row in rows.items()]


def why_not():
    """Why this GPU cannot run it, or ""."""
    capability = torch.cuda.get_device_capability()
    return "" if capability[0] == 9 else f"the kernels are for Hopper, compute capability 9.0, it has {capability}"


def pieces(args):
    def rows(problem):
        tensors = inputs(problem, "cuda")
        return measure(problem, functions(*tensors, problem.causal), tensors, expired=args.expired)

    return timing.sweep(problem_grid(args.N, args.d), rows)


def add_arguments(parser):
    add_integers(parser, "--N", (4096, 16384), "sequence lengths")
    words = "head dimensions (64 128)"
    parser.add_argument("--d", type=int, choices=fp8.HEAD_DIMS, nargs="+", default=[64, 128], help=words)
