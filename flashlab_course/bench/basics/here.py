"""How a section measures: its cases one by one, each held against a reference before it is timed."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from flashlab_course.bench.timing import attempt, quick_ms, statistics

GiB, MiB, KiB = 2**30, 2**20, 2**10


class Here(NamedTuple):
    """Where and how to measure. `shrink` divides the sizes: tests run every section on a CPU, on next to nothing."""

    device: str = "cuda"
    timer: Callable = quick_ms
    shrink: int = 1

    def size(self, n, smallest=1):
        return max(smallest, n // self.shrink)

    def sizes(self, nbytes, smallest=16 * KiB):
        return sorted({self.size(n, smallest) for n in nbytes})

    def randn(self, *shape, dtype=torch.float32):
        return torch.randn(*shape, device=self.device, dtype=dtype)

    def timed(self, function, reference=None, tolerance=0.0, moved=0, flops=0):
        """A function that measures: the fields of a row, once the result is within `tolerance` of the reference.

        moved, flops   bytes and operations of one call: with them come TB/s and TFLOP/s
        """
        def measured():
            result = function()
            row = {} if reference is None else {"error": within(tolerance, max_error(result, reference))}
            return row | statistics(self.timer(function), moved=moved, flops=flops)

        return measured


def within(tolerance, error):
    """The error. Raises: AssertionError if it is larger, or NaN"""
    assert error <= tolerance, f"wrong: off by {error:.3g}, allowed {tolerance:.3g}"
    return error


def max_error(result, reference):
    """max |result - reference| in float64, a slice of rows at a time."""
    pairs = zip(result.split(2**13), reference.split(2**13), strict=True)
    errors = [(a.double() - b.double()).abs().max().item() for a, b in pairs]
    return math.nan if any(map(math.isnan, errors)) else max(errors)


def rows_of(cases):
    """A row for each of a section's cases, (labels, function that measures); "skipped" says why one is empty."""
    rows = []
    for labels, measured in cases:
        fields, reason = attempt(measured)
        rows.append(labels | (fields or {}) | ({"skipped": reason} if reason else {}))
    return rows
