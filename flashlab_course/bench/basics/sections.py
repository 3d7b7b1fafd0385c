"""What chapters 02 and 09 say about a GPU, measured on one.

Each section answers one question with a list of rows. A row is timed only after its result has matched a reference;
where that fails, or anything else does, the row (or the section) says why in "skipped", and the others go on.
"""

import time

import torch

from flashlab_course.bench.basics import chapter_02, chapter_09
from flashlab_course.bench.basics.here import Here
from flashlab_course.bench.options import add_names
from flashlab_course.bench.results import line, load_runs, measured, where, why_no_gpu
from flashlab_course.bench.timing import OUT_OF_TIME, attempt

SECONDS = 240.0
SECTIONS = {section.__name__: section for section in (
    chapter_02.ceilings, chapter_02.memory_bandwidth, chapter_02.memory_latency, chapter_02.in_flight,
    chapter_02.roofline, chapter_02.vector_addition, chapter_02.divergence,
    chapter_09.coalescing, chapter_09.key_loading, chapter_09.atomics, chapter_09.softmax, chapter_09.matmul,
    chapter_09.matmul_tiles, chapter_09.matmul_order, chapter_09.precision, chapter_09.timing_ways)}


def rows_here(name, here):
    """The rows of a section, measured here."""
    return list(SECTIONS[name](here))


def pieces(args, here=Here()):                             # noqa: B008    a tuple of constants
    """The sections that the options ask for."""
    for name in args.sections:
        began = time.perf_counter()
        rows, reason = (None, OUT_OF_TIME) if args.expired() else attempt(rows_here, name, here)
        print(f"-- {name}{': skipped, ' + reason if reason else ''}", *map(line, rows or []), sep="\n   ", flush=True)
        section = {"question": SECTIONS[name].__doc__.strip(), "rows": rows or [], "skipped": reason}
        yield "sections", {name: section | {"seconds": round(time.perf_counter() - began, 1)}}


def add_arguments(parser):
    add_names(parser, "--sections", SECTIONS)


# ---- for the notebooks

MEASURED_HERE = {}         # section -> rows, or None where it failed: tried once in a process


def numbers(section, name="basics_h100", live=True, needs=()):
    """(rows, words) of a section: measured here where there is a GPU, else recorded; the words say which, and where.

    Rows that were skipped are left out. live=False: recorded in any case. "counters", by ncu, is in the records alone.
    needs: labels of rows that must be among those measured here, else the recorded ones are taken.
    Where nothing is recorded rows is [], and the words say how to record it.
    """
    if live and not why_no_gpu():
        if section not in MEASURED_HERE:
            MEASURED_HERE[section], _ = attempt(rows_here, section, Here())
        here = measured({"rows": MEASURED_HERE[section] or []})
        if here and all(pick(here, **labels) for labels in needs):
            return here, f"Measured here, on {torch.cuda.get_device_name()}."
    try:
        runs = load_runs(name)
    except FileNotFoundError:
        return [], f"Not recorded yet; on an NVIDIA GPU: python -m flashlab bench basics --out results/{name}.json"
    for run in runs:
        if rows := measured(run["sections"].get(section, {})):
            return rows, f"Recorded on {where(run)}."
    return [], f"Not recorded yet: section {section} of results/{name}.json."


def pick(rows, **labels):
    """The rows with these labels: pick(rows, by="torch", n=4096)."""
    return [row for row in rows if all(row.get(key) == value for key, value in labels.items())]
