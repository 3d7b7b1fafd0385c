"""Compiles kernels for ahead_of_time.py, in a process that does not interpret them.

stdin: a list of jobs as JSON. stdout, last line: a list of results, one for each job. A kernel comes as source text, so
only Triton is imported; a kernel in Gluon comes as the name of its module.
"""

import base64
import contextlib
import importlib.util
import io
import json
import linecache
import re
import sys
from pathlib import Path

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.cache import get_cache_manager

knobs.nvidia.dump_ptxas_log = True                     # print what ptxas says: registers, bytes spilled, warnings

POINTERS = {"float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32", "float64": "*fp64", "int32": "*i32",
            "int64": "*i64", "float8_e4m3fn": "*fp8e4nv"}


def kernel_of(job):
    if "file" in job:                                  # each in a module of its own, whatever its name
        spec = importlib.util.spec_from_file_location("kernel", job["file"])
        spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
        return getattr(module, job["kernel"])
    name = f"<{job['kernel']}>"
    lines = job["source"].splitlines(keepends=True)
    linecache.cache[name] = (len(job["source"]), None, lines, name)     # Triton reads the source there
    namespace = {"__name__": "kernel"}
    exec(compile(job["source"], name, "exec"), namespace)
    return namespace[job["kernel"]]


def type_of(value):
    """Triton's name for the type of a run-time argument."""
    if isinstance(value, dict) and "block" in value:
        parts = [f"{POINTERS[value['tensor']][1:]}{value['block']}", value["layout"]]
        return f"tensordesc<{','.join(filter(None, parts))}>"
    if isinstance(value, dict):
        return POINTERS[value["tensor"]]
    if isinstance(value, int):
        return "i1" if isinstance(value, bool) else "i32" if -(2**31) <= value < 2**31 else "i64"
    return "fp32"


def in_sixteens(value):
    """Whether a launch knows a multiple of 16: a pointer or an integer. Loads are wide if it is."""
    if isinstance(value, dict):
        return "block" not in value
    return type(value) is int and value % 16 == 0


def ast_source(kernel, arguments, specialise):
    """The input of triton.compile, and the launch options among the arguments: num_warps, num_stages."""
    signature, constants, attributes, options = {}, {}, {}, dict(arguments)
    for n, parameter in enumerate(kernel.params):
        value = options.pop(parameter.name)
        known = specialise and not parameter.do_not_specialize
        one = known and type(value) is int and value == 1              # a stride of 1 is compiled in
        if parameter.is_constexpr or value is None or one:
            signature[parameter.name], constants[n,] = "constexpr", value
        else:
            signature[parameter.name] = type_of(value)
            if known and in_sixteens(value):
                attributes[n,] = [["tt.divisibility", 16]]
    if kernel.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource  # here: it takes a while, and few jobs need it

        return GluonASTSource(kernel, signature, constants, attributes), options | {"num_warps": arguments["num_warps"]}
    return ASTSource(kernel, signature, constants, attributes), options


def compiled(job):
    source, options = ast_source(kernel_of(job), job["arguments"], job["specialise"])
    binary, log = assembled(source, GPUTarget("cuda", job["arch"], 32), options)
    return {
        "arch": job["arch"],
        "registers": int(re.search(r"Used (\d+) registers", log)[1]),
        "spills": sum(int(n) for n in re.findall(r"(\d+) bytes spill", log)),         # stores and loads
        "shared_bytes": binary.metadata.shared,
        "ttir": without_places(binary.asm["ttir"]) if "ttir" in binary.asm else "",    # Gluon begins one form later
        "ttgir": without_places(binary.asm["ttgir"]),
        "ptx": binary.asm["ptx"],
        "cubin": base64.b64encode(binary.asm["cubin"]).decode(),
        "warnings": [line for line in log.splitlines() if "warning" in line.lower() or "serializ" in line.lower()],
    }


def without_places(text):
    """Triton's intermediate form without its notes on source lines."""
    return re.sub(r" loc\((?:[^()]|\([^()]*\))*\)", "", text)


def assembled(source, target, options):
    """The compiled kernel, and what its assembler ptxas said: Triton's cache keeps both."""
    for again in (False, True):                        # again: another program has cached the kernel without the log
        knobs.compilation.always_compile = again
        with contextlib.redirect_stdout(io.StringIO()) as said:
            binary = triton.compile(source, target=target, options=options)
        cache = get_cache_manager(binary.hash)
        if said.getvalue():
            cache.put(said.getvalue(), "ptxas.log", binary=False)
        if path := cache.get_file("ptxas.log"):
            return binary, Path(path).read_text()


def answer(job):
    try:
        return compiled(job)
    except Exception as error:
        return {"error": [type(error).__name__, str(error)]}


if __name__ == "__main__":
    print("\n" + json.dumps([answer(job) for job in json.load(sys.stdin)]))
