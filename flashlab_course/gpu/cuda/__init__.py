"""The CUDA C++ sources of the course, and two ways to run them where there is a GPU.

    vector_add = kernel("vector_add")                      # compiled at run time (NVRTC), launched on torch tensors
    vector_add(grid=4, block=256)(A, B, C, 1000)
    print(run_program("vector_add", 1000000, 256))         # compiled by nvcc, a program of its own with its own timing
"""

import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

FILES = {                  # file: its kernels
    "vector_add.cu": ["vector_add"],
    "matrix_add.cu": ["matrix_add", "matrix_add_down_columns"],
    "divergence.cu": ["two_paths"],
    "block_sum.cu": ["block_sum"],
    "memory_levels.cu": ["stream_read", "shared_read", "pointer_chase", "shared_chase", "one_load_4", "one_load_16"],
}
SOURCES = {kernel: Path(__file__).parent / file for file, kernels in FILES.items() for kernel in kernels}


def source(name):
    """The text of the file that holds kernel `name`."""
    return SOURCES[name].read_text(encoding="utf-8")


def kernel_lines(name):
    """The lines of kernel `name` alone, for reading beside its Python twin in simt.py."""
    return re.search(rf"^[^\n]*void {name}\(.*?^}}", source(name), re.MULTILINE | re.DOTALL)[0]


@functools.cache
def kernel(name):
    """Compile kernel `name` for this GPU. Returns f(grid, block)(*arguments), launched on the current stream.

    Arguments are CUDA tensors (their addresses are passed) and integers (C int).
    """
    if name not in SOURCES:
        raise KeyError(f"no CUDA kernel {name!r}; there are {', '.join(SOURCES)}")
    if not torch.cuda.is_available():
        raise RuntimeError(f"{name} needs an NVIDIA GPU; flashlab_course.gpu.simt runs its Python twin on any machine")
    from torch.utils import cpp_extension

    if cpp_extension.CUDA_HOME is None:
        cpp_extension.CUDA_HOME = "/usr/local/cuda"        # torch wants the toolkit's headers; nothing uses them
    compiled = torch.cuda._compile_kernel(source(name), name)

    def configure(grid, block):
        grid, block = ((*size, 1, 1)[:3] if isinstance(size, tuple) else (size, 1, 1) for size in (grid, block))
        return lambda *arguments: compiled(grid=grid, block=block, args=list(arguments))

    return configure


def run_program(name, *arguments):
    """Compile the file that holds kernel `name` with nvcc, run it, return what it prints."""
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if not nvcc:
        raise RuntimeError("nvcc was not found: it comes with the CUDA toolkit")
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/{name}"
        for command in ([nvcc, "-arch=native", "-o", program, str(SOURCES[name])], [program, *map(str, arguments)]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)} failed with {done.returncode}: {done.stderr or done.stdout}")
    return done.stdout
