"""How a section measures: case by case, each compared with a reference before it is timed."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch

from flashlab_course.bench.timing import attempt, quick_ms, statistics

GiB, MiB, KiB = 2**30, 2**20, 2**10


class Here(NamedTuple):
    """Where and how to measure. `shrink` divides the sizes: tests run every section on a CPU, on tiny inputs."""

    device: str = "cuda"
    timer: Callable = quick_ms
    shrink: int = 1

    def size(self, n, smallest=1):
        return max(smallest, n // self.shrink)

    def randn(self, *shape, dtype=torch.float32):
        return torch.randn(*shape, device=self.device, dtype=dtype)

    def row(self, labels, measured):
        """The labels and the fields that `measured` returns; "skipped" says why it failed."""
        fields, reason = attempt(measured)
        return labels | (fields if reason is None else {"skipped": reason})

    def timed(self, labels, function, reference=None, tolerance=0.0, **work):
        """The row of a function, timed if its result is within `tolerance` of the reference.

        work: moved, flops: bytes and operations of one call, for TB/s and TFLOP/s
        """
        return self.row(labels, partial(self.fields, function, reference, tolerance, **work))

    def fields(self, function, reference=None, tolerance=0.0, **work):
        """What `timed` measures. Raises: AssertionError if the result is off"""
        result = function()
        error = {} if reference is None else {"error": within(tolerance, max_error(result, reference))}
        return error | statistics(self.timer(function), **work)

    def once_ms(self, launch):
        """ms of one launch by the GPU's events, with nothing cleared before it: a latency, not a throughput."""
        if self.device == "cpu":
            launch()
            return 1.0
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        launch()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)


def into_new(kernel, X, Y, *sizes):
    """The result of a CUDA kernel that is given X, Y, memory like X's for the result, and sizes."""
    Out = torch.empty_like(X)
    kernel(X, Y, Out, *sizes)
    return Out


def within(tolerance, error):
    """The error. Raises: AssertionError if it is larger, or NaN"""
    assert error <= tolerance, f"wrong: off by {error:.3g}, allowed {tolerance:.3g}"
    return error


def max_error(result, reference):
    """max |result - reference| in float64, a slice of rows at a time; NaN if there is one."""
    pairs = zip(result.split(2**13), reference.split(2**13), strict=True)
    errors = [(a.double() - b.double()).abs().max().item() for a, b in pairs]
    return math.nan if any(map(math.isnan, errors)) else max(errors)
