"""Chapter 02 on threads: blocks, warps, divergence, and the SIMT interpreter held against the GPU."""

import shutil
from functools import partial

import torch

from flashlab_course.bench.basics.here import max_error, rows_of, timed
from flashlab_course.gpu import cuda, simt


def vector_addition(here):
    """CUDA C++, Triton and PyTorch on the same sum; CUDA with blocks of 1 to 1024 threads; a Triton program of scalars."""
    from flashlab_course.gpu.vector_add import one_by_one_kernel, vector_add

    N = 2**26 // here.shrink + 5                           # a ragged tail
    X, Y = here.randn(N), here.randn(N)
    moved, total = 12 * N, X + Y

    def by_cuda(block):
        kernel = cuda.kernel("vector_add")(-(-N // block), block)

        def run():
            Out = torch.empty_like(X)
            kernel(X, Y, Out, N)
            return Out

        return timed(here, run, total, moved=moved)

    small = slice(0, max(64, N // 16))                     # one number at a time is slow: a sixteenth of the work
    cases = [({"by": "CUDA C++", "block": block, "N": N}, partial(by_cuda, block))
             for block in (1, 8, 16, 32, 64, 128, 256, 512, 1024)]
    cases += [
        ({"by": "PyTorch", "N": N}, lambda: timed(here, lambda: X + Y, total, moved=moved)),
        ({"by": "Triton", "block": 1024, "N": N}, lambda: timed(here, lambda: vector_add(X, Y), total, moved=moved)),
        ({"by": "Triton, a block at a time", "block": 128, "N": X[small].numel()},
         lambda: timed(here, lambda: vector_add(X[small], Y[small], B=128), total[small], moved=12 * X[small].numel())),
        ({"by": "Triton, one number at a time", "block": 128, "N": X[small].numel()},
         lambda: timed(here, lambda: vector_add(X[small], Y[small], B=128, kernel=one_by_one_kernel), total[small],
                       moved=12 * X[small].numel())),
    ]
    return rows_of(cases)


def divergence(here):
    """ms of two_paths where neighbours agree in groups of `period`: within a warp both paths are paid for."""
    N, rounds = 2**22 // here.shrink, max(2, 2000 // here.shrink)

    def run(period):
        X = here.randn(N)
        cuda.kernel("two_paths")(-(-N // 256), 256)(X, N, period, 64)
        group = torch.arange(N, device=here.device) // period % 2
        truth = torch.where(group == 0, 2.0, -4.0 / 3)     # the fixed points of x/2 + 1 and x/4 - 1
        error = (X - truth).abs().max().item()
        assert error < 1e-5, f"wrong: off by {error:.3g}"
        return timed(here, lambda: cuda.kernel("two_paths")(-(-N // 256), 256)(X, N, period, rounds))

    periods = [1, 2, 4, 8, 16, 32, 64, 128, 2**30]         # the last: everyone takes the first path
    return rows_of([({"period": period, "N": N, "rounds": rounds}, partial(run, period)) for period in periods])


def programs(here):
    """The three .cu files as programs: what nvcc's build of them prints."""
    if not shutil.which("nvcc"):
        raise RuntimeError("nvcc was not found")
    sizes = {"vector_add": (100_000_001 // here.shrink, 256), "matrix_add": (10_001, 8_003), "two_paths": (4_194_304, 2000)}
    return rows_of([({"program": name, "arguments": list(arguments)},
                     lambda name=name, arguments=arguments: {"prints": cuda.run_program(name, *arguments).splitlines()})
                    for name, arguments in sizes.items()])


def simulator(here):
    """The SIMT interpreter against the GPU: the same kernels on the same numbers. `equal` is bit for bit."""
    def compare(name, grid, block, tensors, numbers):
        real, model = [T.clone() for T in tensors], [T.cpu().clone() for T in tensors]
        cuda.kernel(name)(grid, block)(*real, *numbers)
        trace = simt.launch(getattr(simt, name), grid, block, shared=1024)(*model, *numbers)
        error = max_error(real[-1].cpu().flatten(), model[-1].flatten())
        assert error <= 1e-5, f"wrong: off by {error:.3g}"
        return {"equal": torch.equal(real[-1].cpu(), model[-1]), "error": error, "warp_steps": trace.warp_steps,
                "lane_use": round(trace.lane_use, 4)}

    vectors = lambda n, count: [here.randn(n) for _ in range(count)]
    matrices = [here.randn(40, 70) for _ in range(3)]
    cases = [("vector_add", 4, 64, vectors(200, 3), [200]), ("vector_add", 1, 64, vectors(8, 3), [8]),
             ("matrix_add", (3, 5), (32, 8), matrices, [40, 70]), ("matrix_add_down_columns", (2, 9), (32, 8), matrices, [40, 70])]
    cases += [("block_sum", 4, 128, [here.randn(512), here.randn(4)], [])]
    cases += [("two_paths", 2, 64, vectors(100, 1), [100, period, 5]) for period in (1, 16, 32)]
    return rows_of([({"kernel": case[0], "grid": case[1], "block": case[2], "numbers": case[4]}, partial(compare, *case))
                    for case in cases])


def idle_lanes(here):
    """ms of the same arithmetic with blocks of 8 to 256 threads: a block of 8 leaves 24 lanes of its warp idle."""
    N, rounds = 2**20 // here.shrink, max(2, 8000 // here.shrink)

    def run(block):
        X = here.randn(N)
        return timed(here, lambda: cuda.kernel("two_paths")(-(-N // block), block)(X, N, 2**30, rounds))

    return rows_of([({"block": block, "N": N, "rounds": rounds}, partial(run, block)) for block in (8, 16, 32, 64, 128, 256)])
