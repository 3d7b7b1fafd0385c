"""What `bench forward` and `bench backward` share: every implementation at many sizes, a row for each."""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

from flashlab_course.bench import timing
from flashlab_course.bench.options import add_sizes, positive
from flashlab_course.bench.problems import HEAD_DIMS, MASKS, SIZES, problem_grid, tiles

BASELINES = ("sdpa_flash", "sdpa_cudnn", "fa4")


class Pass(NamedTuple):
    """What the two do not share."""

    name: str
    inputs: Callable                   # (problem, device) -> tensors, the same for every implementation
    call: Callable                     # (forward, tensors, causal) -> the call to check and to time
    check: Callable                    # (call, tensors, causal) -> the first fields of its row
    timed: Callable                    # (timer, call) -> ms of each of many runs
    flops: float                       # how many times the forward's
    quick_sizes: tuple                 # N of a quick run


def measure(which, problem, forwards, *, device="cuda", timer=timing.time_ms, rounds=5, expired=timing.never):
    """A row for each of `forwards`, {name: forward(Q, K, V, causal) -> (O, L or None)}."""
    tensors = cache(partial(which.inputs, problem, device))    # made at the first call: each row says "out of memory"
    calls = {name: partial(which.call, forward, tensors, problem.causal) for name, forward in forwards.items()}
    rows = timing.measure(
        calls,
        lambda call: which.check(call, tensors(), problem.causal),
        rounds,
        timer=partial(which.timed, timer),
        expired=expired,
        against=BASELINES,
        flops=which.flops * problem.flops,
    )
    size = {"pass": which.name} | problem._asdict()
    return [{"implementation": name} | size | tiles(name, problem) | row for name, row in rows.items()]


def pieces(which, args, forwards):
    """What the options ask for, size by size."""
    timer, rounds = (timing.quick_ms, 1) if args.quick else (timing.time_ms, 5)
    chosen = {name: forwards[name] for name in args.implementations} | args.own
    yield "ceilings", timing.ceilings(timer=timer)
    sizes = args.N or (which.quick_sizes if args.quick else SIZES)
    for problem in problem_grid(sizes, args.d, MASKS[args.causal], args.dtype, args.share):
        yield "rows", measure(which, problem, chosen, timer=timer, rounds=rounds, expired=args.expired)


def add_arguments(which, parser, forwards):
    """The options of both."""
    add_sizes(parser, forwards, N=SIZES, quick_N=which.quick_sizes, d=HEAD_DIMS, causal="both")
    parser.add_argument("--share", type=positive(int, "an integer >= 1"), default=1, metavar="H",
                        help="query heads that share a key and value head: grouped-query attention (1)")
    words = "your own kernel too: that of chapter 10 or 11, once it passes"
    parser.add_argument("--yours", action="store_true", help=words)
