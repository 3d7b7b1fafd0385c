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
from types import CodeType, FunctionType, ModuleType

import numpy
import torch

import flashlab
import flashlab_course
from flashlab import memory
from flashlab.torch_internals import DispatchMode
from flashlab_course.check import form
from flashlab_course.check.structure import Finding
from flashlab_course.gpu import simt

TORCH = f"{Path(torch.__file__).parent}/"
PACKAGES = tuple(f"{Path(package.__file__).parent}/" for package in (flashlab, flashlab_course))
INTERPRETER = "/triton/runtime/interpreter.py"
READY = {"rungs", "kernels", "operator", "oracle", "cost", "sweeps", "ladder", "solutions"}  # with answers

# What `without` of an exercise names: operations of ATen or functions of PyTorch, and what is said of them.
LIBRARY = {
    "softmax": (re.compile("softmax|log(cum)?sumexp"), "PyTorch computed the softmax"),
    "attention": (re.compile("_scaled_dot_product|_safe_softmax|multi_head_attention|(flash|flex|efficient)_attention"),
                  "PyTorch computed the attention"),
    "base_e": (re.compile("(exp|expm1|log|log1p|logaddexp)_?$"), "base e was used, and the exercise is about base 2"),
    "autograd": (re.compile("_backward|_make_dual"), "it asked autograd for the gradient"),
    "strides": (re.compile("as_strided"), "a library found the strides"),
}
# The same for what runs no operation of PyTorch: names in code that uses one of these libraries.
ATTRIBUTES = {
    "base_e": (re.compile("(exp|expm1|log|log1p|logaddexp)$"), {"numpy"}),
    "strides": (re.compile("(strides?|storage_offset|data_ptr|as_strided|__array_interface__)$"), {"numpy", "torch"}),
}
ALLOCATES = re.compile("(new_)?(empty|zeros)(_like|_strided)?|zero_|fill_")


@contextlib.contextmanager
def watched(exercise, fn, inputs, facts):
    """Within: what the rules of the exercise are about is counted; it ends up in facts, also after an error."""
    with contextlib.ExitStack() as stack:
        modules = _Modules(exercise, fn)
        if not list(_tensors(inputs.values())) or modules.given & {"flashlab_course.gpu.simt"}:
            # slow where much Python runs; elsewhere operations say enough
            stack.enter_context(Calls(modules, facts))
        if exercise.sram_bytes is not None:
            stack.enter_context(_modelled(exercise, inputs, facts))
        stack.enter_context(Operations(exercise, modules, inputs, facts))
        _look_at_code(exercise, fn, facts)
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
    """The innermost frame that is neither PyTorch's nor of this file, and the functions of PyTorch that it called."""
    inside = set()
    while frame is not None and (frame.f_code.co_filename.startswith(TORCH) or frame.f_code.co_filename == __file__):
        inside.add(frame.f_code.co_name)
        frame = frame.f_back
    return frame, inside


def _learners(frame):
    """Is it a line of the learner's, and not the package's, Triton's, or an exercise's own `call`? form.py calls what
    was given."""
    filename = "" if frame is None else frame.f_code.co_filename
    if filename.startswith(PACKAGES):
        return filename == form.__file__
    return filename and not filename.endswith((form.KNOWN, INTERPRETER))


def _at(code, line):
    """"line 36, `P = torch.softmax(S, -1)`"."""
    if code.co_filename == form.__file__:                # the function itself is the library's
        return "the whole function"
    text = linecache.getline(code.co_filename, line).strip()
    return f"line {line}, `{text}`" if 0 < len(text) <= 60 and "`" not in text else f"line {line}"


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


# ---- the learner's code

def _look_at_code(exercise, fn, facts):
    """NumPy, and the attributes of a tensor, run no operation of PyTorch: what the code names is all that shows."""
    for kind in ATTRIBUTES.keys() & set(exercise.without):
        pattern, libraries = ATTRIBUTES[kind]
        functions = list(_functions(fn, set()))
        if libraries & {_library(name, namespace) for code, namespace in functions for name in code.co_names}:
            for code, _ in functions:
                line = code.co_firstlineno
                for step in dis.get_instructions(code):
                    line = step.starts_line or line
                    if step.opname in ("LOAD_ATTR", "LOAD_METHOD") and pattern.match(step.argval):
                        broken(facts, f"library_{kind}", f"{LIBRARY[kind][1]} ({_at(code, line)})")


def _functions(fn, seen):
    """(code, namespace) of a Python function, of those inside it, and of those of its own file that it names."""
    fn = getattr(fn, "__wrapped__", fn)
    if isinstance(fn, FunctionType) and fn.__code__ not in seen:
        codes = [fn.__code__]
        for code in codes:
            seen.add(code)
            yield code, fn.__globals__
            codes += [const for const in code.co_consts if isinstance(const, CodeType)]
            for name in code.co_names:
                other = fn.__globals__.get(name)
                if getattr(getattr(other, "__code__", None), "co_filename", None) == code.co_filename:
                    yield from _functions(other, seen)


def _library(name, namespace):
    """"numpy" for a name that stands for NumPy or comes from it; the name itself where a function imports it."""
    value = namespace.get(name, name)
    named = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None) or name
    return str(named).partition(".")[0]


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
        if "softmax" in exercise.without and "softmax" in code.co_names:
            broken(facts, "library_softmax", "the kernel calls `tl.softmax`, a library's softmax")


# ---- every operation of PyTorch

class Operations(DispatchMode):
    """Looks at each operation that the learner's lines run, also inside other functions and on the way back through
    autograd: which it is, what it makes, how often one line runs it."""

    def __init__(self, exercise, modules, inputs, facts):
        super().__init__()
        self.exercise, self.modules, self.inputs, self.facts = exercise, modules, inputs, facts
        self.loop, self.most = exercise.loops and exercise.loops(**inputs) or ("", 0)
        self.runs = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        frame, inside = _caller(sys._getframe(1))
        name, learners = func.overloadpacket.__name__.removeprefix("special_"), _learners(frame)
        if learners:
            self._named({name, *inside}, args, frame)
        out = func(*args, **(kwargs or {}))
        if learners:
            self._made(name, func, args, out, frame)
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

    def _named(self, names, args, frame):
        for kind in self.exercise.without:
            pattern, said = LIBRARY[kind]
            if any(map(pattern.search, names)) or kind == "base_e" and "pow" in names and _is_e(args[0]):
                text = f"{said} ({_at(frame.f_code, frame.f_lineno)})"
                if kind == "autograd":                   # its first use takes seconds
                    raise form.Breach(kind, text)
                broken(self.facts, f"library_{kind}", text)

    def _made(self, name, func, args, out, frame):
        made = _new(out, args)
        for T in made if self.exercise.forbid is not None else ():
            if said := self.exercise.forbid(tuple(T.shape), **self.inputs):
                broken(self.facts, "too_large", said)
        if self.loop:
            self._count(name, out, frame)
        if self.exercise.triton and (made or func._schema.is_mutable) and not ALLOCATES.fullmatch(name):
            broken(self.facts, "not_by_kernel", f"PyTorch computed part of it ({_at(frame.f_code, frame.f_lineno)})")

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


def _new(out, args):
    """The tensors among the results that are no views of the arguments."""
    old = {T.untyped_storage().data_ptr() for T in _tensors(args)}
    return [T for T in _tensors((out,)) if T.ndim and T.untyped_storage().data_ptr() not in old]


def _tensors(values):
    for value in values:
        if isinstance(value, torch.Tensor) and value.layout == torch.strided and value.device.type != "meta":
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)
