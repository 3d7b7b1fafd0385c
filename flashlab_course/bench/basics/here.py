"""How a section measures: where, and a row only where the result was right; what fails says why in "skipped"."""

import math
from typing import NamedTuple

import torch

from flashlab_course.bench.timing import attempt, quick_ms, statistics

GiB, MiB, KiB = 2**30, 2**20, 2**10


class Here(NamedTuple):
    """Where and how to measure. `shrink` divides the sizes: tests run every section on a CPU, on next to nothing."""

    device: str = "cuda"
    timer: object = quick_ms
    shrink: int = 1

    def sizes(self, nbytes, smallest=16 * KiB):
        return sorted({max(smallest, n // self.shrink) for n in nbytes})

    def randn(self, *shape, dtype=torch.float32):
        return torch.randn(*shape, device=self.device, dtype=dtype)


def timed(here, function, reference=None, tolerance=0.0, moved=0, flops=0):
    """Median, 20th and 80th percentile of `function`'s ms, once its result is within `tolerance` of the reference.

    moved, flops   bytes and operations of one call: with them come TB/s and TFLOP/s
    Raises: AssertionError if the result is off, or NaN
    """
    row, result = {}, function()
    if reference is not None:
        row["error"] = max_error(result, reference)
        assert row["error"] <= tolerance, f"wrong: off by {row['error']:.3g}, allowed {tolerance:.3g}"
    return row | statistics(here.timer(function), moved=moved, flops=flops)


def max_error(result, reference):
    """max |result - reference| in float64, a slice of rows at a time."""
    pairs = zip(result.split(2**13), reference.split(2**13), strict=True)
    errors = [(a.double() - b.double()).abs().max().item() for a, b in pairs]
    return math.nan if any(map(math.isnan, errors)) else max(errors)


def rows_of(cases):
    """One row for each (labels, function that measures it)."""
    rows = []
    for labels, measure in cases:
        numbers, reason = attempt(measure)
        rows.append(labels | (numbers or {}) | ({"skipped": reason} if reason else {}))
    return rows
