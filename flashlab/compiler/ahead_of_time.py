"""What the compiler makes of a Triton kernel for a GPU that need not be here: registers, spills, shared memory, PTX, SASS.

Triton decides while it is imported whether kernels are interpreted or compiled (TRITON_INTERPRET), and a process that
interprets cannot compile. So the compiling is done by a second process, this file run as a program, with the variable off.
"""

import base64
import functools
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

SHARED_LIMIT = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024}    # bytes one program may use: A100, H100, B200


@dataclass
class Compiled:
    """One kernel compiled for one architecture. `warnings` are ptxas's own, "wgmma serialized" among them."""

    arch: int
    registers: int         # per thread, 255 at most
    spills: int            # bytes per thread that did not fit in registers and went to memory
    shared_bytes: int      # per program
    ptx: str
    cubin: bytes
    warnings: list[str]

    @functools.cached_property
    def sass(self):
        """The machine code itself, disassembled on first use."""
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(self.cubin)
            file.flush()
            return _run_tool("cuobjdump", "-sass", file.name).stdout


def compile_for(kernel, arguments, arch):
    """Compile a Triton kernel for `arch` (80, 90 or 100: A100, H100, B200) as a launch with these arguments would.

    `arguments` maps every parameter's name to its value; tensors may be on the device "meta", and are taken as aligned.
    num_warps and num_stages may stand among them, as in a launch.
    """
    return compile_all([(kernel, arguments, arch)])[0]


def compile_all(jobs):
    """`compile_for` for a list of (kernel, arguments, arch), in one process: starting it costs 2 s, a kernel less than 1 s."""
    for _, _, arch in jobs:
        if arch not in SHARED_LIMIT:
            raise ValueError(f"arch must be one of {', '.join(map(str, SHARED_LIMIT))}, got {arch!r}")
    request = json.dumps([_describe_job(*job) for job in jobs])
    program = [sys.executable, "-m", "flashlab.compiler.ahead_of_time"]
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    answer = subprocess.run(program, input=request, capture_output=True, text=True, env=environment)
    if answer.returncode:
        raise RuntimeError(f"the compiler failed:\n{answer.stderr[-4000:]}")
    results = json.loads(answer.stdout.splitlines()[-1])
    return [Compiled(**result | {"cubin": base64.b64decode(result["cubin"])}) for result in results]


def _describe_job(kernel, arguments, arch):
    """The job as plain data: which kernel to import, and each tensor argument by its dtype."""
    if kernel.fn.__module__ == "__main__":
        raise ValueError(f"kernel must be importable from a module, {kernel.fn.__name__} is defined in __main__")
    missing = [name for name in inspect.signature(kernel.fn).parameters if name not in arguments]
    if missing:
        raise ValueError(f"arguments must name every parameter of {kernel.fn.__name__}, missing: {', '.join(missing)}")
    plain = {}
    for name, value in arguments.items():
        dtype = getattr(value, "dtype", None)
        plain[name] = value if dtype is None else {"tensor": str(dtype).removeprefix("torch.")}
    return {"module": kernel.fn.__module__, "kernel": kernel.fn.__qualname__, "arguments": plain, "arch": arch}


# ---- below: the second process


POINTERS = {"float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32", "float64": "*fp64", "int32": "*i32", "int64": "*i64"}


def _specialise(value):
    """(type, is it a multiple of 16?) of a run-time argument, by the rules of a launch. Loads are wide if it is."""
    if isinstance(value, dict):
        return POINTERS[value["tensor"]], True
    if isinstance(value, bool):
        return "i1", False
    if isinstance(value, float):
        return "fp32", False
    return ("i32" if -(2**31) <= value < 2**31 else "i64"), value % 16 == 0


def _compile(module, kernel, arguments, arch):
    import importlib

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(importlib.import_module(module), kernel)
    signature, constants, attributes = {}, {}, {}
    for n, parameter in enumerate(kernel.params):
        value = arguments.pop(parameter.name)
        if parameter.is_constexpr or value is None or (value == 1 and isinstance(value, int)):    # a stride of 1 is compiled in
            signature[parameter.name] = "constexpr"
            constants[n,] = value
            continue
        signature[parameter.name], multiple_of_16 = _specialise(value)
        if multiple_of_16:
            attributes[n,] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constants, attributes)
    binary = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=arguments)    # what is left: num_warps, ...
    registers, spills, warnings = _assemble(binary.asm["ptx"], arch)
    return {
        "arch": arch,
        "registers": registers,
        "spills": spills,
        "shared_bytes": binary.metadata.shared,
        "ptx": binary.asm["ptx"],
        "cubin": base64.b64encode(binary.asm["cubin"]).decode(),
        "warnings": warnings,
    }


def _assemble(ptx, arch):
    """ptxas once more, for what it says: registers, bytes spilled (stores and loads), warnings."""
    target = re.search(r"^\.target (\w+)", ptx, re.MULTILINE)[1]
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        tool = "ptxas-blackwell" if arch >= 100 else "ptxas"
        # the register allocator's level is the one Triton passes: another would report other registers
        log = _run_tool(tool, "-v", "--regAllocOptLevel=2", f"--gpu-name={target}", file.name, "-o", os.devnull).stderr
    spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill", log))
    warnings = [line for line in log.splitlines() if "warning" in line.lower() or "serializ" in line.lower()]
    return int(re.search(r"Used (\d+) registers", log)[1]), spills, warnings


def _run_tool(tool, *arguments):
    """One of the CUDA tools in triton's wheel."""
    import triton

    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / tool
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=True)


if __name__ == "__main__":
    print(json.dumps([_compile(**job) for job in json.load(sys.stdin)]))
