"""Does a Triton kernel compute addresses in 32 bits? Judged from what the compiler makes of it for a GPU.

No test on small tensors can show it: row · stride passes 2³¹ only for tensors of gigabytes. The kernel is compiled ahead of
time in a process of its own, because one that interprets kernels cannot compile them.
"""

import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import torch

from flashlab.check import runner
from flashlab.check.form import Mistake

PROGRAM = Path(__file__).with_name("compile_kernel.py")
POINTERS = {"float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32", "float64": "*fp64", "int32": "*i32", "int64": "*i64"}
REFUSED = Mistake("does_not_compile", "the interpreter runs this kernel, but Triton's compiler refuses it, so no GPU can",
                  "the line that the compiler names: not all of Python exists in a kernel")
REFUSALS = ("CompilationError", "UnsupportedLanguageConstruct", "CompileTimeAssertionFailure")


def narrow(name):
    """For Exercise.after: the mistake of this name if position · stride is multiplied in 32 bits anywhere.

    Also says so if the kernel cannot be compiled at all.
    """
    def look(exercise, fn):
        answer = compiled(exercise, fn)
        if answer.get("error", "").startswith(REFUSALS):
            return REFUSED, _gist(answer["error"])
        mistake = next(m for m in exercise.mistakes if m.name == name)
        if strides := narrow_products(answer.get("ttir", "")):
            return mistake, f"In the compiled kernel the product with {', '.join(strides)} has 32 bits"
        return None
    return look


def _gist(error):
    """The compiler prints the kernel up to the line it stumbled over, a caret under it, then the reason."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    at = max((n for n, line in enumerate(lines) if line == "^"), default=0)
    if at == 0:
        return f"The compiler says: {' '.join(lines)[-200:]}"
    return f"At `{lines[at - 1]}` the compiler says: {' '.join(lines[at + 1 :])}"


def compiled(exercise, fn):
    """{"ttir": text} or {"error": text} of the first kernel that fn launches, with 16-bit inputs if there is such a case.

    The compiler is stricter there. {} if the kernel's source cannot be had.
    """
    from flashlab.check.guard import Guard

    case = next((case for case in exercise.cases if "16-bit inputs" in case.features), exercise.cases[0])
    guard = Guard(case.make(), exercise.reads, exercise.writes)
    with guard.watch({}):
        runner.protected(lambda: exercise.invoke(fn, guard.inputs), 60)
    if not guard.launches:
        return {}
    try:
        request = json.dumps(job(*guard.launches[0]))
        answer = subprocess.run([sys.executable, "-P", PROGRAM], input=request, capture_output=True, text=True, timeout=60,
                                env=os.environ | {"TRITON_INTERPRET": "0"})
    except (OSError, TypeError, KeyError, subprocess.TimeoutExpired):    # no source, or an argument that is no plain value
        return {}
    return json.loads(answer.stdout.splitlines()[-1]) if answer.returncode == 0 and answer.stdout else {}


def job(kernel, args, kwargs):
    """A launch as plain data: the kernel's source, the type of each argument, the values of the constants."""
    parameters = inspect.signature(kernel.fn).parameters
    values = inspect.signature(kernel.fn).bind(*args, **{k: v for k, v in kwargs.items() if k in parameters}).arguments
    signature, constants = {}, {}
    for n, (name, parameter) in enumerate(parameters.items()):
        value = values.get(name, parameter.default)
        if "constexpr" in str(parameter.annotation):
            signature[name], constants[n] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name] = POINTERS[str(value.dtype).removeprefix("torch.")]
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
    return {"source": source_of(kernel), "kernel": kernel.fn.__name__, "signature": signature, "constants": constants}


def source_of(kernel, done=None):
    """The kernel's text with the kernels, constants and modules that it names: enough to compile it elsewhere."""
    done = {} if done is None else done
    text = textwrap.dedent(inspect.getsource(kernel.fn))
    done[kernel.fn.__name__] = ""                            # a kernel that calls itself ends here
    before = []
    for name in re.findall(r"\b[A-Za-z_]\w*\b", text):
        value = kernel.fn.__globals__.get(name)
        if name in done or value is None:
            continue
        if hasattr(value, "fn") and callable(getattr(value, "fn", None)):
            before.append(source_of(value, done))
        elif isinstance(value, types.ModuleType):
            before.append(f"import {value.__name__} as {name}")
        elif isinstance(value, (bool, int, float)):
            before.append(f"{name} = {_literal(value)}")
        elif type(value).__name__ == "constexpr":
            before.append(f"{name} = tl.constexpr({_literal(value.value)})")
        else:
            continue
        done[name] = ""
    return "\n".join([*before, text])


def _literal(value):
    return f"float('{value}')" if isinstance(value, float) else repr(value)      # repr(inf) is no Python


def narrow_products(ttir):
    """Names of the arguments that are multiplied with a position (program, loop variable) in 32 bits."""
    argument = {name: name for name in re.findall(r"%(\w+): i32", ttir.partition("attributes")[0])}
    position, found = set(), []
    for line in ttir.splitlines():
        if loop := re.search(r"scf\.for %(\w+) = ", line):
            position |= {loop[1], *re.findall(r"%(\w+) = %", line.partition("iter_args")[2])}
        made = re.match(r"\s*%(\w+)(?::\d+)? = ([\w.]+) (.*)", line)
        if not made:
            continue
        name, op, rest = made.groups()
        operands = re.findall(r"%(\w+)", rest)
        narrow_type = re.search(r": (?:tensor<[\dx]*x)?i32>?(?:\s|$|\))", rest + " ")
        if op == "arith.muli" and narrow_type:
            for a, b in (operands[:2], operands[1::-1]):
                if a in argument and b in position and argument[a] not in found:
                    found.append(argument[a])
        if op == "tt.get_program_id" or any(o in position for o in operands):
            position.add(name)
        if op in ("tt.splat", "tt.broadcast", "tt.expand_dims") and operands and operands[0] in argument:
            argument[name] = argument[operands[0]]
    return found
