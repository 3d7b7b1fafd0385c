"""Chapter 02 on threads: blocks, warps, divergence, and the SIMT interpreter held against the GPU."""

import shutil
from functools import partial

import torch

from flashlab_course.bench.basics.here import max_error, within
from flashlab_course.gpu import cuda, simt


def vector_addition(here):
    """CUDA C++ with blocks of 1 to 1024 threads, Triton and PyTorch on one sum; a Triton program of scalars."""
    from flashlab_course.gpu.vector_add import one_by_one_kernel, vector_add

    N = 2**26 // here.shrink + 5                           # a ragged tail
    X, Y = here.randn(N), here.randn(N)
    x, y = (T[:max(64, N // 16)] for T in (X, Y))          # one number at a time is slow: a sixteenth of the work

    def by_cuda(kernel):
        Out = torch.empty_like(X)
        kernel(X, Y, Out, N)
        return Out

    for block in (1, 8, 16, 32, 64, 128, 256, 512, 1024):
        kernel = cuda.kernel("vector_add")(-(-N // block), block)
        yield {"by": "CUDA C++", "block": block, "N": N}, here.timed(partial(by_cuda, kernel), X + Y, moved=12 * N)
    yield {"by": "PyTorch", "N": N}, here.timed(lambda: X + Y, X + Y, moved=12 * N)
    yield {"by": "Triton", "block": 1024, "N": N}, here.timed(lambda: vector_add(X, Y), X + Y, moved=12 * N)
    for by, options in (("a block at a time", {}), ("one number at a time", {"kernel": one_by_one_kernel})):
        call = partial(vector_add, x, y, B=128, **options)
        yield {"by": f"Triton, {by}", "block": 128, "N": len(x)}, here.timed(call, x + y, moved=12 * len(x))


def divergence(here):
    """ms of two_paths where neighbours agree in groups of `period`: within a warp both paths are paid for."""
    N, rounds = 2**22 // here.shrink, here.size(2000, 2)

    def measured(period):
        X, kernel = here.randn(N), cuda.kernel("two_paths")(-(-N // 256), 256)
        kernel(X, N, period, 64)
        group = torch.arange(N, device=here.device) // period % 2
        within(1e-5, max_error(X, torch.where(group == 0, 2.0, -4.0 / 3)))     # fixed points of x/2 + 1 and x/4 - 1
        return here.timed(partial(kernel, X, N, period, rounds))()

    for period in (1, 2, 4, 8, 16, 32, 64, 128, 2**30):    # the last: everyone takes the first path
        yield {"period": period, "N": N, "rounds": rounds}, partial(measured, period)


def programs(here):
    """The three .cu files as programs: what nvcc's build of them prints."""
    if not shutil.which("nvcc"):
        raise RuntimeError("nvcc was not found")
    vectors = 100_000_001 // here.shrink, 256
    sizes = {"vector_add": vectors, "matrix_add": (10_001, 8_003), "two_paths": (4_194_304, 2000)}
    for name, arguments in sizes.items():
        run = partial(cuda.run_program, name, *arguments)
        yield {"program": name, "arguments": list(arguments)}, lambda run=run: {"prints": run().splitlines()}


def simulator(here):
    """The SIMT interpreter against the GPU: the same kernels on the same numbers. `equal` is bit for bit."""
    def compare(name, grid, block, tensors, numbers):
        real, model = [T.clone() for T in tensors], [T.cpu().clone() for T in tensors]
        cuda.kernel(name)(grid, block)(*real, *numbers)
        trace = simt.launch(getattr(simt, name), grid, block, shared=1024)(*model, *numbers)
        found, expected = real[-1].cpu(), model[-1]
        error = within(1e-5, max_error(found.flatten(), expected.flatten()))
        steps = {"warp_steps": trace.warp_steps, "lane_use": round(trace.lane_use, 4)}
        return {"equal": torch.equal(found, expected), "error": error} | steps

    vectors = lambda *sizes: [here.randn(n) for n in sizes]
    matrices = [here.randn(40, 70) for _ in range(3)]
    cases = [("vector_add", 4, 64, vectors(200, 200, 200), [200]), ("vector_add", 1, 64, vectors(8, 8, 8), [8]),
             ("matrix_add", (3, 5), (32, 8), matrices, [40, 70]),
             ("matrix_add_down_columns", (2, 9), (32, 8), matrices, [40, 70]),
             ("block_sum", 4, 128, vectors(512, 4), [])]
    cases += [("two_paths", 2, 64, vectors(100), [100, period, 5]) for period in (1, 16, 32)]
    for name, grid, block, tensors, given in cases:
        labels = {"kernel": name, "grid": grid, "block": block, "numbers": given}
        yield labels, partial(compare, name, grid, block, tensors, given)


def idle_lanes(here):
    """ms of the same arithmetic with blocks of 8 to 256 threads: a block of 8 leaves 24 lanes of its warp idle."""
    N, rounds = 2**20 // here.shrink, here.size(8000, 2)
    X = here.randn(N)
    for block in (8, 16, 32, 64, 128, 256):
        kernel = cuda.kernel("two_paths")(-(-N // block), block)
        yield {"block": block}, here.timed(partial(kernel, X, N, 2**30, rounds))
