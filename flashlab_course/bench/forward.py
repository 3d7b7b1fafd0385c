"""Run time, TFLOP/s, peak memory and error of naive attention, the Triton rungs and PyTorch's own SDPA kernels."""

from functools import partial

from flashlab_course.bench import passes, timing
from flashlab_course.bench.checks import check
from flashlab_course.bench.problems import QUICK_SIZES, implementations, inputs, problem_grid
from flashlab_course.bench.results import collect, load_results, start, where, why_no_gpu

SECONDS = 900.0

FORWARD = passes.Pass(
    "forward",
    inputs,
    call=lambda forward, tensors, causal: forward(*tensors(), causal),
    check=lambda call, tensors, causal: check(call, *tensors, causal),
    timed=lambda timer, call: timer(call),
    flops=1,
    quick_sizes=QUICK_SIZES,
)
measure = partial(passes.measure, FORWARD)


def pieces(args):
    """What the options ask for."""
    return passes.pieces(FORWARD, args, implementations())


def add_arguments(parser):
    """The options of `bench forward`."""
    passes.add_arguments(FORWARD, parser, implementations())


def live_or_recorded(name="forward_h200", seconds=60.0):
    """(results, words): a short forward run where there is a GPU, else results/<name>.json; the words say which."""
    if why_no_gpu():
        results = load_results(name)
        return results, f"recorded on {where(results)}"
    results = collect(start("forward"), quick(seconds), say=lambda *_, **__: None)
    return results, f"measured here on {where(results)}"


def quick(seconds):
    """Three sizes, one short round: enough to see the shape of it."""
    expired = timing.deadline(seconds)
    yield "ceilings", timing.ceilings(timer=timing.quick_ms)
    for problem in problem_grid(N=QUICK_SIZES):
        yield "rows", measure(problem, implementations(), timer=timing.quick_ms, rounds=1, expired=expired)
