"""What would fail, differ or be slow on a GPU, of a Triton kernel that is green in the interpreter.

    lint_kernel(kernel, {"X": X, "Y": Y, "N": 70, "B": 32}, grid=(3,))     # a list of Finding
    lint_call(lambda: row_softmax(X))                                      # every kernel that the call launches

The kernel is compiled ahead of time, so no GPU is needed. With a grid it is also run in the interpreter, where every
address is held against the tensors: on a GPU a stray load or store passes silently, or ends the process.
"""

import re
from dataclasses import dataclass

import numpy as np
import torch

from flashlab.triton_mode import interpreted
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, CompileError, try_all
from flashlab_course.compiler.watch import bind, watch

GPUS = {80: "an A100 (sm_80)", 86: "an A10 (sm_86)", 89: "an L4 (sm_89)", 90: "an H100 (sm_90)", 100: "a B200 (sm_100)"}
LEVELS = ("fails", "wrong", "differs", "slow")             # worst first


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    rule: str              # dot_k, mixed_dot, compile, shared, stray_load/store/atomic, bf16, tf32, spills
    level: str             # of LEVELS
    text: str
    fix: str

    def __str__(self):
        return f"{self.level}: {self.text}\n  fix: {self.fix}"


def lint_kernel(kernel, arguments, *, grid=None, target=90):
    """The Findings for one launch, worst first; an empty list if there is nothing to say.

    arguments   every parameter's value by name; num_warps and num_stages may stand among them
    grid        with it, where kernels are interpreted, the launch is run and its addresses watched
    target      80, 90 or 100: A100, H100, B200
    """
    findings = []
    if grid is not None and interpreted():
        with watch(Strays()) as seen:
            kernel[grid](**arguments)
        findings += seen.findings()
    return _ordered(findings + _compiled_findings([(kernel, arguments)], target))


def lint_call(function, *, target=90):
    """The Findings for every kernel that function() launches in the interpreter, with the arguments of the launch."""
    if not interpreted():
        raise RuntimeError("lint_call watches the interpreter; with a GPU use lint_kernel, or compute-sanitizer")
    with watch(Strays()) as seen:
        function()
    return _ordered(dict.fromkeys(seen.findings() + _compiled_findings(seen.launches, target)))


UNWATCHED = ("addresses were not watched: that takes the interpreter (TRITON_INTERPRET=1), "
             "or NVIDIA's compute-sanitizer")


def as_text(findings):
    """The findings, one below the other."""
    text = "\n".join(map(str, findings)) if findings else "nothing found"
    return text if interpreted() else f"{text}\n{UNWATCHED}"


def _ordered(findings):
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


# ---- what the compiler says


def _compiled_findings(launches, target):
    """launches: (kernel, arguments by name), all of them compiled in one process."""
    results = try_all((kernel, arguments, target) for kernel, arguments in launches)
    return [finding for (kernel, _), result in zip(launches, results, strict=True)
            for finding in _findings_of(kernel.fn.__name__, result, target)]


def _findings_of(name, result, target):
    if isinstance(result, CompileError):
        return [_compile_error(name, result)]
    found, limit = [], SHARED_LIMIT[target]
    if result.shared_bytes > limit:
        found.append(Finding("shared", "fails",
                             f"{name} needs {result.shared_bytes / 1024:.0f} KiB of shared memory, a program on "
                             f"{GPUS[target]} may use {limit / 1024:.0f} KiB", "smaller tiles, or fewer num_stages"))
    if interpreted() and re.search(r"(mma|add|sub|mul|fma|max|min)[.\w:]*bf16", result.ptx):
        found.append(Finding("bf16", "differs",
                             f"{name} computes in bfloat16: right on a GPU, silently wrong in the interpreter",
                             "while interpreting, widen what is loaded: .to(tl.float32)"))
    if "tf32" in result.ptx:
        found.append(Finding("tf32", "differs",
                             f"{name} multiplies float32 in TF32, with 10 bits of mantissa; the interpreter keeps 23",
                             'tl.dot(..., input_precision="ieee"), slower; or allow for errors near 1e-3'))
    if result.spills:
        waits = any("serializ" in line for line in result.warnings)
        also = ", and its matrix instructions wait for each other" if waits else ""
        found.append(Finding("spills", "slow",
                             f"{name} uses all {result.registers} registers and spills {result.spills} bytes a "
                             f"thread to memory{also}", "smaller tiles, or more num_warps"))
    return found


def _compile_error(name, error):
    place = f" at `{error.line}`" if error.line else ""
    if "K >= 16" in error.reason:
        return Finding("dot_k", "fails",
                       f"{name} does not compile{place}: tl.dot needs at least 16 along K, its inner dimension",
                       "pad the inner dimension to 16 with zeros (a masked load does it), or use tl.sum(a * b)")
    if "same dtype" in error.reason:
        return Finding("mixed_dot", "fails", f"{name} does not compile{place}: {error.reason}",
                       "cast one operand: p.to(v.dtype)")
    return Finding("compile", "fails", f"{name} does not compile{place}: {error.reason}",
                   "as the message says; the interpreter is laxer")


# ---- what the interpreter sees


class Strays:
    """The launches of a stretch of interpreted code, and the accesses that hit no tensor; those are left out."""

    def __init__(self):
        self.launches, self.strays, self.tensors = [], {}, {}

    def launched(self, kernel, args, kwargs, grid):
        arguments = bind(kernel, args, kwargs)
        self.kernel = kernel.fn.__name__
        self.tensors = {key: value for key, value in arguments.items() if isinstance(value, torch.Tensor)}
        self.ranges = {key: _addresses(T) for key, T in self.tensors.items()}
        self.launches.append((kernel, arguments))

    def accessed(self, kind, addresses, mask, program):
        known = np.zeros(addresses.shape, dtype=bool)
        for start, stop in self.ranges.values():
            known |= (addresses >= start) & (addresses < stop)
        lost = mask & ~known
        if lost.any() and self.ranges:
            first_lost = self._nearest(int(addresses[lost][0]))
            self.strays.setdefault((self.kernel, kind), (*first_lost, int(lost.sum()), program))
        return mask & known

    def _nearest(self, address):
        def distance(name):
            start, stop = self.ranges[name]
            return max(start - address, address - stop + 1)

        name = min(self.ranges, key=distance)
        start, stop = self.ranges[name]
        size = self.tensors[name].element_size()
        steps = (start - address) // size if address < start else (address - stop) // size + 1
        return name, f"{steps} element{'s' * (steps > 1)} {'before its start' if address < start else 'past its end'}"

    def findings(self):
        found = []
        for (kernel, kind), (name, where, count, program) in self.strays.items():
            verb = {"load": "loads", "store": "stores", "atomic": "updates"}[kind]
            text = (f"{kernel} {verb} outside its tensors: {count} addresses in program {program}, "
                    f"the first one {where} of {name}; a GPU does not notice, or ends the process")
            call = "atomic_add" if kind == "atomic" else kind
            found.append(Finding(f"stray_{kind}", "wrong", text, f"a mask in tl.{call} that is False past the edge"))
        return found


def _addresses(T):
    """First address of T, and the one after its last element."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(T.shape, T.stride(), strict=True)) if T.numel() else 0
    return T.data_ptr(), T.data_ptr() + extent * T.element_size()
