"""The cost of each part of a kernel: fa2_tma_forward whole, and with one part of its loop left out.

A variant computes nonsense and is never checked; the whole kernel is, before anything is timed. The cost of a part is
the time that its absence saves, and parts run beside one another: the savings need not add up.
"""

import importlib.util
import tempfile
from functools import partial
from pathlib import Path

from flashlab.ladder import rung
from flashlab_course.bench.checks import check
from flashlab_course.bench.options import add_integers
from flashlab_course.bench.problems import HEAD_DIMS, inputs, problem_grid, run_rung
from flashlab_course.bench.timing import measure, sweep

SECONDS = 300.0
KERNEL = "fa2_tma_forward"
PRODUCT = ('PV = tl.dot(P_ij.to(V_j.dtype), V_j, input_precision="ieee")', "PV = tl.zeros((B_r, B_dv), tl.float32)")
EXPONENTIALS = ("P_ij = tl.exp2(S_ij * scale_log2 - m_safe[:, None])", "P_ij = S_ij * scale_log2 - m_safe[:, None]")
MAXIMA = ("m_new = tl.maximum(m_i, tl.max(S_ij, 1) * scale_log2)", "m_new = m_i")
SUMS = ("l_i = alpha * l_i + tl.sum(P_ij, 1)", "l_i = alpha * l_i")
LEFT_OUT = {                           # name: the lines of the kernel that change, and what becomes of them
    "nothing": [],
    "exponentials of P": [EXPONENTIALS],
    "row maxima": [MAXIMA],
    "row sums": [SUMS],
    "row maxima and sums": [MAXIMA, SUMS],
    "softmax": [MAXIMA, SUMS, (EXPONENTIALS[0], "P_ij = S_ij")],
    "P V, and the copies of V": [PRODUCT],
}


def variant(module, changes, folder):
    """A kernel's module with some of its lines changed: its source, imported from a new file in the folder.

    changes: (old, new), ...   Raises: ValueError if a line is not there just once
    """
    source = Path(module.__file__).read_text(encoding="utf-8")
    for old, new in changes:
        if (times := source.count(old)) != 1:
            raise ValueError(f"{module.__name__} must have this line once, it has it {times} times: {old}")
        source = source.replace(old, new)
    file = Path(tempfile.mkdtemp(dir=folder), "variant.py")                # Triton reads it again when it compiles
    file.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("variant", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows_of(problem, *, device="cuda", **timed):
    """A row for each variant."""
    from flashlab.kernels import launch

    tensors = inputs(problem, device)
    reason = check(partial(run_rung, KERNEL, *tensors, problem.causal), *tensors, causal=problem.causal)["skipped"]
    options = {"causal": problem.causal, "scale": problem.d**-0.5, "dropout_p": 0.0}
    with tempfile.TemporaryDirectory() as folder:
        modules = {name: variant(rung(KERNEL).home, changes, folder) for name, changes in LEFT_OUT.items()}
        calls = {name: partial(launch.forward, module.KERNEL, module.launch, *tensors, **options)
                 for name, module in modules.items()}
        rows = measure(calls, lambda call: {"skipped": reason}, **timed)
    return [problem._asdict() | {"left_out": name} | row for name, row in rows.items()]


def pieces(args):
    """A row for each variant at every size."""
    return sweep(problem_grid(args.N, args.d, (False,)), lambda problem: rows_of(problem, expired=args.expired))


def add_arguments(parser):
    add_integers(parser, "--N", (4096,), "sequence lengths")
    add_integers(parser, "--d", HEAD_DIMS, "head dimensions")
