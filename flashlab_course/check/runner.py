"""Running a learner's code on one case: within its limits, watched, its output caught and its inputs verified."""

import contextlib
import linecache
import traceback
from dataclasses import dataclass, field

import torch

from flashlab import memory
from flashlab.triton_mode import import_triton
from flashlab_course.check import limits, points, raised
from flashlab_course.check.form import Breach
from flashlab_course.check.points import plain, tensors

# a kernel that is compiled for a GPU may take this many times the limit: the first launch builds it
COMPILING = 5

# Problems after which no further case is run, and no mistake looked for.
FINAL = {"not_implemented", "timeout", "memory"}


@dataclass
class Problem:
    """What went wrong before there was a result to compare: a kind, a sentence, and the learner's lines."""

    kind: str                  # not_implemented, timeout, raised, wrong_type, wrong_shape, wrong_dtype, ...
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


def slow_imports(exercise):
    """Modules that take seconds to import, which is no learner's time."""
    return ["triton"] * bool(exercise.triton and import_triton())


def run(exercise, fn, inputs, *, limit=None, own_file=None):
    """fn on one case's inputs. own_file: the file whose lines are the learner's."""
    given = dict(inputs)
    keep = {name: T.clone() for name, T in tensors(given)}
    outcome, sink = Outcome(), limits.Sink()
    with _guarded(exercise, given, outcome.facts) as guard:
        def body():
            with points.watched(exercise, fn, given, outcome.facts):
                result = exercise.invoke(fn, guard.inputs if guard else given)
            if guard is None:
                outcome.values, outcome.facts["container"] = plain(result)

        limit = limit or exercise.seconds * (1 if guard is None or guard.interpreted else COMPILING)
        error = limits.caught(body, limit, sink)
    outcome.printed = sink.getvalue()
    if isinstance(error, Breach) and error.results is not None:
        outcome.values, outcome.facts["container"] = plain(error.results)
        outcome.facts["changed"] = str(error)
        return outcome
    if error is not None:
        outcome.problem = describe(error, exercise, own_file, limit)
        return outcome
    if guard:
        outcome.values = guard.results()
        outcome.facts["container"] = "tuple" if len(outcome.values) > 1 else "Tensor"
    _look_for_changes(guard.plain() if guard else given, keep, outcome.facts)
    return outcome


@contextlib.contextmanager
def _guarded(exercise, inputs, facts):
    """The Guard over a Triton exercise's loads and stores, else None; what it saw ends up in facts."""
    if not exercise.triton:
        yield None
        return
    from flashlab_course.check.guard import Guard  # here: it imports Triton
    from flashlab_course.compiler.watch import watch

    guard = Guard(inputs, exercise.reads, exercise.writes)
    with watch(guard):
        yield guard
    facts |= guard.facts()


def _look_for_changes(inputs, keep, facts):
    for name, T in tensors(inputs):
        before = keep[name]
        if T.shape != before.shape or not torch.equal(T.detach().nan_to_num(0.125), before.nan_to_num(0.125)):
            facts.setdefault("changed", f"it changed its input {name} in place: whoever called it still needs {name}. "
                                        "Assign to a new name (`x = x * a`), not into the tensor (`x *= a`, "
                                        "`x[...] = a`)")


# ---- errors

def describe(error, exercise, own_file, seconds):
    """The Problem that an exception stands for."""
    error = unwrapped(error)
    lines = [(f"line {line}", frame.f_code.co_name, linecache.getline(own_file, line).strip())
             for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == own_file][-6:]
    name, text = type(error).__name__, str(error)[:2000]
    if isinstance(error, limits.TimeUp):
        return Problem("timeout", f"it was stopped after {seconds:g} seconds; is there a loop that never ends?", lines)
    if isinstance(error, MemoryError) or "can't allocate memory" in text:
        return Problem("memory", f"it needed more than {memory.format_bytes(limits.MEMORY)} of memory and was "
                                 "stopped. Does a loop create tensors without ever freeing them?", lines)
    if isinstance(error, NotImplementedError) and text.startswith(f"{exercise.name}:"):
        return Problem("not_implemented", text.partition(": ")[2], lines)
    if isinstance(error, Breach):
        return Problem(error.kind, text)
    if not isinstance(error, memory.MemoryModelError):         # whose text is written for a learner, line by line
        text = " ".join(text.split()) or "no message"
    # the checker has chosen its size: the advice is for other callers
    if isinstance(error, memory.SRAMOverflow):
        text = text.removesuffix(memory.OVERFLOW_ADVICE).rstrip()
    return Problem("raised", f"it raised {name}: {text}", lines, name, raised.seen(error, text, own_file))


def unwrapped(error):
    """Triton's interpreter wraps what the kernel raised, once for each function that it was called through."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    return error
