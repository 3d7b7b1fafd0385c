"""What chapters 02 and 09 say about a GPU, measured on one.

Each section answers one question with a list of rows. A row is timed only after its result has matched a reference; where
that fails, or anything else does, the row (or the section) says why in "skipped", and the others go on.
"""

import time

from flashlab.bench.basics.access import atomics, coalescing, key_loading
from flashlab.bench.basics.counters import METRICS, counters
from flashlab.bench.basics.here import Here
from flashlab.bench.basics.memory import ceilings, memory_bandwidth, memory_latency, roofline
from flashlab.bench.basics.softmax_matmul import matmul, matmul_order, matmul_tiles, precision, softmax, softmax_tuning
from flashlab.bench.basics.threads import divergence, idle_lanes, programs, simulator, vector_addition
from flashlab.bench.options import add_budget_and_out
from flashlab.bench.results import finish, save, start
from flashlab.bench.timing import OUT_OF_TIME, attempt, deadline

SECTIONS = {section.__name__: section for section in (
    ceilings, memory_bandwidth, memory_latency, roofline, simulator, vector_addition, divergence, idle_lanes, coalescing,
    key_loading, atomics, softmax, matmul, matmul_tiles, matmul_order, precision, softmax_tuning, counters, programs)}


def run_sections(names, here, *, out=None, command=None, expired=lambda: False):
    """Measure the sections. `out`, a path, is written after each."""
    results = start("basics", command, sections={})
    for name in names:
        began = time.perf_counter()
        rows, reason = (None, OUT_OF_TIME) if expired() else attempt(SECTIONS[name], here)
        section = {"question": SECTIONS[name].__doc__.strip(), "rows": rows or [], "skipped": reason,
                   "seconds": round(time.perf_counter() - began, 1)}
        results["sections"][name] = section
        print(summary(name, section), flush=True)
        save(results, out)
    return finish(results, out)


def summary(name, section):
    """A section for a terminal: its labels, and the number that answers its question."""
    lines = [f"-- {name} ({section['seconds']} s){': skipped, ' + section['skipped'] if section['skipped'] else ''}"]
    numbers = ("ms", "tb_s", "tflops", "ns", "error", "max_error", "equal", "different_results_of_20", "prints", "skipped",
               *METRICS.values())
    unsaid = ("ms_low", "ms_high", "bytes", "flops", "name")
    for row in section["rows"]:
        labels = [f"{key} {value}" for key, value in row.items() if key not in (*numbers, *unsaid)]
        values = [f"{key} {row[key]:.5g}" if isinstance(row[key], float) else f"{key} {row[key]}" for key in numbers if key in row]
        lines.append(f"   {', '.join(labels)}: {', '.join(values)}")
    return "\n".join(lines)


def run_asked(args, out, command):
    """What the options ask for."""
    return run_sections(args.sections, Here(), out=out, command=command, expired=deadline(args.budget_seconds))


def add_arguments(parser):
    """The options of `bench basics`, and what they run."""
    parser.add_argument("--sections", nargs="+", choices=list(SECTIONS), metavar="NAME", default=list(SECTIONS),
                        help=f"among {', '.join(SECTIONS)} (all)")
    add_budget_and_out(parser, 240.0)
    parser.set_defaults(run=run_asked)
