"""What chapters 02 and 09 say about a GPU, measured on one.

Each section answers one question with a list of rows. A row is timed only after its result has matched a reference; where
that fails, or anything else does, the row (or the section) says why in "skipped", and the others go on.
"""

import time

import torch

from flashlab_course.bench.basics.access import atomics, coalescing, key_loading
from flashlab_course.bench.basics.clocks import timing_ways
from flashlab_course.bench.basics.counters import METRICS, counters
from flashlab_course.bench.basics.here import Here
from flashlab_course.bench.basics.memory import ceilings, host_copies, in_flight, memory_bandwidth, memory_latency, roofline
from flashlab_course.bench.basics.softmax_matmul import matmul, matmul_order, matmul_tiles, precision, softmax, softmax_tuning
from flashlab_course.bench.basics.threads import divergence, idle_lanes, programs, simulator, vector_addition
from flashlab_course.bench.options import add_budget_and_out
from flashlab_course.bench.results import finish, load_results, save, start, where, why_no_gpu
from flashlab_course.bench.rows import measured
from flashlab_course.bench.timing import OUT_OF_TIME, attempt, deadline

SECTIONS = {section.__name__: section for section in (
    ceilings, memory_bandwidth, memory_latency, in_flight, host_copies, roofline, simulator, vector_addition, divergence,
    idle_lanes, coalescing, key_loading, atomics, softmax, matmul, matmul_tiles, matmul_order, precision, softmax_tuning,
    timing_ways, counters, programs)}


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


# ---- for the notebooks

MEASURED_HERE = {}         # section -> rows, or None where it failed: tried once in a process


def numbers(section, name="basics_h100", live=True, needs=()):
    """(rows, words) of a section: measured here where there is a GPU, else recorded; the words say which, and where.

    Rows that were skipped are left out. live=False: recorded in any case (sections that need ncu or nvcc).
    needs: labels of rows without which those measured here do not do, where a GPU has no room for a tile, say: then recorded.
    Where nothing is recorded rows is [], and the words say how to record it.
    """
    if live and not why_no_gpu():
        if section not in MEASURED_HERE:
            MEASURED_HERE[section], _ = attempt(SECTIONS[section], Here())
        here = measured({"rows": MEASURED_HERE[section] or []})
        if here and all(pick(here, **labels) for labels in needs):
            return here, f"Measured here, on {torch.cuda.get_device_name()}."
    try:
        results = load_results(name)
    except FileNotFoundError:
        return [], f"Not recorded yet; on an NVIDIA GPU: python -m flashlab bench basics --out results/{name}.json"
    rows = measured(results["sections"].get(section, {}))
    return rows, f"Recorded on {where(results)}." if rows else f"Not recorded yet: section {section} of results/{name}.json."


def pick(rows, **labels):
    """The rows with these labels: pick(rows, by="torch", n=4096)."""
    return [row for row in rows if all(row.get(key) == value for key, value in labels.items())]
