"""Does a Triton kernel compute addresses in 32 bits? Judged from what the compiler makes of it for a GPU.

No test on small tensors can show it: row · stride passes 2³¹ only for tensors of gigabytes. The kernel is compiled ahead of
time in a process of its own (this file run as a program), because a process that interprets kernels cannot compile them.
"""

import json
import os
import re
import subprocess
import sys

POINTERS = {"float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32", "float64": "*fp64", "int32": "*i32", "int64": "*i64"}
ARCH = 90                      # any would do: the question is settled before the code depends on the GPU


def narrow(name):
    """For Exercise.after: the mistake of this name if position · stride is multiplied in 32 bits anywhere."""
    def look(exercise, fn):
        answer = compiled(exercise, fn)
        mistake = next(m for m in exercise.mistakes if m.name == name)
        if strides := narrow_products(answer.get("ttir", "")):
            return mistake, f"In the compiled kernel the product with {', '.join(strides)} has 32 bits"
        return None
    return look


def compiled(exercise, fn):
    """{"ttir": text} or {"error": text} of the first kernel that fn launches on the smallest case; {} if that cannot be had."""
    from flashlab.check.guard import Guard

    inputs = exercise.cases[0].make()
    guard = Guard(inputs, exercise.reads, exercise.writes)
    with guard.watch({}):
        exercise.invoke(fn, guard.inputs)
    if not guard.launches:
        return {}
    try:
        request = json.dumps(job(*guard.launches[0]))
    except (OSError, TypeError, KeyError):                   # no source, or an argument that is no plain value
        return {}
    answer = subprocess.run([sys.executable, "-P", __file__], input=request, capture_output=True, text=True,
                            env=os.environ | {"TRITON_INTERPRET": "0"})
    return json.loads(answer.stdout.splitlines()[-1]) if answer.returncode == 0 and answer.stdout else {}


def job(kernel, args, kwargs):
    """A launch as plain data: the kernel's source, the type of each argument, the values of the constants."""
    import inspect

    import torch

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
    import inspect
    import textwrap
    import types

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


# ---- below: the second process, which imports Triton and nothing of flashlab

def _compile(source, kernel, signature, constants):
    import linecache

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    linecache.cache["<kernel>"] = (len(source), None, source.splitlines(keepends=True), "<kernel>")
    namespace = {"__name__": "kernel"}
    exec(compile("import triton\nimport triton.language as tl", "<imports>", "exec"), namespace)
    exec(compile(source, "<kernel>", "exec"), namespace)
    built = ASTSource(namespace[kernel], signature, {(int(n),): value for n, value in constants.items()}, {})
    text = triton.compile(built, target=GPUTarget("cuda", ARCH, 32)).asm["ttir"]
    return re.sub(r" loc\((?:[^()]|\([^()]*\))*\)", "", text)


if __name__ == "__main__":
    try:
        answer = {"ttir": _compile(**json.load(sys.stdin))}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer))
