"""The CUDA C++ sources of the course, and two ways to run them where there is a GPU.

    vector_add = kernel("vector_add")                      # compiled at run time (NVRTC), launched on torch tensors
    vector_add(grid=4, block=256)(A, B, C, 1000)
    print(run_program("vector_add", 1000000, 256))         # compiled by nvcc, a program of its own with its own timing
"""

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCES = {                # kernel -> file
    "vector_add": "vector_add.cu",
    "matrix_add": "matrix_add.cu",
    "matrix_add_down_columns": "matrix_add.cu",
    "two_paths": "divergence.cu",
    "block_sum": "block_sum.cu",
    "stream_read": "memory_levels.cu",
    "shared_read": "memory_levels.cu",
    "pointer_chase": "memory_levels.cu",
    "shared_chase": "memory_levels.cu",
    "one_load_4": "memory_levels.cu",
    "one_load_16": "memory_levels.cu",
}


def source(name):
    """The text of the file that holds kernel `name`."""
    return (Path(__file__).parent / SOURCES[name]).read_text(encoding="utf-8")


def kernel_lines(name):
    """The lines of kernel `name` alone, for reading beside its Python twin in simt.py."""
    lines = source(name).splitlines()
    first = next(n for n, line in enumerate(lines) if f"void {name}(" in line)
    last = next(n for n, line in enumerate(lines) if n > first and line == "}")
    return "\n".join(lines[first:last + 1])


@functools.cache
def _compile(name):
    from torch.utils import cpp_extension

    if cpp_extension.CUDA_HOME is None:
        cpp_extension.CUDA_HOME = "/usr/local/cuda"        # torch wants the toolkit's headers; nothing uses them
    return torch.cuda._compile_kernel(source(name), name)


def kernel(name):
    """Compile kernel `name` for this GPU. Returns f(grid, block)(*arguments), launched on the current stream.

    Arguments are CUDA tensors (their addresses are passed) and integers (C int).
    Raises: KeyError for an unknown name, RuntimeError without a GPU, for an error of the compiler or of the launch
    """
    if name not in SOURCES:
        raise KeyError(f"no CUDA kernel {name!r}; there are {', '.join(SOURCES)}")
    if not torch.cuda.is_available():
        raise RuntimeError(f"{name} needs an NVIDIA GPU; flashlab_course.gpu.simt runs its Python twin on any machine")
    compiled = _compile(name)

    def configure(grid, block):
        grid, block = ((*size, 1, 1)[:3] if isinstance(size, tuple) else (size, 1, 1) for size in (grid, block))
        return lambda *arguments: compiled(grid=grid, block=block, args=list(arguments))

    return configure


def run_program(name, *arguments):
    """Compile the file that holds kernel `name` with nvcc, run it, return what it prints.

    Raises: RuntimeError with nvcc's or the program's own message
    """
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if not nvcc:
        raise RuntimeError("nvcc was not found: it comes with the CUDA toolkit")
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, name)
        path = Path(__file__).parent / SOURCES[name]
        _run([nvcc, "-arch=native", "-o", program, str(path)])
        return _run([program, *map(str, arguments)])


def _run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed with {done.returncode}: {done.stderr or done.stdout}")
    return done.stdout
