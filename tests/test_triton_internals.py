"""Triton's inside, as the course relies on it: fails where a new Triton has moved what compiler/triton_internals.py uses."""

import pytest

import flashlab  # noqa: F401   before Triton: it decides whether kernels are interpreted

triton = pytest.importorskip("triton")

from flashlab_course.compiler import triton_internals  # noqa: E402


def test_this_triton_is_one_that_was_tried():
    version = ".".join(triton.__version__.split(".")[:2])
    assert version in triton_internals.KNOWN, f"Triton {version}: read triton_internals.py against it, then add it to KNOWN"


def test_the_names_are_there():
    from triton.runtime import interpreter, jit

    assert callable(jit.JITFunction.run) and callable(interpreter._patch_lang)
    assert all(callable(getattr(interpreter.InterpretedFunction, name)) for name in ("run", "__call__", "rewrite"))
    assert all(hasattr(interpreter._interpreter, name) for name in ("load", "store", "atomic_rmw", "atomic_cas"))
    assert callable(interpreter.interpreter_builder.set_grid_idx) and issubclass(interpreter.InterpreterError, Exception)
