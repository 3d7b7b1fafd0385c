"""The "Not allowed" of a stub, checked on what a learner's function names and on the operations that it runs.

`watched` fills outcome.facts: what an exercise on modelled memory moved, which rules were broken, how many threads ran.
"""

import contextlib
import dis
import linecache
import math
import re
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import numpy
import torch

import flashlab
import flashlab_course
from flashlab import memory
from flashlab.torch_internals import DispatchMode
from flashlab_course.check import form, source
from flashlab_course.gpu import simt

TORCH = f"{Path(torch.__file__).parent}/"
PACKAGES = tuple(f"{Path(package.__file__).parent}/" for package in (flashlab, flashlab_course))
INTERPRETER = "/triton/runtime/interpreter.py"
READY = {"rungs", "kernels", "operator", "oracle", "cost", "sweeps", "ladder", "check", "solutions"}  # with answers

# What `without` of an exercise names: operations of ATen and functions of PyTorch, what is said of them, and the
# libraries whose names count as well, since they run no operation.
LIBRARY = {
    "softmax": (re.compile("softmax|log(cum)?sumexp"), "a library computed the softmax", {"scipy", "triton"}),
    "attention": (re.compile("_scaled_dot_product|_safe_softmax|multi_head_attention|(flash|flex|efficient)_attention"),
                  "a library computed the attention", set()),
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
    if exercise.most is not None:
        facts["most"] = exercise.most(**inputs)
    if exercise.traffic is not None:
        facts["needed"] = exercise.needed(inputs)
    facts["fewer"] = exercise.fewer is not None and exercise.fewer(**inputs)
    modelled = _modelled(exercise, inputs, facts) if exercise.sram_bytes is not None else contextlib.nullcontext()
    simt.listeners.append(partial(_threads, facts))
    try:
        with modelled, _Operations(exercise, inputs, facts):
            yield
    finally:
        simt.listeners.pop()
        _look_at_code(exercise, fn, facts)


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


def _threads(facts, kernel, given, trace):
    """Add a launch of modelled threads to the facts: how many, and the thread, counted through the grid, that stored
    each element last; -1 where none did."""
    if kernel.__code__.co_filename.startswith(PACKAGES):
        _ready(facts, f"flashlab_course.gpu.simt.{kernel.__name__}")
    facts["programs"] = facts.get("programs", 0) + trace.threads
    facts["workers"] = facts.get("workers", 0) + trace.storing_threads
    facts |= {"unit": "thread", "by": {}}
    for step in trace.steps:
        grid, at = trace.grid, step.block
        first = ((at.z * grid.y + at.y) * grid.x + at.x) * math.prod(trace.block) + step.warp * simt.WARP
        for access in step.accesses:
            if access.kind == "store" and access.array in given:
                numbers = given[access.array].numbers
                by = facts["by"].setdefault(access.array, numpy.full((len(numbers), 1), -1))
                lanes = (lane for lane, active in enumerate(step.active) if active)
                for lane, offset in zip(lanes, access.offsets, strict=False):
                    by[offset // numbers.itemsize] = first + lane


def broken(facts, name, text):
    """Note the first breach of each rule."""
    facts.setdefault("broken", {}).setdefault(name, text)


def _ready(facts, what):
    broken(facts, "ready_answer", f"`{what}` was used: this is to be worked out without it")


# ---- what the code names

def _look_at_code(exercise, fn, facts):
    """Ready answers, and libraries that run no operation of PyTorch, show in the names that the code uses."""
    codes, things = _reached(fn)
    rooms = READY | set(exercise.off_limits) | ({"gpu"} if exercise.triton else set())
    given = re.findall(r"^from (flashlab[\w.]*) import", exercise.parsed.text, re.MULTILINE)
    for thing in things if fn is not exercise.solution() else ():
        module = _module(thing)
        if re.sub("^flashlab(_course)?[.]", "", module).partition(".")[0] in rooms and module not in given:
            _ready(facts, module if isinstance(thing, ModuleType) else f"{module}.{thing.__name__}")
    roots = {_module(thing).partition(".")[0] for thing in things}
    for kind in exercise.without:
        pattern, said, libraries = LIBRARY[kind]
        for code in codes if libraries & roots else ():
            for step in dis.get_instructions(code):
                if step.opname in ("LOAD_ATTR", "LOAD_METHOD") and pattern.search(step.argval):
                    broken(facts, f"library_{kind}", f"{said} ({_at(code, step.positions.lineno)})")


def _reached(fn):
    """The codes of fn and of the learner's functions that it names, and all things that these name."""
    codes, things, todo = [], [], [fn]
    while todo:
        thing = source.inner(todo.pop())
        if any(thing is known for known in things) or not isinstance(thing, (FunctionType, ModuleType, type)):
            continue
        things.append(thing)
        if not things[1:] or _module(thing).startswith(("__main__", source.LOADED)):
            if isinstance(thing, type):
                todo += [getattr(thing, name) for name in vars(thing)]
            elif not isinstance(thing, ModuleType):
                mine = [thing.__code__]
                for code in mine:
                    mine += [const for const in code.co_consts if isinstance(const, CodeType)]
                codes += mine
                todo += _named(thing, {name for code in mine for name in (*code.co_names, *code.co_consts)
                                       if isinstance(name, str)})
    return codes, things


def _named(function, names):
    """What a function means by these names: globals, modules that it imports, and what it takes from flashlab's."""
    scope = {**sys.modules, **function.__globals__}
    found = [scope[name] for name in names if name in scope]
    own = [vars(thing) for thing in found if isinstance(thing, ModuleType) and thing.__name__.startswith("flashlab")]
    return found + [module[name] for module in own for name in names if name in module]


def _module(thing):
    """The module that something is from: solutions.ex01_heads of whichever root."""
    path = Path(thing.__code__.co_filename if isinstance(thing, FunctionType) else "")
    if path.parent.name == "solutions" and not path.name.endswith(form.KNOWN):
        return f"solutions.{path.stem}"
    return thing.__name__ if isinstance(thing, ModuleType) else thing.__module__ or ""


# ---- every operation of PyTorch

class _Operations(DispatchMode):
    """Looks at each operation that the learner's lines run, also inside other functions and on the way back through
    autograd: which it is, what it makes, how often one line runs it."""

    def __init__(self, exercise, inputs, facts):
        super().__init__()
        self.exercise, self.inputs, self.facts = exercise, inputs, facts
        self.loop, self.most = exercise.loops and exercise.loops(**inputs) or ("", 0)
        self.runs = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        frame, inside = _caller(sys._getframe(1))
        if frame is None:
            return func(*args, **(kwargs or {}))
        name, at = func.overloadpacket.__name__.removeprefix("special_"), _at(frame.f_code, frame.f_lineno)
        self._look_at({name, *inside}, args, at)
        out = func(*args, **(kwargs or {}))
        self._made(name, func, args, out, at)
        if self.loop:
            self._count(name, out, frame)
        return out

    def _look_at(self, names, args, at):
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
        """One line that runs an operation once for each head, say, or makes a tensor of as many Python numbers."""
        key = frame.f_code, frame.f_lasti, name
        self.runs[key] += 1
        listed = name == "lift_fresh" and "tensor" in frame.f_code.co_names and out.numel() >= self.most
        if self.runs[key] >= self.most or listed:
            did = "made a tensor of Python's numbers" if listed else f"ran once for each of {self.most} {self.loop}"
            broken(self.facts, "loop", f"line {frame.f_lineno} {did}: one operation takes all {self.loop}")


def _caller(frame):
    """The learner's frame that called PyTorch, and the functions of PyTorch in between; None where it was the
    package's, Triton's, or an exercise's own `call`."""
    inside = set()
    while frame is not None and frame.f_code.co_filename.startswith((TORCH, __file__)):
        inside.add(frame.f_code.co_name)
        frame = frame.f_back
    filename = frame.f_code.co_filename if frame is not None else form.KNOWN
    return (None if filename.startswith(PACKAGES) or filename.endswith((form.KNOWN, INTERPRETER)) else frame), inside


def _at(code, line):
    """"line 36, `P = torch.softmax(S, -1)`"."""
    text = linecache.getline(code.co_filename, line).strip()
    return f"line {line}, `{text}`" if 0 < len(text) <= 60 and "`" not in text else f"line {line}"


def _is_e(base):
    return bool((torch.as_tensor(base, dtype=torch.float64) / math.e - 1).abs().le(1e-6).any())


def _tensors(values):
    return [T for _, T in tensors(values) if T.layout == torch.strided and not T.is_meta]


# ---- what was returned

def plain(result):
    """(values, name of the container's type)."""
    parts = result if isinstance(result, (tuple, list)) else [result]
    return tuple(map(_plain, parts)), type(result).__name__


def _plain(value):
    """A tensor as a copy: one that shares its memory with an earlier result would change with the next call."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, (tuple, list)):
        return (list if type(value) is list else tuple)(map(_plain, value))      # torch.Size is a tuple as well
    return value.item() if isinstance(value, numpy.generic) else value


def tensors(value, name=""):
    """(name, tensor) of every tensor in a nest of tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from tensors(part, key if not name else f"{name}[{key!r}]")
    elif isinstance(value, (tuple, list)):
        for n, part in enumerate(value):
            yield from tensors(part, f"{name}[{n}]")
