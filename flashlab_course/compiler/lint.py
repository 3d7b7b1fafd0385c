"""Finds what would fail, differ or be slow on a GPU in a Triton kernel that is green in the interpreter.

    lint_kernel(kernel, {"X": X, "Y": Y, "N": 70, "B": 32}, grid=(3,))     # a list of Finding
    lint_call(lambda: row_softmax(X))                                      # every kernel that the call launches

The kernel is compiled ahead of time, so no GPU is needed. With a grid it is also run in the interpreter, where every
address is held against the tensors: on a GPU a stray load or store passes silently, or ends the process.
"""

import re
from typing import NamedTuple

import numpy as np
import torch

from flashlab.triton_mode import interpreted
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, CompileError, try_all
from flashlab_course.compiler.watch import Place, bind, watch

H100 = 90                                                  # kernels are compiled for it
LEVELS = ("fails", "wrong", "differs", "slow")             # worst first
UNWATCHED = ("addresses were not watched: that takes the interpreter (TRITON_INTERPRET=1), "
             "or NVIDIA's compute-sanitizer")


class Finding(NamedTuple):
    """One line of the report."""

    rule: str              # dot_k, mixed_dot, compile, shared, stray_load/store/atomic, bf16, tf32, spills
    level: str             # of LEVELS
    text: str
    fix: str


def lint_kernel(kernel, arguments, *, grid=None):
    """The Findings for one launch, worst first; an empty list if there is nothing to say.

    arguments   every parameter's value by name; num_warps and num_stages may stand among them
    grid        with it, where kernels are interpreted, the launch is run and its addresses watched
    """
    seen = Strays()
    if grid is not None and interpreted():
        with watch(seen):
            kernel[grid](**arguments)
    return report([(kernel, arguments)], seen.findings)


def lint_call(function):
    """The Findings for every kernel that function() launches in the interpreter, with the arguments of the launch."""
    if not interpreted():
        raise RuntimeError("lint_call watches the interpreter; with a GPU use lint_kernel, or compute-sanitizer")
    with watch(Strays()) as seen:
        function()
    return report(seen.launches, seen.findings)


def as_text(findings):
    """The findings, one below the other."""
    lines = [f"{one.level}: {one.text}\n  fix: {one.fix}" for one in findings] or ["nothing found"]
    return "\n".join(lines if interpreted() else [*lines, UNWATCHED])


def report(launches, strays):
    """All findings, worst first. launches: (kernel, arguments by name), which are compiled here in one process."""
    found = list(strays.values())
    results = try_all([(kernel, arguments, H100) for kernel, arguments in launches])
    for (kernel, _), result in zip(launches, results, strict=True):
        found += remarks(kernel.fn.__name__, result)
    return sorted(dict.fromkeys(found), key=lambda one: LEVELS.index(one.level))


# ---- what the compiler says


def refusal(name, error):
    place = f" at `{error.line}`" if error.line else ""
    rule, why, fix = "compile", error.reason, "as the message says; the interpreter is laxer"
    if "K >= 16" in why:
        rule, why = "dot_k", "tl.dot needs at least 16 along K, its inner dimension"
        fix = "pad the inner dimension to 16 with zeros (a masked load does it), or use tl.sum(a * b)"
    elif "same dtype" in why:
        rule, fix = "mixed_dot", "cast one operand: p.to(v.dtype)"
    return Finding(rule, "fails", f"{name} does not compile{place}: {why}", fix)


def remarks(name, result):
    """The Findings for what the compiler made of a kernel: Compiled, or a CompileError."""
    if isinstance(result, CompileError):
        yield refusal(name, result)
        return
    limit = SHARED_LIMIT[H100]
    if result.shared_bytes > limit:
        yield Finding("shared", "fails",
                      f"{name} needs {result.shared_bytes / 1024:.0f} KiB of shared memory, a program on an H100 "
                      f"(sm_90) may use {limit / 1024:.0f} KiB", "smaller tiles, or fewer num_stages")
    if interpreted() and re.search(r"(mma|add|sub|mul|fma|max|min)[.\w:]*bf16", result.ptx):
        yield Finding("bf16", "differs",
                      f"{name} computes in bfloat16: right on a GPU, silently wrong in the interpreter",
                      "while interpreting, widen what is loaded: .to(tl.float32)")
    if "tf32" in result.ptx:
        yield Finding("tf32", "differs",
                      f"{name} multiplies float32 in TF32, with 10 bits of mantissa; the interpreter keeps 23",
                      'tl.dot(..., input_precision="ieee"), slower; or allow for errors near 1e-3')
    if result.spills:
        waits = any("serializ" in line for line in result.warnings)
        also = ", and its matrix instructions wait for each other" if waits else ""
        yield Finding("spills", "slow",
                      f"{name} uses all {result.registers} registers and spills {result.spills} bytes a "
                      f"thread to memory{also}", "smaller tiles, or more num_warps")


# ---- what the interpreter sees


class Strays:
    """A watcher that keeps the launches, leaves out each access that hits no tensor, and makes findings of these."""

    def __init__(self):
        self.launches, self.findings = [], {}              # (kernel, kind): the Finding of its first stray access

    def launched(self, kernel, args, kwargs, grid):
        arguments = bind(kernel, args, kwargs)
        self.launches.append((kernel, arguments))
        self.kernel = kernel.fn.__name__
        self.places = {name: Place(T) for name, T in arguments.items() if isinstance(T, torch.Tensor)}

    def accessed(self, kind, addresses, mask, program):
        known = np.zeros(addresses.shape, dtype=bool)
        for place in self.places.values():
            known |= (addresses >= place.start) & (addresses < place.stop)
        lost = addresses[mask & ~known]
        if lost.size and self.places:
            verb, call = {"load": ("loads", "load"), "store": ("stores", "store"),
                          "atomic": ("updates", "atomic_add")}[kind]
            text = (f"{self.kernel} {verb} outside its tensors: {lost.size} addresses in program {program}, "
                    f"the first one {self.nearest(int(lost[0]))}; a GPU does not notice, or ends the process")
            fix = f"a mask in tl.{call} that is False past the edge"
            self.findings.setdefault((self.kernel, kind), Finding(f"stray_{kind}", "wrong", text, fix))
        return mask & known

    def nearest(self, address):
        """An address in words: how far it is from the nearest tensor."""
        before = {name: (place.start - address) // place.itemsize for name, place in self.places.items()}
        after = {name: (address - place.stop) // place.itemsize + 1 for name, place in self.places.items()}
        name = min(self.places, key=lambda name: max(before[name], after[name]))
        steps = max(before[name], after[name])
        side = "before its start" if before[name] > 0 else "past its end"
        return f"{steps} element{'s' * (steps > 1)} {side} of {name}"
