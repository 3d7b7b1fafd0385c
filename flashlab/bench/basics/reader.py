"""What notebooks read of the sections: `numbers` and `pick`."""

import torch

from flashlab.bench.basics.here import Here
from flashlab.bench.basics.sections import SECTIONS
from flashlab.bench.results import load_results, where, why_no_gpu
from flashlab.bench.rows import measured
from flashlab.bench.timing import attempt

MEASURED_HERE = {}         # section -> rows, or None where it failed: tried once in a process


def numbers(section, name="basics_h100", live=True):
    """(rows, words) of a section: measured here where there is a GPU, else recorded; the words say which, and where.

    Rows that were skipped are left out. live=False: recorded in any case (sections that need ncu or nvcc).
    Where nothing is recorded rows is [], and the words say how to record it.
    """
    if live and not why_no_gpu():
        if section not in MEASURED_HERE:
            MEASURED_HERE[section], _ = attempt(SECTIONS[section], Here())
        if MEASURED_HERE[section]:
            return measured({"rows": MEASURED_HERE[section]}), f"Measured here, on {torch.cuda.get_device_name()}."
    try:
        results = load_results(name)
    except FileNotFoundError:
        return [], f"Not recorded yet; on an NVIDIA GPU: python -m flashlab bench basics --out results/{name}.json"
    rows = measured(results["sections"].get(section, {}))
    return rows, f"Recorded on {where(results)}." if rows else f"Not recorded yet: section {section} of results/{name}.json."


def pick(rows, **labels):
    """The rows with these labels: pick(rows, by="torch", n=4096)."""
    return [row for row in rows if all(row.get(key) == value for key, value in labels.items())]
