"""Tests marked `gpu` are skipped where there is no NVIDIA GPU, or Triton interprets its kernels."""

import pytest

from flashlab_course.bench.results import why_no_gpu


def pytest_collection_modifyitems(items):
    if reason := why_no_gpu():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=reason))
