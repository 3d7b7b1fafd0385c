"""What each part of a kernel costs: fa2_tma_forward whole, and with one part of its loop left out.

A variant computes nonsense and is never checked; the whole kernel is, before anything is timed. What a part costs is
what its absence saves, and parts run beside one another: the savings need not add up.
"""

import importlib.util
import tempfile
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from flashlab.ladder import rung
from flashlab_course.bench.checks import check
from flashlab_course.bench.options import add_sizes
from flashlab_course.bench.problems import MASKS, inputs, problem_grid, run_rung
from flashlab_course.bench.timing import measure, time_ms

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


@contextmanager
def variant(left_out):
    """The kernel's module without a part: its source with other lines, imported from a file of its own.

    Raises: ValueError if a line is not there just once, so that nothing is left out in name only
    """
    source = Path(rung(KERNEL).home.__file__).read_text(encoding="utf-8")
    for old, new in LEFT_OUT[left_out]:
        if (times := source.count(old)) != 1:
            raise ValueError(f"the source of {KERNEL} must have this line once, it has it {times} times: {old}")
        source = source.replace(old, new)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "variant.py")
        file.write_text(source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("variant", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module                                   # Triton reads the file again when it compiles


def pieces(args, problems=None, device="cuda", timer=time_ms, rounds=5):
    """A row for each variant at every size."""
    from flashlab.kernels import launch

    for problem in problems or problem_grid(args.N or (4096,), args.d, MASKS[args.causal], args.dtype):
        tensors = inputs(problem, device)
        reason = check(partial(run_rung, KERNEL, *tensors, problem.causal), *tensors, problem.causal)["skipped"]
        options = {"causal": problem.causal, "scale": problem.d**-0.5, "dropout_p": 0.0}
        with ExitStack() as stack:
            modules = {name: stack.enter_context(variant(name)) for name in LEFT_OUT}
            calls = {name: partial(launch.forward, module.KERNEL, module.launch, *tensors, **options)
                     for name, module in modules.items()}
            rows = measure(calls, lambda call: {"skipped": reason}, rounds, timer=timer, expired=args.expired)
        yield "rows", [problem._asdict() | {"left_out": name} | row for name, row in rows.items()]


def add_arguments(parser):
    """The options of `bench parts`."""
    add_sizes(parser, [KERNEL], N=(4096,), quick_N=(4096,), d=(64, 128), causal="no")
