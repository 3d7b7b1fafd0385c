"""What chapters 02 and 09 say about a GPU, measured on one: `python -m flashlab bench basics --out results/basics_<gpu>.json`.

Each section answers one question with a list of rows. A row is timed only after its result has matched a reference; where
that fails, or anything else does, the row (or the section) says why in "skipped", and the others go on.
"""

import argparse
import csv
import math
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

from flashlab.bench.forward import ROOT, attempt, deadline, gpu_slug, load_results, provenance, quick_ms, save, where, why_no_gpu
from flashlab.gpu import cuda

GiB, MiB, KiB = 2**30, 2**20, 2**10
OUT_OF_TIME = "not measured: the time budget was used up"


class Here(NamedTuple):
    """Where and how to measure. `shrink` divides the sizes: tests run every section on a CPU, on next to nothing."""

    device: str = "cuda"
    timer: object = quick_ms
    shrink: int = 1

    def sizes(self, nbytes, smallest=16 * KiB):
        return sorted({max(smallest, n // self.shrink) for n in nbytes})

    def randn(self, *shape, dtype=torch.float32):
        return torch.randn(*shape, device=self.device, dtype=dtype)


def timed(here, function, reference=None, tolerance=0.0, moved=0, flops=0):
    """Median, 20th and 80th percentile of `function`'s ms, once its result is within `tolerance` of the reference.

    moved, flops   bytes and operations of one call: with them come TB/s and TFLOP/s
    Raises: AssertionError if the result is off, or NaN
    """
    row, result = {}, function()
    if reference is not None:
        row["error"] = max_error(result, reference)
        assert row["error"] <= tolerance, f"wrong: off by {row['error']:.3g}, allowed {tolerance:.3g}"
    ms = torch.tensor(here.timer(function), dtype=torch.float64)
    low, median, high = ms.quantile(torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)).tolist()
    row |= {"ms": round(median, 6), "ms_low": round(low, 6), "ms_high": round(high, 6)}
    if moved:
        row |= {"bytes": moved, "tb_s": round(moved / median / 1e9, 4)}
    if flops:
        row |= {"flops": flops, "tflops": round(flops / median / 1e9, 3)}
    return row


def max_error(result, reference):
    """max |result - reference| in float64, a slice of rows at a time."""
    pairs = zip(result.split(2**13), reference.split(2**13), strict=True)
    errors = [(a.double() - b.double()).abs().max().item() for a, b in pairs]
    return math.nan if any(map(math.isnan, errors)) else max(errors)


def rows_of(cases):
    """One row for each (labels, function that measures it)."""
    rows = []
    for labels, measure in cases:
        numbers, reason = attempt(measure)
        rows.append(labels | (numbers or {}) | ({"skipped": reason} if reason else {}))
    return rows


# ---- chapter 02: memory


def memory_bandwidth(here):
    """TB/s read from a buffer of each size: what fits in the L2 cache comes faster than what does not. And shared memory."""
    sink = torch.zeros(1, device=here.device)
    programs = 8 * sm_count(here)                          # 8 blocks of 256 threads: 2048 threads, all an SM holds

    def stream(nbytes):
        X = torch.rand(nbytes // 4, device=here.device)    # numbers >= 0: stream_read counts on it
        rounds = max(1, 4 * GiB // here.shrink // nbytes)
        kernel = cuda.kernel("stream_read")(programs, 256)
        return timed(here, lambda: kernel(X, nbytes // 16, rounds, sink), moved=nbytes * rounds)

    def shared():
        X, rounds = torch.rand(8192, device=here.device), max(1, 2000 // here.shrink)
        kernel = cuda.kernel("shared_read")(4 * sm_count(here), 512)
        return timed(here, lambda: kernel(X, rounds, sink), moved=4 * sm_count(here) * 32 * KiB * rounds)

    sizes = here.sizes(n * MiB for n in (1, 2, 4, 8, 16, 24, 32, 40, 48, 64, 96, 128, 256, 512, 1024))
    cases = [({"level": "cache or HBM", "footprint": n}, partial(stream, n)) for n in sizes]
    return rows_of([*cases, ({"level": "shared memory", "footprint": 32 * KiB}, shared)])


def memory_latency(here):
    """ns for one load when each address depends on the load before: how far away a level is."""
    sink = torch.zeros(1, device=here.device, dtype=torch.int32)
    steps = max(64, 2**15 // here.shrink)

    def chase(nbytes):
        lines = nbytes // 128                              # one number in each cache line
        order = torch.randperm(lines, device=here.device) * 32
        following = torch.zeros(nbytes // 4, dtype=torch.int32, device=here.device)
        following[order] = order.roll(-1).to(torch.int32)  # a single ring through every line, in random order
        kernel, starts = cuda.kernel("pointer_chase")(1, 1), iter(order[::lines // 12].tolist())     # far apart: no lines twice
        kernel(following, 0, lines if lines <= 2**18 else 1000, sink)  # warm: what fits a cache is there now
        return per_step(lambda: kernel(following, next(starts), steps, sink))

    def shared_chase():
        order = torch.randperm(4096 // 32, device=here.device) * 32
        following = torch.zeros(4096, dtype=torch.int32, device=here.device)
        following[order] = order.roll(-1).to(torch.int32)
        kernel = cuda.kernel("shared_chase")(1, 1)
        return per_step(lambda: kernel(following, 4096, steps, sink))

    def per_step(launch):
        launch()
        ns = sorted(once_ms(here, launch) / steps * 1e6 for _ in range(9))[4]
        return {"ns": round(ns, 2)}

    sizes = here.sizes(n * KiB for n in (16, 64, 128, 512, 2 * 1024, 8 * 1024, 16 * 1024, 128 * 1024, 1024 * 1024))
    cases = [({"level": "cache or HBM", "footprint": n}, partial(chase, n)) for n in sizes]
    return rows_of([*cases, ({"level": "shared memory", "footprint": 16 * KiB}, shared_chase)])


def once_ms(here, launch):
    """ms of a single launch, with nothing cleared before it: a latency, not a throughput."""
    if here.device != "cuda":
        launch()
        return 1.0
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    launch()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop)


def sm_count(here):
    return torch.cuda.get_device_properties(0).multi_processor_count if here.device == "cuda" else 1


def ceilings(here):
    """A device copy's TB/s, bytes read + written, and the TFLOP/s of a large matrix product by PyTorch."""
    def copy():
        source = here.randn(GiB // 4 // here.shrink)
        target = torch.empty_like(source)
        return timed(here, lambda: target.copy_(source), moved=2 * source.nbytes)

    def product(dtype, n):
        A, B = (here.randn(n, n).to(dtype) for _ in range(2))
        return timed(here, lambda: A @ B, flops=2 * n**3)

    n = max(16, 8192 // here.shrink)
    return rows_of([({"what": "copy"}, copy), ({"what": "float16 matmul", "n": n}, partial(product, torch.float16, n)),
                    ({"what": "float32 matmul", "n": n // 2}, partial(product, torch.float32, n // 2))])


def roofline(here):
    """Each operation of naive attention, the fused kernels, a matmul and a vector addition: FLOPs, bytes, ms."""
    H, N, d = 16, max(64, 4096 // here.shrink), 64
    half = torch.float16
    Q, K, V = (here.randn(1, H, N, d, dtype=half) for _ in range(3))
    S = Q @ K.transpose(-1, -2)
    P = torch.softmax(S * d**-0.5, -1)
    x, y = here.randn(2**27 // here.shrink), here.randn(2**27 // here.shrink)
    n = max(64, 4096 // here.shrink)
    A, B = here.randn(n, n, dtype=half), here.randn(n, n, dtype=half)
    matrix, rows = 2 * H * N * N, 2 * H * N * d            # bytes of S, and of Q, K, V or O
    product = 2 * H * N * N * d

    def fused():
        from flashlab.kernels.fa2 import fa2_triton_forward

        return timed(here, lambda: fa2_triton_forward(Q, K, V)[0], P @ V, 0.02, moved=4 * rows, flops=2 * product)

    cases = [
        ("QKᵀ", lambda: timed(here, lambda: Q @ K.transpose(-1, -2), moved=2 * rows + matrix, flops=product)),
        ("scale", lambda: timed(here, lambda: S * d**-0.5, moved=2 * matrix, flops=H * N * N)),
        ("softmax", lambda: timed(here, lambda: torch.softmax(S, -1), moved=2 * matrix, flops=5 * H * N * N)),
        ("PV", lambda: timed(here, lambda: P @ V, moved=2 * rows + matrix, flops=product)),
        ("FA2 (Triton)", fused),
        ("SDPA", lambda: timed(here, lambda: scaled_dot_product_attention(Q, K, V), moved=4 * rows, flops=2 * product)),
        (f"matmul {n}³", lambda: timed(here, lambda: A @ B, moved=6 * n * n, flops=2 * n**3)),
        ("vector add", lambda: timed(here, lambda: x + y, moved=3 * x.nbytes, flops=x.numel())),
    ]
    return rows_of([({"op": op, "H": H, "N": N, "d": d}, measure) for op, measure in cases])


# ---- chapter 02: threads


def vector_addition(here):
    """CUDA C++, Triton and PyTorch on the same sum; CUDA with blocks of 1 to 1024 threads; a Triton program of scalars."""
    from flashlab.gpu.vector_add import one_by_one_kernel, vector_add

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
    from flashlab.gpu import simt

    def compare(name, grid, block, tensors, numbers):
        real, model = [T.clone() for T in tensors], [T.cpu().clone() for T in tensors]
        cuda.kernel(name)(grid, block)(*real, *numbers)
        trace = simt.launch(getattr(simt, name), grid, block)(*model, *numbers)
        error = max_error(real[-1].cpu().flatten(), model[-1].flatten())
        assert error <= 1e-5, f"wrong: off by {error:.3g}"
        return {"equal": torch.equal(real[-1].cpu(), model[-1]), "error": error, "warp_steps": trace.warp_steps,
                "lane_use": round(trace.lane_use, 4)}

    vectors = lambda n, count: [here.randn(n) for _ in range(count)]
    matrices = [here.randn(40, 70) for _ in range(3)]
    cases = [("vector_add", 4, 64, vectors(200, 3), [200]), ("vector_add", 1, 64, vectors(8, 3), [8]),
             ("matrix_add", (3, 5), (32, 8), matrices, [40, 70]), ("matrix_add_down_columns", (2, 9), (32, 8), matrices, [40, 70])]
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


# ---- chapter 09: memory access


def coalescing(here):
    """The same matrix addition with neighbours along a row, down a column, at strides, and in Triton on transposed views."""
    from flashlab.gpu.matrix_add import matrix_add

    M, N = 8192 // here.shrink, 8192 // here.shrink
    X, Y = here.randn(M, N), here.randn(M, N)

    def by_cuda(name, grid):
        kernel = cuda.kernel(name)(grid, (32, 8))

        def run():
            Out = torch.empty_like(X)
            kernel(X, Y, Out, M, N)
            return Out

        return timed(here, run, X + Y, moved=3 * X.nbytes)

    def by_triton(A, B, **options):
        return timed(here, lambda: matrix_add(A, B, **options), A + B, moved=12 * A.numel())

    def strided(step):                                     # every step-th number of a row: the rest of each sector is wasted
        A, B = (here.randn(M // 2, N // 4 * step)[:, ::step] for _ in range(2))
        return by_triton(A, B)

    cases = [
        ({"by": "CUDA C++", "access": "along rows"}, partial(by_cuda, "matrix_add", (-(-N // 32), -(-M // 8)))),
        ({"by": "CUDA C++", "access": "down columns"},
         partial(by_cuda, "matrix_add_down_columns", (-(-M // 32), -(-N // 8)))),
        ({"by": "Triton", "access": "both row-major"}, lambda: by_triton(X, Y)),
        ({"by": "Triton", "access": "one transposed"}, lambda: by_triton(X, Y.T)),
        ({"by": "Triton", "access": "both transposed"}, lambda: by_triton(X.T, Y.T)),
        ({"by": "Triton", "access": "descriptors"}, lambda: by_triton(X, Y, descriptors=True)),
        ({"by": "PyTorch", "access": "both row-major"}, lambda: timed(here, lambda: X + Y, X + Y, moved=3 * X.nbytes)),
        ({"by": "PyTorch", "access": "one transposed"}, lambda: timed(here, lambda: X + Y.T, X + Y.T, moved=3 * X.nbytes)),
    ]
    cases += [({"by": "Triton", "access": "strided", "stride": step}, partial(strided, step)) for step in (1, 2, 4, 8, 16, 32)]
    return rows_of(cases)


def key_loading(here):
    """K loaded transposed, or transposed after the load; the compiler knows that K's last stride is 1, or does not."""
    from flashlab.gpu.largest_score import largest_scores

    def run(d, transposed_load, blind):
        Q, K = (here.randn(max(128, 16384 // here.shrink), d, dtype=torch.float16) for _ in range(2))
        truth = torch.cat([(part.float() @ K.float().T).amax(1) for part in Q.split(2048)])
        call = lambda: largest_scores(Q, K, transposed_load=transposed_load, blind=blind)
        return timed(here, call, truth, 1e-2, flops=2 * Q.shape[0] * K.shape[0] * d)

    return rows_of([({"d": d, "transposed_load": t, "stride_known": not blind}, partial(run, d, t, blind))
                    for d in (64, 128) for blind in (False, True) for t in (False, True)])


def atomics(here):
    """A sum by atomic additions per element, per program, and without; and in how many ways the last digits come out."""
    from flashlab.gpu.vector_sum import vector_sum

    X = here.randn(2**24 // here.shrink)

    def run(function):
        results = {function().item() for _ in range(20)}
        numbers = timed(here, function, X.double().sum().reshape(1), 1e-6 * X.numel() + 1e-3, moved=X.nbytes)
        return numbers | {"different_results_of_20": len(results)}

    cases = [({"how": how, "N": X.numel()}, partial(run, lambda how=how: vector_sum(X, how=how)))
             for how in ("element", "block", "partial")]
    return rows_of([*cases, ({"how": "torch.sum", "N": X.numel()}, partial(run, lambda: X.sum().reshape(1)))])


# ---- chapter 09: softmax and matmul


def softmax(here):
    """Row softmax: the kernel, torch.softmax, five eager operations, and a copy of the same bytes."""
    from flashlab.gpu.row_softmax import row_softmax

    def eager(X):
        E = torch.exp(X - X.amax(1, keepdim=True))
        return E / E.sum(1, keepdim=True)

    cases = []
    for dtype in (torch.float16, torch.float32):
        for N in (256, 512, 781, 1024, 2048, 3000, 4096, 5000, 8192, 16384, 32768):
            X = here.randn(max(2, 2**26 // here.shrink // N), N, dtype=dtype)
            labels = {"N": N, "M": X.shape[0], "dtype": str(dtype).removeprefix("torch.")}
            tolerance = 1e-3 if dtype == torch.float16 else 1e-6
            Y = torch.empty_like(X)
            functions = {"kernel": lambda X: row_softmax(X), "torch": lambda X: torch.softmax(X, 1)}
            functions |= {"eager": eager} if N in (1024, 4096) else {}
            for by, function in functions.items():
                cases.append((labels | {"by": by}, lambda X=X, function=function, tolerance=tolerance: timed(
                    here, lambda: function(X), torch.softmax(X.float(), 1), tolerance, moved=2 * X.nbytes)))
            cases.append((labels | {"by": "copy"}, lambda X=X, Y=Y: timed(here, lambda: Y.copy_(X), moved=2 * X.nbytes)))
    return rows_of(cases)


def softmax_tuning(here):
    """The kernel's ms for other numbers of rows and warps a program: where `tiling` comes from."""
    from flashlab.gpu.row_softmax import row_softmax

    cases = []
    for N, choices in ((256, [(4, 4), (8, 4), (16, 4), (16, 8)]), (781, [(1, 1), (1, 2), (1, 4), (2, 2), (4, 4)]),
                       (1024, [(1, 4), (2, 4), (4, 4), (4, 8)]), (3000, [(1, 4), (1, 8)]), (4096, [(1, 4), (1, 8), (1, 16)]),
                       (4099, [(1, 4), (1, 8), (1, 16)]), (5000, [(1, 8), (1, 16)]), (8192, [(1, 4), (1, 8), (1, 16), (1, 32)])):
        X = here.randn(max(2, 2**26 // N // here.shrink), N, dtype=torch.float16)
        for B_m, warps in choices:
            cases.append(({"N": N, "B_m": B_m, "num_warps": warps}, lambda X=X, B_m=B_m, warps=warps: timed(
                here, lambda: row_softmax(X, B_m=B_m, num_warps=warps), torch.softmax(X.float(), 1), 1e-3, moved=2 * X.nbytes)))
    return rows_of(cases)


SMALL_TILES = {"B_m": 32, "B_n": 32, "B_k": 32}            # for tests: the interpreter's time goes with the number of tiles


def products(here, cases, dtype=torch.float16):
    """Rows for {labels} and {n, by, options}: matmul kernels, checked against float32, with TFLOP/s."""
    from flashlab.gpu.matmul import matmul

    def run(n, by, options):
        A, B = (here.randn(n, n, dtype=dtype) for _ in range(2))
        options = options | (SMALL_TILES if here.shrink > 1 and by != "torch" else {})
        function = (lambda: A @ B) if by == "torch" else (lambda: matmul(A, B, descriptors=by == "descriptors", **options))
        truth = A.float() @ B.float()
        return timed(here, function, truth, 2e-3 * truth.abs().max().item(), flops=2 * n**3)

    return rows_of([({"n": n, "by": by} | options, partial(run, n, by, options)) for n, by, options in cases])


def matmul(here):
    """torch's matmul, the kernel with pointers, the kernel with descriptors; float16."""
    sizes = [max(64, n // here.shrink) for n in (1024, 2048, 4096, 8192)]
    return products(here, [(n, by, {}) for n in sizes for by in ("torch", "pointers", "descriptors")])


def matmul_tiles(here):
    """Tile sizes, warps and stages at 4096³; and the spills that too few warps for a large tile bring."""
    n = max(64, 4096 // here.shrink)
    shapes = [(64, 64, 32, 4, 3), (128, 128, 32, 4, 4), (128, 128, 64, 4, 3), (128, 128, 64, 8, 3), (128, 128, 64, 8, 4),
              (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 3), (128, 256, 64, 4, 3)]
    names = ("B_m", "B_n", "B_k", "num_warps", "num_stages")
    choices = [dict(zip(names, shape, strict=True)) for shape in shapes]
    return products(here, [(n, by, choice) for choice in choices for by in ("pointers", "descriptors")])


def matmul_order(here):
    """The order of the tiles at 8192³: group = 1 goes row by row, larger groups re-read from the L2 cache."""
    n = max(64, 8192 // here.shrink)
    return products(here, [(n, "pointers", {"group": group}) for group in (1, 2, 4, 8, 16, 32, 64)])


def precision(here):
    """float32 inputs multiplied in float32, TF32, three TF32 steps; the error is relative to float64's largest number."""
    from flashlab.gpu.matmul import matmul as kernel

    n = max(64, 4096 // here.shrink)
    A, B = here.randn(n, n), here.randn(n, n)
    truth = A[:256].double() @ B.double()

    def run(function):
        error = (function()[:256].double() - truth).abs()
        relative = {"max_error": (error.max() / truth.abs().max()).item(), "mean_error": (error.mean() / truth.abs().mean()).item()}
        assert relative["max_error"] < 0.01, f"wrong: off by {relative['max_error']:.3g}"
        return timed(here, function, flops=2 * n**3) | relative

    def by_torch(tf32):
        def call():
            torch.backends.cuda.matmul.allow_tf32 = tf32
            try:
                return A @ B
            finally:
                torch.backends.cuda.matmul.allow_tf32 = False
        return run(call)

    tiles = SMALL_TILES if here.shrink > 1 else {}
    halves = A.half(), B.half()
    cases = [({"n": n, "by": "kernel", "precision": p}, partial(run, lambda p=p: kernel(A, B, precision=p, **tiles)))
             for p in ("ieee", "tf32", "tf32x3")]
    upright = B.T.contiguous().T                           # the same matrix, its columns without gaps
    cases += [({"n": n, "by": "kernel, B by columns", "precision": p},
               partial(run, lambda p=p: kernel(A, upright, precision=p, **tiles))) for p in ("ieee", "tf32", "tf32x3")]
    cases += [({"n": n, "by": "torch", "precision": name}, partial(by_torch, name == "tf32")) for name in ("ieee", "tf32")]
    cases += [({"n": n, "by": "kernel", "precision": "float16 inputs"}, partial(run, lambda: kernel(*halves, **tiles)))]
    return rows_of(cases)


# ---- the hardware's counters

METRICS = {
    "dram__bytes_read.sum": "dram_read",
    "dram__bytes_write.sum": "dram_written",
    "lts__t_bytes.sum": "l2_bytes",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": "load_requests",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "load_sectors",
    "smsp__thread_inst_executed_per_inst_executed.ratio": "lanes_per_instruction",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": "spill_load_sectors",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": "spill_store_sectors",
    # loads that go straight to shared memory (cp.async) are counted apart
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts.sum": "async_load_sectors",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ldgsts.sum": "async_load_requests",
}
OPTIONAL = ("async_load_sectors", "async_load_requests")   # not every version of ncu has them


def launches(here):
    """(labels, function that launches one kernel) for everything that ncu is to look at, in order.

    The label "asked" is how many bytes the kernel's loads want: sectors beyond that moved for nothing.
    """
    from flashlab.gpu.largest_score import largest_scores
    from flashlab.gpu.matmul import matmul as product
    from flashlab.gpu.matrix_add import matrix_add
    from flashlab.gpu.row_softmax import row_softmax

    n = 8192 // here.shrink
    X, Y, Out = here.randn(n, n), here.randn(n, n), torch.empty(n, n, device=here.device)
    tiles = -(-n // 32), -(-n // 8)
    wide = [here.randn(n // 8, n // 4 * 8)[:, ::8] for _ in range(2)]
    x = here.randn(n)
    half = here.randn(max(128, 16384 // here.shrink), 64, dtype=torch.float16)
    A, B = (here.randn(n, n, dtype=torch.float16) for _ in range(2))
    small = SMALL_TILES if here.shrink > 1 else {}
    big = small or {"B_m": 128, "B_n": 256, "B_k": 64, "num_stages": 3}
    rows = here.randn(n, 4096 // here.shrink, dtype=torch.float16)
    both = {"asked": X.nbytes + Y.nbytes}
    yield ({"kernel": "matrix_add", "access": "along rows"} | both,
           lambda: cuda.kernel("matrix_add")(tiles, (32, 8))(X, Y, Out, n, n))
    yield ({"kernel": "matrix_add", "access": "down columns"} | both,
           lambda: cuda.kernel("matrix_add_down_columns")(tiles, (32, 8))(X, Y, Out, n, n))
    yield {"kernel": "Triton matrix_add", "access": "both row-major"} | both, lambda: matrix_add(X, Y)
    yield {"kernel": "Triton matrix_add", "access": "both transposed"} | both, lambda: matrix_add(X.T, Y.T)
    yield {"kernel": "Triton matrix_add", "access": "stride 8", "asked": 8 * wide[0].numel()}, lambda: matrix_add(*wide)
    for block in (8, 32, 256):
        yield ({"kernel": "vector_add", "block": block},
               lambda block=block: cuda.kernel("vector_add")(-(-n // block), block)(x, x, Out.view(-1), n))
    for period in (1, 16, 32):
        yield ({"kernel": "two_paths", "period": period},
               lambda period=period: cuda.kernel("two_paths")(-(-n // 256), 256)(x, n, period, 256))
    yield {"kernel": "row_softmax", "N": rows.shape[1], "M": n}, lambda: row_softmax(rows)
    for blind in (False, True):
        for transposed in (False, True):
            yield ({"kernel": "largest_score", "transposed_load": transposed, "stride_known": not blind,
                    "asked": half.nbytes + half.nbytes * (len(half) // 128)},        # Q once; K once for each block of 128 queries
                   lambda t=transposed, b=blind: largest_scores(half, half, transposed_load=t, blind=b))
    for group in (1, 8):
        yield {"kernel": "matmul", "n": n, "group": group}, lambda group=group: product(A, B, group=group, **small)
    for warps in (8, 4):
        yield {"kernel": "matmul", "n": n, "num_warps": warps}, lambda warps=warps: product(A, B, **big, num_warps=warps)


def launch_for_ncu():
    """What the process under ncu does: each launch once to compile and warm up, once between profiler start and stop."""
    for _, launch in launches(Here()):
        launch()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        launch()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def ncu_command(metrics, log):
    return ["ncu", "--clock-control", "none", "--profile-from-start", "off", "--metrics", ",".join(metrics),
            "--print-units", "base", "--csv", "--log-file", str(log), sys.executable, "-c",
            "from flashlab.bench.basics import launch_for_ncu; launch_for_ncu()"]


def parse_counters(text):
    """The kernels of an `ncu --csv` log in order of launch: {"name", and every metric that is a number}."""
    kernels = {}
    lines = [line for line in text.splitlines() if line.startswith('"')]   # ncu's own messages start with ==
    for cell in csv.DictReader(lines):
        kernel = kernels.setdefault(int(cell["ID"]), {"name": cell["Kernel Name"][:80]})
        value = cell["Metric Value"].replace(",", "")
        if cell["Metric Name"] in METRICS and value[:1].isdigit():
            kernel[METRICS[cell["Metric Name"]]] = float(value) if "." in value else int(value)
    if not kernels:
        raise ValueError(f"ncu wrote no table: {' / '.join(text.splitlines()[-3:])[-300:]}")
    return [kernels[number] for number in sorted(kernels)]


def count(metrics, run=subprocess.run):
    """Run ncu over `launch_for_ncu`. Raises: RuntimeError with its last words."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "ncu.csv")
        child = run(ncu_command(metrics, log), capture_output=True, text=True, cwd=ROOT, env=os.environ | {"LC_ALL": "C"},
                    timeout=150)
        text = log.read_text() if log.exists() else ""
    if child.returncode:
        raise RuntimeError(" / ".join(f"{text}\n{child.stdout}\n{child.stderr}".strip().splitlines()[-4:])[-400:])
    return parse_counters(text)


def counters(here, count=count):
    """Sectors, bytes and active lanes of one launch each, from the hardware's counters."""
    if not shutil.which("ncu") and here.device == "cuda":
        raise RuntimeError("ncu (Nsight Compute, part of the CUDA toolkit) is not on the PATH")
    kernels, reason = attempt(count, list(METRICS))
    if reason:
        kernels, reason = attempt(count, [metric for metric, name in METRICS.items() if name not in OPTIONAL])
    if reason:
        raise RuntimeError(reason)
    labels = [labels for labels, _ in launches(here)]
    if len(labels) != len(kernels):
        raise ValueError(f"ncu saw {len(kernels)} kernels where {len(labels)} were launched: {[k['name'] for k in kernels]}")
    return [label | kernel for label, kernel in zip(labels, kernels, strict=True)]


# ---- all of it

SECTIONS = {section.__name__: section for section in (
    ceilings, memory_bandwidth, memory_latency, roofline, simulator, vector_addition, divergence, idle_lanes, coalescing,
    key_loading, atomics, softmax, matmul, matmul_tiles, matmul_order, precision, softmax_tuning, counters, programs)}


def run_sections(names, here, *, out=None, command=None, expired=lambda: False):
    """Measure the sections. `out`, a path, is written after each, so that a run that is cut off keeps what it had."""
    results = {"what": "basics", "complete": False, "provenance": provenance(command), "sections": {}}
    for name in names:
        start = time.perf_counter()
        rows, reason = (None, OUT_OF_TIME) if expired() else attempt(SECTIONS[name], here)
        section = {"question": SECTIONS[name].__doc__.strip(), "rows": rows or [], "skipped": reason,
                   "seconds": round(time.perf_counter() - start, 1)}
        results["sections"][name] = section
        print(summary(name, section), flush=True)
        save(results, out)
    results["complete"] = True
    save(results, out)
    return results


def summary(name, section):
    """A section for a terminal: its labels, and the number that answers its question."""
    lines = [f"-- {name} ({section['seconds']} s){': skipped, ' + section['skipped'] if section['skipped'] else ''}"]
    numbers = ("ms", "tb_s", "tflops", "ns", "error", "max_error", "equal", "different_results_of_20", "prints", "skipped",
               *METRICS.values())
    unsaid = ("ms_low", "ms_high", "bytes", "flops", "name")
    for row in section["rows"]:
        labels = [f"{key} {value}" for key, value in row.items() if key not in (*numbers, *unsaid)]
        values = [f"{key} {row[key]:.5g}" if isinstance(row[key], float) else f"{key} {row[key]}" for key in numbers if key in row]
        lines.append(f"   {', '.join(labels)}: {', '.join(values)}")
    return "\n".join(lines)


# ---- for the notebooks

MEASURED_HERE = {}         # section -> rows, or None where it failed: tried once in a process


def numbers(section, name="basics_h100", live=True):
    """(rows, words) of a section: measured here where there is a GPU, else recorded; the words say which, and where.

    Rows that were skipped are left out. live=False: recorded in any case (sections that need ncu or nvcc).
    Where nothing is recorded rows is [], and the words say how to record it.
    """
    if live and not why_no_gpu():
        if section not in MEASURED_HERE:
            MEASURED_HERE[section], _ = attempt(SECTIONS[section], Here())
        if MEASURED_HERE[section]:
            return _measured(MEASURED_HERE[section]), f"Measured here, on {torch.cuda.get_device_name()}."
    try:
        results = load_results(name)
    except FileNotFoundError:
        return [], f"Not recorded yet; on an NVIDIA GPU: python -m flashlab bench basics --out results/{name}.json"
    rows = _measured(results["sections"].get(section, {}).get("rows", []))
    return rows, f"Recorded on {where(results)}." if rows else f"Not recorded yet: section {section} of results/{name}.json."


def _measured(rows):
    return [row for row in rows if not row.get("skipped")]


def pick(rows, **labels):
    """The rows with these labels: pick(rows, by="torch", n=4096)."""
    return [row for row in rows if all(row.get(key) == value for key, value in labels.items())]


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser("python -m flashlab bench basics", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, metavar="NAME", help=f"among {', '.join(SECTIONS)} (all)")
    parser.add_argument("--budget-seconds", type=float, default=240.0, metavar="S",
                        help="what is not measured by then is skipped (240)")
    parser.add_argument("--out", type=Path, help="the JSON to write; all sections go to results/basics_<gpu>.json without it")
    args = parser.parse_args(argv)
    if why := why_no_gpu():
        print(f"bench basics measures on a GPU, and on this machine {why}. Recorded results are in results/.", file=sys.stderr)
        return 2
    out = args.out
    if out is None and not args.sections:
        out = ROOT / "results" / f"basics_{gpu_slug(torch.cuda.get_device_name())}.json"
    command = shlex.join(["python", "-m", "flashlab", "bench", "basics", *argv])
    results = run_sections(args.sections or SECTIONS, Here(), out=out, command=command, expired=deadline(args.budget_seconds))
    print(f"wrote {out}" if out else "nothing written: name a file with --out")
    return 0 if any(row for section in results["sections"].values() for row in section["rows"] if "skipped" not in row) else 1


if __name__ == "__main__":
    sys.exit(main())
