"""Run time, TFLOP/s, peak memory and error of naive attention, the Triton rungs and PyTorch's own SDPA kernels."""

import contextlib
import math
import warnings
from functools import partial

import torch

from flashlab import oracle
from flashlab_course.bench import passes
from flashlab_course.bench.problems import QUICK_SIZES, implementations, inputs, problem_grid
from flashlab_course.bench.results import load_results, where, why_no_gpu
from flashlab_course.bench.timing import deadline, quick_ms


def check(forward, Q, K, V, causal):
    """Run `forward` on the whole problem, judge the end of its result in float64. Returns oracle.Verdict.

    The end: of the last batch the last heads, and of those the last query rows, CHECKED_SCORES scores at most (fewer on a
    small GPU). That is every row of at least one head up to N = 16384.
    """
    with poisoned_outputs():
        O, L = forward(Q, K, V, causal)
    H, N = Q.shape[1:3]
    scores = passes.CHECKED_SCORES
    if Q.is_cuda:
        scores = min(scores, torch.cuda.get_device_properties(Q.device).total_memory // 128)
    heads, heads_kv = passes.judged_part(H, N, H // K.shape[1], scores)
    rows = max(1, min(N, scores // (N * heads)))
    keys = (slice(-1, None), slice(-heads_kv, None))
    part = (slice(-1, None), slice(-heads, None), slice(-rows, None))
    return oracle.judge(O[part], None if L is None else L[part], Q[part], K[keys], V[keys], causal=causal)


@contextlib.contextmanager
def poisoned_outputs():
    """PyTorch fills what it allocates with NaN: what a kernel forgets to write is seen, not what lay there from the call before."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                                    # on operations that are not deterministic
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def errors(verdict):
    """JSON knows no NaN and no infinity."""
    found = {"error": verdict.error_O, "rms_error": verdict.rms_O}
    return {name: error if math.isfinite(error) else None for name, error in found.items()}


FORWARD = passes.Pass("forward", implementations, inputs, check, errors, prepare=partial, flops=1, quick_sizes=QUICK_SIZES)
measure, run = partial(passes.measure, FORWARD), partial(passes.run, FORWARD)
add_arguments = partial(passes.add_arguments, FORWARD)


def live_or_recorded(name="forward_h200", seconds=60.0):
    """(results, words): a short forward run where there is a GPU, else results/<name>.json; the words say which it is."""
    if why_no_gpu():
        results = load_results(name)
        return results, f"recorded on {where(results)}"
    results = quick_forward(seconds)
    return results, f"measured here on {where(results)}"


def quick_forward(seconds=60.0):
    """Three sizes, one short round: enough to see the shape of it."""
    return run(problem_grid(N=QUICK_SIZES), implementations().values(), rounds=1, timer=quick_ms, expired=deadline(seconds))
