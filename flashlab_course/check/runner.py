"""Running a learner's code so that the checker survives it: limits, captured output, inputs and surroundings
verified."""

import collections
import contextlib
import importlib
import linecache
import re
import time
import traceback
import warnings
from dataclasses import dataclass, field

import torch

from flashlab import memory
from flashlab.triton_mode import import_triton
from flashlab_course.check import limits, points, raised, results, state
from flashlab_course.check.form import Breach
from flashlab_course.check.results import tensors

# a kernel that is compiled for a GPU may take this many times the limit: the first launch builds it
COMPILING = 5

IMPORTS_MUCH = re.compile(r"\b(torch\.func|functorch|compile|vjp|jvp|vmap|jacrev|jacfwd|jacobian|hessian)\b")

# Problems after which no further case is run, and no mistake looked for.
FINAL = {"not_implemented", "signature", "timeout", "memory", "asked", "debugger", "ended"}


@dataclass
class Problem:
    """What went wrong before there was a result to compare: a kind, a sentence, and the learner's lines."""

    kind: str                  # not_implemented, timeout, raised, signature, wrong_type, wrong_shape, wrong_dtype, ...
    text: str
    lines: list = field(default_factory=list)    # (where, function, code), outermost first
    error: str = ""            # the exception's class
    seen: str = ""             # the tensors of the line that raised it: "alpha has shape (4,), O_i (4, 3)"


@dataclass
class Outcome:
    """What a function did on one case."""

    values: tuple = ()
    problem: Problem | None = None
    facts: dict = field(default_factory=dict)    # what was moved and made: traffic of modelled memory, stray accesses
    printed: str = ""
    left: list = field(default_factory=list)     # what it changed around it
    seconds: float = 0.0


def import_for(exercise, text=""):
    """Import what takes seconds before any clock runs: a limit that breaks an import off leaves half of a package
    behind.

    text: the learner's, in which torch.func or torch.compile may be called, though it is of no use there
    """
    if exercise.sram_bytes or exercise.forbid or exercise.terms or IMPORTS_MUCH.search(text or ""):
        importlib.import_module("torch._dynamo")               # dispatch modes import PyTorch's compiler, too
    if exercise.triton:
        import_triton()


def run(exercise, fn, inputs, *, limit=None, own_file=None):
    """fn on one case's inputs, protected. own_file: the file whose lines are the learner's."""
    given = dict(inputs)
    keep = _copies(given)
    guard = _guard(exercise, given)
    outcome, sink, box = Outcome(), limits.Sink(), {}

    def body():
        with points.watched(exercise, fn, given, outcome.facts):
            try:
                box["result"] = exercise.invoke(fn, guard.inputs if guard else given)
            finally:
                state.mend_builtins()

    started = time.perf_counter()
    limit = limit or exercise.seconds * (1 if guard is None or guard.interpreted else COMPILING)
    around = _watched(exercise, fn, guard, outcome.facts)
    error = _protected(lambda: _with(around, lambda: limits.limited(body, limit)), outcome.left, sink)
    read = (None, None)
    if error is None and guard is None:
        read, error = _read(box["result"], limit)
    outcome.seconds = time.perf_counter() - started
    outcome.printed = sink.text()
    if error is not None:
        outcome.problem = describe(error, exercise, own_file, limit)
        if getattr(error, "results", None) is not None and isinstance(error, Breach):
            outcome.values, outcome.facts["container"] = results.plain(error.results)
        return outcome
    outcome.values, outcome.facts["container"] = read
    if guard:
        outcome.values = guard.results()
        outcome.facts["container"] = "tuple" if len(outcome.values) > 1 else "Tensor"
    outcome.problem = _changed(guard.plain() if guard else given, keep)
    return outcome


def _read(result, seconds):
    """What results.plain makes of it, and the exception if it cannot be read. Only what is foreign needs protection."""
    if results.is_plain(result):
        return results.plain(result), None
    return protected(lambda: results.plain(result), seconds)


def _with(context, body):
    with context:
        body()


@contextlib.contextmanager
def unprotected(exercise, fn, inputs):
    """For stepping: the inputs as a case has them, on modelled or guarded memory, with no limit and nothing
    captured."""
    guard = _guard(exercise, inputs)
    modelled = memory.Memory(exercise.sram_bytes(**inputs)) if exercise.sram_bytes else contextlib.nullcontext()
    with state.unchanged([]), _watched(exercise, fn, guard, {}), modelled:
        yield guard.inputs if guard else inputs


def _guard(exercise, inputs):
    if not exercise.triton:
        return None
    from flashlab_course.check.guard import Guard  # here: it imports Triton

    return Guard(inputs, exercise.reads, exercise.writes)


@contextlib.contextmanager
def _watched(exercise, fn, guard, facts):
    """Hold a Triton exercise's loads and stores against its tensors; what was seen ends up in facts, also after an
    error."""
    if guard is None:
        yield
        return
    from flashlab_course.compiler.watch import watch

    try:
        with watch(guard):
            yield
    finally:
        if not all(results.readable(sea.bits) for sea in guard.seas.values()):
            raise Breach("changed_inputs", "it gave back the memory of a tensor that it was called with")
        facts |= guard.facts()
        points.launched(exercise, fn, [kernel for kernel, *_ in guard.launches], facts)


def protected(body, seconds):
    """(what body() returned, None), or (None, the exception) with its output swallowed: for loading a learner's
    file."""
    box = {}
    error = _protected(lambda: limits.limited(lambda: box.update(result=body()), seconds), [], limits.Sink())
    return (box.get("result"), None) if error is None else (None, error)


def _protected(body, left, sink):
    """body() with its output in the sink, and everything put back after it. Returns what it raised, whatever that
    is."""
    with (state.unchanged(left), warnings.catch_warnings(),
          contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink)):
        warnings.simplefilter("ignore")
        try:
            body()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and _interrupted_by_user(error):
                raise
            return error
    return None


# ---- inputs

def _copies(inputs):
    return {name: T.clone() for name, T in tensors(inputs)}


def _changed(inputs, keep):
    for name, T in tensors(inputs):
        before = keep[name]
        try:
            with torch._C.DisableTorchFunctionSubclass():
                same_kind = (T.shape, T.dtype, T.layout) == (before.shape, before.dtype,
                                                             before.layout) and results.readable(T)
                same = same_kind and torch.equal(T.detach().nan_to_num(0.125), before.nan_to_num(0.125))
        except Exception:                              # its class was exchanged, for instance
            same_kind = same = False
        if not same_kind:
            return Problem("changed_inputs", f"it changed its input {name} into another shape or dtype")
        if not same:
            return Problem("changed_inputs",
                           f"it changed its input {name} in place: whoever called it still needs {name}. "
                                             "Assign to a new name (`x = x * a`), not into the tensor (`x *= a`, "
                                             "`x[...] = a`)")
    return None


# ---- errors

def _interrupted_by_user(error):
    """Ctrl-C or the stop button, not a `raise KeyboardInterrupt` in the learner's code: that has its own line on
    top."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return "raise KeyboardInterrupt" not in (last.line or "")


def describe(error, exercise, own_file, seconds):
    """The Problem that an exception stands for."""
    error = unwrapped(error)
    lines = learner_lines(error, own_file)
    name = type(error).__name__
    if isinstance(error, limits.TimeUp):
        return Problem("timeout", f"it was stopped after {seconds:g} seconds{_waiting(lines)}", lines)
    if isinstance(error, limits.MemoryUp):
        return Problem("memory", f"it needed more than {memory.format_bytes(limits.MEMORY)} of memory and was stopped. "
                                 "Is something made anew in each pass of a loop, or never given up?", lines)
    if isinstance(error, limits.Halt):
        return Problem(error.kind, error.text, lines)
    text = message_of(error)
    if isinstance(error, NotImplementedError) and text.startswith(f"{exercise.name}:"):
        return Problem("not_implemented", text.partition(": ")[2], lines)
    if isinstance(error, Breach):
        return Problem(error.kind, text)
    if isinstance(error, RecursionError):
        return Problem("raised", "it called itself until Python gave up (RecursionError)", lines[:2], name)
    if isinstance(error, SystemExit):
        return Problem("raised", "it called exit(): a function returns its result instead", lines, name)
    if not isinstance(error, memory.MemoryModelError):         # whose text is written for a learner, line by line
        text = (" ".join(text.split()) or "no message") + raised.resembling(error)
    # the checker has chosen its size: the advice is for other callers
    if isinstance(error, memory.SRAMOverflow):
        text = text.removesuffix(memory.OVERFLOW_ADVICE).rstrip()
    return Problem("raised", f"it raised {name}: {text}", lines, name, raised.seen(error, text, own_file))


def unwrapped(error):
    """Triton's interpreter wraps what the kernel raised."""
    for _ in range(3):
        if type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
            error = error.__cause__
    return error


def message_of(error):
    """What an exception says, whatever its __str__ does."""
    try:
        return str(error)[:2000]
    except Exception as another:
        return f"(its message cannot be had: __str__ raises {type(another).__name__})"


def _waiting(lines):
    """What a timeout was spent on, as far as the innermost line shows it."""
    code = lines[-1][2] if lines else ""
    if re.search(r"\bsleep\(", code):
        return f": it was asleep in `{code}`"
    if re.search(r"\.(acquire|join|wait|get|result|recv|communicate|select)\(|\bos\.system\(|\bsubprocess\.", code):
        return f": it was waiting in `{code}`"
    return "; is there a loop that never ends?"


def is_callable(fn):
    """A function, or a Triton kernel, which is launched instead."""
    return callable(fn) or _attribute(fn, "run") is not None


def learner_lines(error, own_file):
    """(where, function, code) of the traceback's frames in the learner's file or cell, outermost first."""
    if own_file is None:
        return []
    found = collections.deque(maxlen=6)
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == own_file:
            found.append((line, frame))
    return [(f"line {line}", frame.f_code.co_name, linecache.getline(own_file, line).strip()) for line, frame in found]


def file_of(fn):
    """The file or cell that a function was written in; None for what has no code of its own."""
    for _ in range(5):
        code = _attribute(fn, "__code__")
        if code is not None:
            return _attribute(code, "co_filename")
        inner = [_attribute(fn, name)
                 for name in ("fn", "func", "__func__", "__wrapped__")] + [_attribute(type(fn), "__call__")]
        fn = next((part for part in inner if part is not None), None)
    return None


def _attribute(thing, name):
    try:
        return getattr(thing, name, None)
    except Exception:                                          # __getattr__ is a learner's code too
        return None
