"""Compiles a Triton kernel for a GPU that need not be here: registers, spills, PTX, SASS.

Triton decides while it is imported whether kernels are interpreted or compiled (TRITON_INTERPRET), and a process that
interprets cannot compile. So the compiling is done by a second process, child.py, with the variable off.
"""

import ast
import base64
import functools
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

from flashlab.triton_mode import import_triton

IMPORTS = "import triton\nimport triton.language as tl\nfrom triton import jit"
# bytes one program may use: A100, RTX 3090, 4090, H100, B200
SHARED_LIMIT = {80: 163 * 1024, 86: 99 * 1024, 89: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024}


@dataclass
class Compiled:
    """One kernel compiled for one architecture. `warnings` are ptxas's own, "wgmma serialized" among them."""

    arch: int
    registers: int         # per thread, 255 at most
    spills: int            # bytes per thread that did not fit in registers and went to memory
    shared_bytes: int      # per program
    ttir: str              # Triton's own intermediate form, before anything is known of the GPU
    ttgir: str             # the same for this GPU: which thread holds which element
    ptx: str
    cubin: bytes
    warnings: list[str]

    @functools.cached_property
    def sass(self):
        """The machine code itself, disassembled on first use."""
        tool = Path(import_triton().__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(self.cubin)
            file.flush()
            return subprocess.run([tool, "-sass", file.name], capture_output=True, text=True, check=True).stdout


class CompileError(RuntimeError):
    """A kernel that the compiler refuses: the kind of exception, its reason, and the line of code, "" if unknown."""

    def __init__(self, kernel, kind, text):
        super().__init__(f"{kernel} does not compile: {kind}: {text[-4000:]}")
        # Triton prints the kernel up to that line, a caret under it, then the reason
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        at = max((n for n, line in enumerate(lines) if line == "^"), default=0)
        self.kind, self.line = kind, lines[at - 1] if at else ""
        said = " ".join(lines[at + 1:]) if at else " ".join(lines)[-200:]
        self.reason = re.sub(r"^\w+Error\(['\"](.*)['\"]\)$", r"\1", said)


def compile_for(kernel, arguments, arch):
    """Compile a Triton kernel for `arch` (one of SHARED_LIMIT's) as a launch with these arguments would.

    `arguments` maps every parameter's name to its value; tensors may be on the device "meta", and are taken as aligned.
    num_warps and num_stages may stand among them, as in a launch.
    Raises: ValueError for an unknown arch or a parameter without argument, CompileError
    """
    return compile_all([(kernel, arguments, arch)])[0]


def compile_all(jobs):
    """`compile_for` for a list of (kernel, arguments, arch), in one process. Raises for the first that fails."""
    results = try_all(jobs)
    for result in results:
        if isinstance(result, CompileError):
            raise result
    return results


def try_all(jobs, *, specialise=True):
    """Like compile_all, but a kernel that does not compile has its CompileError in the list.

    specialise=False leaves out what a launch knows of the values: strides of 1, multiples of 16.
    """
    request = [as_data(*job) | {"specialise": specialise} for job in jobs]
    program = [sys.executable, "-P", str(Path(__file__).with_name("child.py"))]    # -P: import nothing from this folder
    packages = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]      # kernels in Gluon are imported
    settings = {"TRITON_INTERPRET": "0", "PYTHONPATH": os.pathsep.join(filter(None, packages))}
    answer = subprocess.run(program, input=json.dumps(request), capture_output=True, text=True,
                            env=os.environ | settings)
    if answer.returncode:
        raise RuntimeError(f"the compiler failed:\n{answer.stderr[-4000:]}")
    results = []
    for job, result in zip(request, json.loads(answer.stdout.splitlines()[-1]), strict=True):
        if "error" in result:
            results.append(CompileError(job["kernel"], *result["error"]))
        else:
            results.append(Compiled(**result | {"cubin": base64.b64decode(result["cubin"])}))
    return results


def as_data(kernel, arguments, arch):
    """The job as plain data: the kernel by its source, a tensor by its dtype; so the child need not import torch."""
    if arch not in SHARED_LIMIT:
        raise ValueError(f"arch must be one of {', '.join(map(str, SHARED_LIMIT))}, got {arch!r}")
    name = kernel.fn.__name__
    missing = [parameter for parameter in inspect.signature(kernel.fn).parameters if parameter not in arguments]
    if missing:
        raise ValueError(f"arguments must name every parameter of {name}, missing: {', '.join(missing)}")
    job = {"kernel": name, "arguments": {key: plain(value) for key, value in arguments.items()}, "arch": arch}
    if hasattr(kernel, "is_gluon") and kernel.is_gluon():      # it uses classes and builtins: the child imports it
        return job | {"file": kernel.fn.__code__.co_filename}
    sources = {}
    add_source(kernel.fn, sources)
    return job | {"source": "\n\n".join([IMPORTS, *sources.values()])}


def plain(value):
    """An argument as plain data: a tensor by its dtype, a descriptor by that and the tile it copies."""
    dtype = lambda T: str(T.dtype).removeprefix("torch.")
    if hasattr(value, "block_shape"):
        layout = getattr(value, "layout", None)            # Gluon's have one
        return {"tensor": dtype(value.base), "block": value.block_shape, "layout": repr(layout) if layout else ""}
    return {"tensor": dtype(value)} if hasattr(value, "dtype") else value


def add_source(function, sources):
    """Add a kernel's text to `sources`, after the text of each constant, module and kernel that it uses.

    Raises: OSError if Python no longer has the source
    """
    text = textwrap.dedent(inspect.getsource(function))
    text = text[re.search(r"^def ", text, re.MULTILINE).start():]      # without decorators, as the interpreter has it
    used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    around = function.__globals__ | inspect.getclosurevars(function).nonlocals
    for name in sorted(used & around.keys() - sources.keys() - {function.__name__}):
        value = around[name]
        if inspect.isfunction(getattr(value, "fn", None)):
            add_source(value.fn, sources)
        elif inspect.ismodule(value):
            sources[name] = f"import {value.__name__} as {name}"
        elif isinstance(value, (int, float, str)):
            sources[name] = f"{name} = {literal(value)}"
        elif inspect.isfunction(value) and value.__module__.startswith("triton."):    # a builtin of the language
            sources[name] = f"from {value.__module__} import {value.__name__} as {name}"
        elif type(value).__name__ == "constexpr":
            sources[name] = f"{name} = tl.constexpr({literal(value.value)})"
    sources[function.__name__] = f"@jit\n{text}"


def literal(value):
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
