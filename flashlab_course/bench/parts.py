"""What each part of a kernel costs: fa2_tma_forward whole, and with one part of its loop left out.

A variant computes nonsense and is never checked; the whole kernel is, before anything is timed. What a part costs is what its
absence saves, and parts run beside one another: the savings need not add up.
"""

import importlib.util
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tqdm import tqdm

from flashlab.ladder import rung
from flashlab.triton_mode import import_triton
from flashlab_course.bench import timing
from flashlab_course.bench.forward import check
from flashlab_course.bench.options import add_budget_and_out, add_sizes
from flashlab_course.bench.problems import MASKS, inputs, problem_grid
from flashlab_course.bench.results import finish, save, start

KERNEL = "fa2_tma_forward"
PRODUCT = ("PV = tl.dot(P_ij.to(V_j.dtype), V_j, input_precision=\"ieee\")", "PV = tl.zeros((B_r, B_dv), tl.float32)")
EXPONENTIALS = ("P_ij = tl.exp2(S_ij * scale_log2 - m_safe[:, None])", "P_ij = S_ij * scale_log2 - m_safe[:, None]")
MAXIMA = ("m_new = tl.maximum(m_i, tl.max(S_ij, 1) * scale_log2)", "m_new = m_i")
SUMS = ("l_i = alpha * l_i + tl.sum(P_ij, 1)", "l_i = alpha * l_i")
LEFT_OUT = {                                           # name: the lines of the kernel that change, and what becomes of them
    "nothing": [],
    "exponentials of P": [EXPONENTIALS],
    "row maxima": [MAXIMA],
    "row sums": [SUMS],
    "row maxima and sums": [MAXIMA, SUMS],
    "softmax": [MAXIMA, SUMS, ("P_ij = tl.exp2(S_ij * scale_log2 - m_safe[:, None])", "P_ij = S_ij")],
    "P V, and the copies of V": [PRODUCT],
}


@contextmanager
def variant(left_out):
    """The kernel's module without a part: its source with other lines, imported from a file of its own.

    Raises: ValueError if a line is not there just once, so that nothing is left out in name only
    """
    source = Path(rung(KERNEL).home.__file__).read_text(encoding="utf-8")
    for old, new in LEFT_OUT[left_out]:
        if source.count(old) != 1:
            raise ValueError(f"the source of {KERNEL} must have this line once, it has it {source.count(old)} times: {old}")
        source = source.replace(old, new)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "variant.py")
        file.write_text(source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("variant", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module                                   # Triton reads the file again when it compiles


def run(problems, *, out=None, command=None, device="cuda", timer=timing.time_ms, rounds=5, expired=lambda: False):
    """Time the variants by turns at every size. `out` is written after each."""
    results = start("parts", command, kernel=KERNEL, rows=[])
    for problem in tqdm(problems, unit="size"):
        tensors, times = inputs(problem, device), {}
        verdict = check(lambda Q, K, V, causal: rung(KERNEL).function(Q, K, V, causal=causal), *tensors, problem.causal)
        if not verdict.ok:
            raise SystemExit(f"refused: {verdict}")
        for name in LEFT_OUT:
            times[name] = partial(in_turn, name, tensors, problem.causal, timer)
        found, failed = timing.interleaved_times(times, lambda turn: turn(), rounds, expired)
        for name in LEFT_OUT:
            row = problem._asdict() | {"left_out": name, "ms": None}
            if found[name] and name not in failed:
                row |= timing.statistics(found[name])
            else:
                row["skipped"] = failed.get(name, timing.OUT_OF_TIME)
            results["rows"].append(row)
        save(results, out)
    return finish(results, out)


def in_turn(name, tensors, causal, timer):
    """ms of each of many runs of a variant."""
    from flashlab.kernels import launch

    scale = tensors[0].shape[-1] ** -0.5
    with variant(name) as module:
        return timer(lambda: launch.forward(module.KERNEL, module.launch, *tensors, causal=causal, scale=scale, dropout_p=0.0))


def run_asked(args, out, command):
    """What the options ask for."""
    problems = problem_grid(args.N or (4096,), args.d, MASKS[args.causal], args.dtype)
    results = run(problems, out=out, command=command, expired=timing.deadline(args.budget_seconds))
    print(table(results))
    return results


def table(results):
    """ms of each variant, and how much of the whole kernel's time its part was."""
    lines, whole = [], {}
    for row in results["rows"]:
        size = (row["N"], row["d"], row["causal"], row["dtype"])
        whole.setdefault(size, row["ms"])              # "nothing" comes first
        saved = f"{1 - row['ms'] / whole[size]:8.0%} of the time" if row["ms"] and whole[size] else row.get("skipped", "")
        mask = " causal" if row["causal"] else ""
        lines.append(f"d {row['d']}{mask} N {row['N']}, without {row['left_out']:<26}{row['ms'] or 0:9.4f} ms{saved}")
    return "\n".join(lines)


def add_arguments(parser):
    """The options of `bench parts`, and what they run."""
    add_sizes(parser, [KERNEL], N=(4096,), quick_N=(4096,), d=(64, 128), causal="no")
    add_budget_and_out(parser, 300.0)
    parser.set_defaults(run=run_asked, why_not=lambda: "" if import_triton() else "triton is not installed")
