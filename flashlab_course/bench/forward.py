"""Run time, TFLOP/s, peak memory and error of naive attention, the Triton rungs and PyTorch's own SDPA kernels."""

from functools import partial

from flashlab_course.bench import problems, timing
from flashlab_course.bench.checks import check
from flashlab_course.bench.options import add_sizes, integer
from flashlab_course.bench.results import collect, load_results, start, where, why_no_gpu

SECONDS = 900.0


def measure(problem, forwards, *, device="cuda", **timed):
    """A row for each of `forwards`, {name: forward(Q, K, V, causal) -> (O, L or None)}. timed: as timing.measure"""
    tensors = problems.inputs(problem, device)
    calls = {name: partial(forward, *tensors, problem.causal) for name, forward in forwards.items()}
    right = lambda call: check(call, *tensors, causal=problem.causal)
    rows = timing.measure(calls, right, flops=problem.flops, **timed)
    return labelled(rows, problem, "forward")


def labelled(rows, problem, which):
    """The rows of a pass with their sizes and tiles."""
    size = {"pass": which} | problem._asdict()
    return [{"implementation": name} | size | problems.tiles(name, problem) | row for name, row in rows.items()]


def sweep(measure, implementations, args):
    """The pieces that the options ask for, of the forward or the backward pass."""
    chosen = {name: implementations[name] for name in args.implementations} | args.own
    grid = problems.problem_grid(args.N, args.d, problems.MASKS[args.causal], args.dtype, args.share)
    return timing.sweep(grid, lambda problem: measure(problem, chosen, expired=args.expired))


def pieces(args):
    return sweep(measure, problems.implementations(), args)


def add_arguments(parser):
    add_pass_arguments(parser, problems.implementations())


def add_pass_arguments(parser, implementations):
    """The options that `bench forward` and `bench backward` share."""
    add_sizes(parser, implementations, N=problems.SIZES, d=problems.HEAD_DIMS, causal="both")
    words = "query heads that share a key and value head: grouped-query attention (1)"
    parser.add_argument("--share", type=integer, default=1, metavar="H", help=words)
    words = "your own kernel too: that of chapter 10 or 11, once it passes"
    parser.add_argument("--yours", action="store_true", help=words)


def live_or_recorded(seconds=60.0):
    """(results, words): a short forward run where there is a GPU, else the recorded one; the words say which."""
    if why_no_gpu():
        results = load_results("forward_h100")
        return results, f"recorded on {where(results)}"
    timed = {"timer": timing.quick_ms, "rounds": 1, "expired": timing.deadline(seconds)}
    forwards, grid = problems.implementations(), problems.problem_grid(N=(1024, 4096, 16384))
    quick = timing.sweep(grid, lambda problem: measure(problem, forwards, **timed))
    results = collect(start("forward"), quick, say=lambda *_, **__: None)
    return results, f"measured here on {where(results)}"
