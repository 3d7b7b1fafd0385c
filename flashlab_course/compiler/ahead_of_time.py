"""What the compiler makes of a Triton kernel for a GPU that need not be here: registers, spills, PTX, SASS.

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
    """The compiler refuses a kernel: `kind` is its exception's class, `reason` its words, `line` the code it
    stumbled over ("" if it does not say)."""

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
    """As compile_all, but what does not compile has its CompileError in the list.

    specialise=False leaves out what a launch knows of the values: strides of 1, multiples of 16.
    Raises: ValueError as compile_for; RuntimeError if the compiling process itself fails
    """
    jobs = list(jobs)
    for _, _, arch in jobs:
        if arch not in SHARED_LIMIT:
            raise ValueError(f"arch must be one of {', '.join(map(str, SHARED_LIMIT))}, got {arch!r}")
    request = [_as_data(*job) | {"specialise": specialise} for job in jobs]
    program = [sys.executable, "-P", str(Path(__file__).with_name("child.py"))]    # -P: import nothing from this folder
    packages = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]      # kernels in Gluon are imported
    answer = subprocess.run(program, input=json.dumps(request), capture_output=True, text=True,
                            env=os.environ | {"TRITON_INTERPRET": "0",
                                              "PYTHONPATH": os.pathsep.join(filter(None, packages))})
    if answer.returncode:
        raise RuntimeError(f"the compiler failed:\n{answer.stderr[-4000:]}")
    results = json.loads(answer.stdout.splitlines()[-1])
    return [_result(job["kernel"], result) for job, result in zip(request, results, strict=True)]


def _result(kernel, result):
    if "error" in result:
        return CompileError(kernel, *result["error"])
    return Compiled(**result | {"cubin": base64.b64decode(result["cubin"])})


def _as_data(kernel, arguments, arch):
    """The job as plain data: the kernel by its source, a tensor by its dtype; so the child need not import torch."""
    name = kernel.fn.__name__
    missing = [parameter for parameter in inspect.signature(kernel.fn).parameters if parameter not in arguments]
    if missing:
        raise ValueError(f"arguments must name every parameter of {name}, missing: {', '.join(missing)}")
    plain = {}
    for key, value in arguments.items():
        plain[key] = _plain(value)
    job = {"kernel": name, "arguments": plain, "arch": arch}
    if is_gluon(kernel):                               # it uses classes and builtins, so the second process imports it
        return job | {"module": kernel.fn.__module__}
    return job | {"source": "\n\n".join(dict.fromkeys(source_of(kernel)))}


def _plain(value):
    """An argument as plain data: a tensor by its dtype, a descriptor by that and the tile it copies."""
    if hasattr(value, "block_shape"):
        layout = getattr(value, "layout", None)                        # Gluon's have one
        return {"tensor": _name(value.base.dtype), "block": value.block_shape, "layout": repr(layout) if layout else ""}
    return {"tensor": _name(value.dtype)} if hasattr(value, "dtype") else value


def _name(dtype):
    return str(dtype).removeprefix("torch.")


def source_of(kernel, seen=()):
    """Source texts that make a module of its own: imports, the constants and kernels that the kernel uses, the kernel.

    Raises: OSError if Python no longer has the source
    """
    yield "import triton\nimport triton.language as tl\nfrom triton import jit"
    text = textwrap.dedent(inspect.getsource(kernel.fn))
    text = text[re.search(r"^def ", text, re.MULTILINE).start():]                 # the interpreter strips decorators
    text = f"@jit\n{text}"
    yield from _around(text, kernel.fn, (kernel.fn, *seen))
    yield text


def _around(text, function, seen):
    """The source of what a function's text names, besides what it is given."""
    used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    around = function.__globals__ | inspect.getclosurevars(function).nonlocals
    for name in sorted(used & around.keys()):
        value = around[name]
        if inspect.isfunction(getattr(value, "fn", None)):
            if value.fn not in seen:
                yield from source_of(value, seen)
        elif inspect.ismodule(value):
            parent, dot, leaf = value.__name__.rpartition(".")
            yield (f"from {parent} " if dot else "") + f"import {leaf} as {name}"
        elif isinstance(value, (int, float, str)):
            yield f"{name} = {_literal(value)}"
        elif inspect.isfunction(value) and value.__module__.startswith("triton."):    # a builtin of the language
            yield f"from {value.__module__} import {value.__name__} as {name}"
        elif type(value).__name__ == "constexpr":
            yield f"{name} = tl.constexpr({_literal(value.value)})"


def is_gluon(kernel):
    """Whether a kernel is in Gluon, which is compiled even where Triton interprets."""
    return getattr(kernel, "is_gluon", lambda: False)()


def _literal(value):
    return f"float('{value}')" if isinstance(value, float) else repr(value)      # repr(inf) is no Python
