"""What a learner's function calls on the way to its result: the "Not allowed" of a stub, seen as it happens.

`watched` fills outcome.facts: what an exercise on modelled memory moved, which rules were broken, how many threads ran.
"""

import contextlib
import math
import re
import sys
from collections import Counter
from pathlib import Path

import numpy
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import flashlab
import flashlab_course
from flashlab import memory
from flashlab_course.check import form
from flashlab_course.check.structure import Finding
from flashlab_course.gpu import simt

TORCH = f"{Path(torch.__file__).parent}/"
PACKAGES = tuple(f"{Path(package.__file__).parent}/" for package in (flashlab, flashlab_course))
INTERPRETER = "/triton/runtime/interpreter.py"
READY = {"rungs", "kernels", "operator", "oracle", "cost", "sweeps", "ladder", "solutions"}  # with answers

# What `without` of an exercise names: functions of PyTorch, and what is said of them.
LIBRARY = {
    "softmax": ({"softmax", "log_softmax", "softmin", "logsumexp", "logcumsumexp", "gumbel_softmax", "cross_entropy",
                 "_softmax"},
                "a library's softmax"),
    "attention": ({"scaled_dot_product_attention", "multi_head_attention_forward"}, "a library's attention"),
    "base_e": ({"exp", "exp_", "expm1", "log", "log_", "log1p", "logaddexp"},
               "to base e, and this exercise is about base 2"),
    "strides": ({"stride", "storage_offset", "data_ptr"}, "PyTorch's own answer"),
}
GRADIENTS = {"grad", "backward"}
MAKES_ONLY = {"empty", "empty_like", "empty_strided", "new_empty", "zeros", "zeros_like", "new_zeros", "zero_", "fill_"}


@contextlib.contextmanager
def watched(exercise, fn, inputs, facts):
    """Within: what the rules of the exercise are about is counted; it ends up in facts, also after an error."""
    with contextlib.ExitStack() as stack:
        modules = _Modules(exercise, fn)
        if not list(_tensors(inputs.values())) or modules.given & {"flashlab_course.gpu.simt"}:
            # slow where much Python runs; elsewhere operations say enough
            stack.enter_context(Calls(modules, facts))
        stack.enter_context(Functions(exercise, modules, inputs, facts))
        if exercise.forbid is not None:
            stack.enter_context(Shapes(exercise, inputs, facts))
        if exercise.sram_bytes is not None:
            stack.enter_context(_modelled(exercise, inputs, facts))
        if exercise.most is not None:
            facts["most"] = exercise.most(**inputs)
        if exercise.traffic is not None:
            facts["needed"] = exercise.needed(inputs)
        facts["fewer"] = exercise.fewer is not None and exercise.fewer(**inputs)
        yield


@contextlib.contextmanager
def _modelled(exercise, inputs, facts):
    mem = memory.Memory(exercise.sram_bytes(**inputs))
    try:
        with mem:
            yield
    finally:
        facts |= {"sram_peak": mem.sram_peak, "moved": {}, "largest": {}, "eager": 0}
        for event in mem.log:
            if event.kind in ("load", "store"):
                read, written = facts["moved"].get(event.name, (0, 0))
                facts["moved"][event.name] = (read + event.read, written + event.written)
            elif event.kind == "eager":
                facts["eager"] += event.read + event.written
            if event.kind == "load":
                elements = (event.rows[1] - event.rows[0]) * (event.cols[1] - event.cols[0] if event.cols else 1)
                facts["largest"][event.name] = max(elements, facts["largest"].get(event.name, 0))


def broken(facts, name, text):
    """Note the first breach of each rule."""
    found = facts.setdefault("broken", [])
    if all(name != finding.name for finding in found):
        found.append(Finding(name, text))


# ---- whose frame, whose file

def _caller(frame):
    """The innermost frame that is neither PyTorch's own nor of this file."""
    while frame is not None and (frame.f_code.co_filename.startswith(TORCH) or frame.f_code.co_filename == __file__):
        frame = frame.f_back
    return frame


def _learners(frame):
    """Is it a line of the learner's, and not the package's, Triton's, or an exercise's own `call`? form.py calls what
    was given."""
    filename = "" if frame is None else frame.f_code.co_filename
    if filename.startswith(PACKAGES):
        return filename == form.__file__
    return filename and not filename.endswith((form.KNOWN, INTERPRETER))


def _line(frame):
    return f" in line {frame.f_lineno}" if frame.f_code.co_filename != form.__file__ else ""


def _module(filename):
    """flashlab.rungs.fa2 for a file of the package, solutions.ex01_heads for a solution of whichever root, else ""."""
    path = Path(filename)
    if filename.startswith(PACKAGES):
        return ".".join(path.relative_to(Path(PACKAGES[0]).parent).with_suffix("").parts)
    return f"solutions.{path.stem}" if path.parent.name == "solutions" and not filename.endswith(form.KNOWN) else ""


class _Modules:
    """Which modules hold answers that this exercise's stub does not import."""

    def __init__(self, exercise, fn):
        self.known = {}
        self.rooms = READY | set(exercise.off_limits) | ({"gpu"} if exercise.triton else set())
        self.rooms -= {"solutions"} if fn is exercise.solution() else set()
        self.given = set(re.findall(r"^from (flashlab[\w.]*) import", exercise.parsed.text, re.MULTILINE))

    def ready(self, filename):
        """The module if it has answers, else ""."""
        if filename not in self.known:
            module = _module(filename)
            room = module.split(".")[module.startswith("flashlab")] if module else ""
            self.known[filename] = module if room in self.rooms and module not in self.given else ""
        return self.known[filename]


def _ready(facts, function, module):
    broken(facts, "ready_answer", f"`{function}` of {module} was called: this is to be worked out without it")


# ---- every call of a Python function

class Calls:
    """Notes calls of ready answers, also of those that compute with plain numbers, and the threads that
    flashlab_course.gpu.simt ran."""

    def __init__(self, modules, facts):
        self.modules, self.facts = modules, facts

    def __enter__(self):
        self.before = sys.getprofile()
        sys.setprofile(self._event)

    def __exit__(self, *exc):
        sys.setprofile(self.before)

    def _event(self, frame, event, arg):
        if event == "call":
            code = frame.f_code
            if module := self.modules.ready(code.co_filename):
                if not self._by_the_package(frame.f_back, module):
                    _ready(self.facts, code.co_name, module)
            elif code.co_name == "launch" and code.co_filename.endswith("simt.py"):
                self._launch(frame.f_locals.get("kernel"))
        elif event == "return" and type(arg).__name__ == "Trace" and frame.f_code.co_name == "run":
            self.facts["programs"] = self.facts.get("programs", 0) + arg.threads
            self.facts["workers"] = self.facts.get("workers", 0) + arg.storing_threads
            self.facts["unit"] = "thread"
            self.facts["by"] = _threads(arg, frame.f_locals["given"])

    def _by_the_package(self, frame, module):
        """Was it called by what the stub imports, and not by the learner?"""
        if module.startswith("solutions") or frame is None:
            return False
        return frame.f_code.co_filename.startswith(PACKAGES)

    def _launch(self, kernel):
        code = getattr(kernel, "__code__", None)
        if code is not None and code.co_filename.startswith(PACKAGES):
            _ready(self.facts, code.co_name, "flashlab_course.gpu.simt")


def _threads(trace, given):
    """{tensor: the thread, counted through the grid, that stored each element last; -1 where none did}: arrays
    (elements, 1)."""
    found, block = {}, math.prod(trace.block)
    for step in trace.steps:
        first = ((step.block.z * trace.grid.y + step.block.y) * trace.grid.x
                 + step.block.x) * block + step.warp * simt.WARP
        for access in step.accesses:
            if access.kind == "store" and access.array in given:
                numbers = given[access.array].numbers
                by = found.setdefault(access.array, numpy.full((len(numbers), 1), -1))
                lanes = (lane for lane, active in enumerate(step.active) if active)
                for lane, offset in zip(lanes, access.offsets, strict=False):
                    by[offset // numbers.itemsize] = first + lane
    return found


def launched(exercise, fn, kernels, facts):
    """Triton: the kernels that were launched say themselves where they are from, and which names they use."""
    modules = _Modules(exercise, fn)
    for kernel in kernels:
        code = kernel.fn.__code__
        if module := modules.ready(code.co_filename):
            _ready(facts, code.co_name, module)
        if "softmax" in exercise.without and (used := set(code.co_names) & LIBRARY["softmax"][0]):
            broken(facts, "library_softmax", f"the kernel calls `tl.{used.pop()}`, a library's softmax")


# ---- every function of PyTorch

class Functions(TorchFunctionMode):
    """Looks at each function of PyTorch that the learner's lines call: which it is, how often one line calls it."""

    def __init__(self, exercise, modules, inputs, facts):
        super().__init__()
        self.exercise, self.modules, self.inputs, self.facts = exercise, modules, inputs, facts
        self.loop, self.most = exercise.loops and exercise.loops(**inputs) or ("", 0)
        self.runs = Counter()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        frame, name = _caller(sys._getframe(1)), getattr(func, "__name__", "").removeprefix("special_")
        if name in GRADIENTS and "autograd" in self.exercise.without and _learners(frame):
            # its first use takes seconds
            raise form.Breach("autograd", f"it asked autograd for the gradient{_line(frame)}")
        out = func(*args, **(kwargs or {}))
        if _learners(frame) and name != "__get__":
            self._look(name, args, out, frame)
        if frame is not None and (module := self.modules.ready(frame.f_code.co_filename)):
            _ready(self.facts, *self._entry(frame, module))
        return out

    def _entry(self, frame, module):
        """The first of the functions that led here which has the answer: the one that the learner called."""
        found, frame = (frame.f_code.co_name, module), frame.f_back
        while frame is not None and not _learners(frame):
            if module := self.modules.ready(frame.f_code.co_filename):
                found = frame.f_code.co_name, module
            frame = frame.f_back
        return found

    def _look(self, name, args, out, frame):
        for kind in self.exercise.without:
            functions, what = LIBRARY.get(kind, ((), ""))
            if name in functions or kind == "attention" and name.startswith("_scaled_dot_product"):
                broken(self.facts, f"library_{kind}", f"`{name}`{_line(frame)} is {what}")
        if self.loop:
            self._count(name, out, frame)
        if self.exercise.triton:
            self._compute(name, args, out, frame)

    def _count(self, name, out, frame):
        """One line that runs the same operation once for each head, say, or makes a tensor of as many Python
        numbers."""
        self.runs[frame.f_code, frame.f_lasti, name] += 1
        listed = name == "tensor" and isinstance(out, torch.Tensor) and out.numel() >= self.most
        if self.runs[frame.f_code, frame.f_lasti, name] >= self.most or listed:
            did = "made a tensor of Python's numbers" if listed else f"ran once for each of {self.most} {self.loop}"
            broken(self.facts, "loop", f"line {frame.f_lineno} {did}: one operation takes all {self.loop}")

    def _compute(self, name, args, out, frame):
        """PyTorch at work where a kernel should be. To allocate, and to look at a tensor, is no work."""
        in_place = (name.endswith("_") and not name.startswith("__")) or name in ("__setitem__", "copy_")
        if name not in MAKES_ONLY and (in_place or _made(out, args)):
            broken(self.facts, "not_by_kernel", f"PyTorch did part of it: `{name}`{_line(frame)}")


class Shapes(TorchDispatchMode):
    """Looks at each tensor that is made, also inside other functions and on the way back through autograd."""

    def __init__(self, exercise, inputs, facts):
        super().__init__()
        self.forbid, self.inputs, self.facts = exercise.forbid, inputs, facts

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if _learners(_caller(sys._getframe(1))):
            for T in _made(out, args):
                if said := self.forbid(tuple(T.shape), **self.inputs):
                    broken(self.facts, "too_large", said)
        return out


def _made(out, args):
    """The tensors among the results that are no views of the arguments."""
    old = {T.untyped_storage().data_ptr() for T in _tensors(args)}
    return [T for T in _tensors((out,)) if T.ndim and T.untyped_storage().data_ptr() not in old]


def _tensors(values):
    for value in values:
        if isinstance(value, torch.Tensor) and value.layout == torch.strided and value.device.type != "meta":
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)
