"""The "Not allowed" of a stub, checked on what a learner's function does on the way to its result.

`watched` fills outcome.facts: what an exercise on modelled memory moved, which rules were broken, how many threads ran.
"""

import contextlib
import dis
import linecache
import math
import re
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FunctionType

import numpy
import torch

import flashlab
import flashlab_course
from flashlab import memory
from flashlab.torch_internals import DispatchMode
from flashlab_course.check import form, results
from flashlab_course.gpu import simt

TORCH = f"{Path(torch.__file__).parent}/"
PACKAGES = tuple(f"{Path(package.__file__).parent}/" for package in (flashlab, flashlab_course))
INTERPRETER = "/triton/runtime/interpreter.py"
READY = {"rungs", "kernels", "operator", "oracle", "cost", "sweeps", "ladder", "solutions"}  # with answers

# What `without` of an exercise names: operations of ATen and functions of PyTorch, what is said of them, and the
# libraries whose attributes of that name count as well, since they run no operation.
LIBRARY = {
    "softmax": (re.compile("softmax|log(cum)?sumexp"), "PyTorch computed the softmax", set()),
    "attention": (re.compile("_scaled_dot_product|_safe_softmax|multi_head_attention|(flash|flex|efficient)_attention"),
                  "PyTorch computed the attention", set()),
    "base_e": (re.compile("(exp|expm1|log|log1p|logaddexp)_?$"),
               "base e was used, and the exercise is about base 2", {"numpy"}),
    "autograd": (re.compile("_backward|_make_dual"), "it asked autograd for the gradient", set()),
    "strides": (re.compile("^(strides?|storage_offset|data_ptr|as_strided|__array_interface__)"),
                "a library found the strides", {"numpy", "torch"}),
}
ALLOCATES = re.compile("(new_)?(empty|zeros)(_like|_strided)?|zero_|fill_")


@contextlib.contextmanager
def watched(exercise, fn, inputs, facts):
    """Within: what the rules of the exercise are about is counted; it ends up in facts, also after an error."""
    ready = _Ready(exercise, fn, facts)
    if exercise.most is not None:
        facts["most"] = exercise.most(**inputs)
    if exercise.traffic is not None:
        facts["needed"] = exercise.needed(inputs)
    facts["fewer"] = exercise.fewer is not None and exercise.fewer(**inputs)
    _look_at_code(exercise, fn, facts)
    with contextlib.ExitStack() as stack:
        if not _tensors(inputs) or "flashlab_course.gpu.simt" in ready.given:
            # slow where much Python runs; elsewhere operations say enough
            stack.enter_context(_calls(ready, facts))
        if exercise.sram_bytes is not None:
            stack.enter_context(_modelled(exercise, inputs, facts))
        stack.enter_context(_Operations(exercise, ready, inputs, facts))
        yield


@contextlib.contextmanager
def _modelled(exercise, inputs, facts):
    mem = memory.Memory(exercise.sram_bytes(**inputs))
    try:
        with mem:
            yield
    finally:
        facts |= {"moved": {}, "largest": {}, "eager": 0}
        for event in mem.log:
            if event.kind in ("load", "store"):
                read, written = facts["moved"].get(event.name, (0, 0))
                facts["moved"][event.name] = (read + event.read, written + event.written)
            elif event.kind == "eager":
                facts["eager"] += event.read + event.written
            if event.kind == "load":
                elements = math.prod(stop - start for start, stop in filter(None, (event.rows, event.cols)))
                facts["largest"][event.name] = max(elements, facts["largest"].get(event.name, 0))


def broken(facts, name, text):
    """Note the first breach of each rule."""
    facts.setdefault("broken", {}).setdefault(name, text)


# ---- whose frame, whose file

def _caller(frame):
    """The innermost frame that is neither PyTorch's nor of this file, and the functions of PyTorch that it called."""
    inside = set()
    while frame is not None and frame.f_code.co_filename.startswith((TORCH, __file__)):
        inside.add(frame.f_code.co_name)
        frame = frame.f_back
    return frame, inside


def _learners(frame):
    """Is it a line of the learner's, and not the package's, Triton's, or an exercise's own `call`? form.py calls what
    was given."""
    filename = frame.f_code.co_filename
    return filename == form.__file__ or not filename.startswith(PACKAGES) and not filename.endswith(
        (form.KNOWN, INTERPRETER))


def _at(code, line):
    """"line 36, `P = torch.softmax(S, -1)`"."""
    if code.co_filename == form.__file__:                # the function itself is the library's
        return "the whole function"
    text = linecache.getline(code.co_filename, line).strip()
    return f"line {line}, `{text}`" if 0 < len(text) <= 60 and "`" not in text else f"line {line}"


class _Ready:
    """Which modules hold answers that this exercise's stub does not import."""

    def __init__(self, exercise, fn, facts):
        self.facts, self.known = facts, {}
        self.rooms = READY | set(exercise.off_limits) | ({"gpu"} if exercise.triton else set())
        self.rooms -= {"solutions"} if fn is exercise.solution() else set()
        self.given = set(re.findall(r"^from (flashlab[\w.]*) import", exercise.parsed.text, re.MULTILINE))

    def module(self, filename):
        """flashlab.rungs.fa2, or solutions.ex01_heads of whichever root, if it has answers, else ""."""
        if filename not in self.known:
            path, name = Path(filename), ""
            if filename.startswith(PACKAGES):
                name = ".".join(path.relative_to(Path(PACKAGES[0]).parent).with_suffix("").parts)
            elif path.parent.name == "solutions" and not filename.endswith(form.KNOWN):
                name = f"solutions.{path.stem}"
            room = name.removeprefix("flashlab.").removeprefix("flashlab_course.").partition(".")[0]
            self.known[filename] = name if room in self.rooms and name not in self.given else ""
        return self.known[filename]

    def called(self, frame):
        """Note the first of the functions that led to this frame which has an answer: the one that a learner called."""
        found = None
        while frame is not None:
            if module := self.module(frame.f_code.co_filename):
                found = frame.f_code, module
            elif _learners(frame):
                break
            frame = frame.f_back
        if found:
            self.breach(*found)

    def breach(self, code, module):
        broken(self.facts, "ready_answer",
               f"`{code.co_name}` of {module} was called: this is to be worked out without it")


# ---- the learner's code

def _look_at_code(exercise, fn, facts):
    """What the code names is all that shows of NumPy, and of the attributes of a tensor."""
    codes = [fn.__code__] if isinstance(fn, FunctionType) else []
    for code in codes:
        codes += [const for const in code.co_consts if isinstance(const, CodeType)]
    used = {getattr(fn.__globals__.get(name), "__name__", name) for code in codes for name in code.co_names}
    for kind in exercise.without:
        pattern, said, libraries = LIBRARY[kind]
        for step in (step for code in codes if libraries & used for step in dis.get_instructions(code)):
            if step.opname in ("LOAD_ATTR", "LOAD_METHOD") and pattern.search(step.argval):
                broken(facts, f"library_{kind}", f"{said} ({_at(fn.__code__, step.positions.lineno)})")


# ---- every call of a Python function

@contextlib.contextmanager
def _calls(ready, facts):
    """Notes calls of ready answers, also of those that compute with plain numbers, and the threads that
    flashlab_course.gpu.simt ran."""
    def event(frame, event, arg):
        code = frame.f_code
        if event == "call" and (module := ready.module(code.co_filename)):
            # the package may call it for what the stub imports
            if module.startswith("solutions") or not frame.f_back.f_code.co_filename.startswith(PACKAGES):
                ready.breach(code, module)
        elif event == "return" and isinstance(arg, simt.Trace) and code.co_name == "run":
            kernel = frame.f_locals["kernel"].__code__
            if kernel.co_filename.startswith(PACKAGES):
                ready.breach(kernel, "flashlab_course.gpu.simt")
            facts["programs"] = facts.get("programs", 0) + arg.threads
            facts["workers"] = facts.get("workers", 0) + arg.storing_threads
            facts["unit"] = "thread"
            facts["by"] = _threads(arg, frame.f_locals["given"])

    before = sys.getprofile()
    sys.setprofile(event)
    try:
        yield
    finally:
        sys.setprofile(before)


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
    ready = _Ready(exercise, fn, facts)
    for kernel in kernels:
        code = kernel.fn.__code__
        if module := ready.module(code.co_filename):
            ready.breach(code, module)
        if "softmax" in exercise.without and "softmax" in code.co_names:
            broken(facts, "library_softmax", "the kernel calls `tl.softmax`, a library's softmax")


# ---- every operation of PyTorch

class _Operations(DispatchMode):
    """Looks at each operation that the learner's lines run, also inside other functions and on the way back through
    autograd: which it is, what it makes, how often one line runs it."""

    def __init__(self, exercise, ready, inputs, facts):
        super().__init__()
        self.exercise, self.ready, self.inputs, self.facts = exercise, ready, inputs, facts
        self.loop, self.most = exercise.loops and exercise.loops(**inputs) or ("", 0)
        self.runs = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        frame, inside = _caller(sys._getframe(1))
        name = func.overloadpacket.__name__.removeprefix("special_")
        self.ready.called(frame)
        if frame is None or not _learners(frame):
            return func(*args, **(kwargs or {}))
        at = _at(frame.f_code, frame.f_lineno)
        self._named({name, *inside}, args, at)
        out = func(*args, **(kwargs or {}))
        self._made(name, func, args, out, at)
        if self.loop:
            self._count(name, out, frame)
        return out

    def _named(self, names, args, at):
        for kind in self.exercise.without:
            pattern, said, _ = LIBRARY[kind]
            if any(map(pattern.search, names)) or kind == "base_e" and "pow" in names and _is_e(args[0]):
                if kind == "autograd":                   # its first use takes seconds
                    raise form.Breach(kind, f"{said} ({at})")
                broken(self.facts, f"library_{kind}", f"{said} ({at})")

    def _made(self, name, func, args, out, at):
        old = {T.untyped_storage().data_ptr() for T in _tensors(args)}
        made = [T for T in _tensors([out]) if T.ndim and T.untyped_storage().data_ptr() not in old]     # no views
        for T in made if self.exercise.forbid is not None else ():
            if said := self.exercise.forbid(tuple(T.shape), **self.inputs):
                broken(self.facts, "too_large", said)
        if self.exercise.triton and (made or func._schema.is_mutable) and not ALLOCATES.fullmatch(name):
            broken(self.facts, "not_by_kernel", f"PyTorch computed part of it ({at})")

    def _count(self, name, out, frame):
        """One line that runs the same operation once for each head, say, or makes a tensor of as many Python
        numbers."""
        key = frame.f_code, frame.f_lasti, name
        self.runs[key] += 1
        listed = name == "lift_fresh" and "tensor" in frame.f_code.co_names and out.numel() >= self.most
        if self.runs[key] >= self.most or listed:
            did = "made a tensor of Python's numbers" if listed else f"ran once for each of {self.most} {self.loop}"
            broken(self.facts, "loop", f"line {frame.f_lineno} {did}: one operation takes all {self.loop}")


def _is_e(base):
    return bool((torch.as_tensor(base, dtype=torch.float64) / math.e - 1).abs().le(1e-6).any())


def _tensors(values):
    return [T for _, T in results.tensors(values) if T.layout == torch.strided and not T.is_meta]
