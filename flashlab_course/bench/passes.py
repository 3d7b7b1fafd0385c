"""A pass, forward or backward, measured: first every implementation is checked, then those that are right are timed by turns.

A function that has not just passed its check against float64 on the problem at hand is not timed, and its row says so.
"""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import NamedTuple

from tqdm import tqdm

from flashlab_course.bench import timing
from flashlab_course.bench.options import add_budget_and_out, add_sizes, positive
from flashlab_course.bench.problems import HEAD_DIMS, MASKS, SIZES, problem_grid, tiles
from flashlab_course.bench.results import finish, save, start
from flashlab_course.bench.rows import Row, as_json, table

CHECKED_SCORES = 2**28                 # per check: in float64 one such matrix takes 2 GiB, and about six live at once
BASELINE = "sdpa_flash"


class Pass(NamedTuple):
    """What `bench forward` and `bench backward` do not share."""

    name: str
    implementations: Callable          # () -> {name: Implementation}
    inputs: Callable                   # (problem, device) -> tensors, the same for every implementation
    judge: Callable                    # (forward, *tensors, causal) -> one of oracle's verdicts, of part of the result
    errors: Callable                   # (verdict) -> {field of Row: error, or None where it is not finite}
    prepare: Callable                  # (forward, *tensors, causal) -> the call to time, without arguments
    flops: float                       # how many times the forward's
    quick_sizes: tuple                 # N of a quick run


def admit(row, which, *call):
    """Fill in row's errors and peak_bytes; where the call (forward, *tensors, causal) fails or is wrong, row.skipped says so."""
    verdict, reason = timing.attempt(which.judge, *call)
    if verdict is not None:
        for name, error in which.errors(verdict).items():
            setattr(row, name, error)
        reason = None if verdict.ok else f"refused: {verdict}"
    if reason is None:
        row.peak_bytes, reason = timing.attempt(timing.peak_bytes, lambda: which.prepare(*call)())
    row.skipped = reason


def measure(which, problem, chosen, *, device="cuda", timer=timing.time_ms, rounds=5, expired=lambda: False):
    """One Row for each Implementation in `chosen`. What fails, is wrong or comes too late has a reason in row.skipped."""
    rows = {name: empty_row(which, name, problem) for name, _ in chosen}
    tensors, reason = timing.attempt(which.inputs, problem, device)
    functions = {}
    for name, forward in chosen:
        row = rows[name]
        row.skipped = reason or (timing.OUT_OF_TIME if expired() else None)
        if row.skipped is None:
            admit(row, which, forward, *tensors, problem.causal)
        if row.skipped is None:
            functions[name] = partial(which.prepare, forward, *tensors, problem.causal)
    # what a call has prepared lives for one turn only: all that naive attention keeps for its backward would starve the others
    turns = {name: [] for name in functions}

    def one_turn(name):
        ms = timer(functions[name]())
        turns[name].append(median(ms))
        return ms

    times, failed = timing.interleaved_times({name: name for name in functions}, one_turn, rounds, expired)
    for name, ms in times.items():
        if ms and name not in failed:
            found = timing.statistics(ms, flops=which.flops * problem.flops)
            rows[name].ms, rows[name].ms_low, rows[name].ms_high = found["ms"], found["ms_low"], found["ms_high"]
            rows[name].tflops, rows[name].runs = found["tflops"], len(ms)
        else:
            rows[name].skipped = failed.get(name, timing.OUT_OF_TIME)
    if good := [name for name, row in rows.items() if row.ms]:
        rows[good[-1]].card, _ = timing.attempt(lambda: timing.card_under(functions[good[-1]](), rows[good[-1]].ms))
    baseline = rows[BASELINE].ms if BASELINE in rows else None
    for row in rows.values():
        row.vs_sdpa_flash = round(baseline / row.ms, 4) if baseline and row.ms else None
        row.vs_sdpa_cudnn = by_turns(turns, "sdpa_cudnn", row.implementation) if row.ms else None
        row.vs_fa4 = by_turns(turns, "fa4", row.implementation) if row.ms else None
    return list(rows.values())


def judged_part(heads, N, share, scores):
    """How many of the last query heads, and of the last key heads, have about so many scores: whole groups, one at least."""
    groups = max(1, min(heads // share, scores // (share * N**2)))
    return groups * share, groups


def by_turns(turns, baseline, name):
    """The median, over the rounds, of the baseline's time over this one's: both in the same round, so at about the same clocks."""
    ratios = [theirs / ours for theirs, ours in zip(turns.get(baseline, ()), turns[name], strict=False)]
    return round(median(ratios), 4) if ratios else None


def empty_row(which, name, problem):
    """The row of what is not measured yet."""
    return Row(name, which.name, **problem._asdict(), **tiles(name, problem))


def run(which, problems, chosen, *, out=None, command=None, device="cuda", timer=timing.time_ms, rounds=5, expired=lambda: False):
    """Measure every problem. `out`, a path, is written after each."""
    results = start(which.name, command, ceilings=timing.ceilings(device, timer), rows=[])
    progress = tqdm(problems, unit="size")
    for problem in progress:
        progress.set_description(str(problem))
        rows = measure(which, problem, chosen, device=device, timer=timer, rounds=rounds, expired=expired)
        results["rows"] += [as_json(row) for row in rows]
        save(results, out)
    return finish(results, out)


def run_asked(which, args, out, command):
    """What the options ask for."""
    sizes = args.N or (which.quick_sizes if args.quick else SIZES)
    timer, rounds = (timing.quick_ms, 1) if args.quick else (timing.time_ms, 5)
    problems, found = problem_grid(sizes, args.d, MASKS[args.causal], args.dtype, args.share), which.implementations()
    chosen = [*(found[name] for name in args.implementations), *args.own.values()]
    results = run(which, problems, chosen, out=out, command=command, timer=timer,
                  rounds=rounds, expired=timing.deadline(args.budget_seconds))
    print(table(results))
    return results


def add_arguments(which, parser):
    """The options of `bench forward` and `bench backward`, and what they run."""
    add_sizes(parser, which.implementations(), N=SIZES, quick_N=which.quick_sizes, d=HEAD_DIMS, causal="both")
    parser.add_argument("--share", type=positive(int, "an integer >= 1"), default=1, metavar="H",
                        help="query heads that share a key and value head: grouped-query attention (1)")
    parser.add_argument("--yours", action="store_true", help="your own kernel too: that of chapter 10 or 11, once it passes")
    add_budget_and_out(parser, 900.0)
    parser.set_defaults(run=partial(run_asked, which))
