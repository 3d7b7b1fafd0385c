"""The diff of two rungs: the idea alone, without comments and indentation. On the kernel ladder it stays short."""

import difflib
import inspect
import re

import pytest

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab_course.lesson import changes


def before(x):
    """Docstring."""
    y = x + 1                      # a reason
    # a line of comment
    return y


def after(x):
    """Another docstring
    of two lines."""
    for _ in range(2):
        y = x + 1                  # another reason
    return y


def longer(x):
    y = x + 2
    y += 1
    y += 2
    return y


def test_only_code_counts_and_long_changes_are_cut():
    assert changes(before, after) == "+ for _ in range(2):"
    assert changes(before, before) == ""
    assert "+ ... and 2 lines more" in changes(before, longer, most=1)


def code(kernel):
    """The lines of a kernel, from its signature on, without comments, blank lines and indentation."""
    text = inspect.getsource(kernel.fn)
    lines = [re.sub(r"\s*# .*$", "", line).strip() for line in text[text.index("def "):].splitlines()]
    return [line for line in lines if line]


def test_a_rung_of_the_kernel_ladder_adds_few_lines_to_the_one_before():
    """Fails if a rung brings more than its idea, moves lines about, or calls what is not in sight: it reads alone."""
    pytest.importorskip("flashlab.kernels.launch", reason="triton is not installed (it exists for Linux only)")
    from flashlab.kernels import (
        fa2,
        fa2_atomic_backward,
        fa2_backward,
        fa2_exp2,
        fa2_pipelined,
        fa2_split,
        fa2_split_backward,
        fa2_tma,
        fa2_tma_backward,
    )

    forward = [module.KERNEL for module in (fa2, fa2_exp2, fa2_split, fa2_pipelined, fa2_tma)]
    keys = [fa2_backward.dkdv_kernel, fa2_split_backward.split_dkdv_kernel, fa2_atomic_backward.atomic_backward_kernel,
            fa2_tma_backward.tma_backward_kernel]
    queries = [fa2_backward.dq_kernel, fa2_split_backward.split_dq_kernel]
    for ladder in (forward, keys, queries):
        for one, following in zip(ladder[:-1], ladder[1:], strict=True):
            added = [line for line in difflib.ndiff(code(one), code(following)) if line.startswith("+ ")]
            assert 0 < len(added) <= 40, f"{following.fn.__name__} adds {len(added)} lines"
        for kernel in ladder:
            called = set(re.findall(r"(?<![\w.])(\w+)\(", " ".join(code(kernel)[1:])))
            assert called <= {"range", "float", "kept"}, f"{kernel.fn.__name__} calls {called}"
