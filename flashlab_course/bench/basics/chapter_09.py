"""Chapter 09: memory access, row softmax, matmul, and five ways to time one kernel."""

import time
from functools import partial

import torch

from flashlab_course.bench.basics.here import into_new, within
from flashlab_course.bench.timing import statistics
from flashlab_course.gpu import cuda

SMALL_TILES = {"B_m": 32, "B_n": 32, "B_k": 32}        # for tests: the interpreter's time goes with the number of tiles


def coalescing(here):
    """Matrix addition with neighbours along a row, down a column, at strides, and in Triton on transposed views."""
    from flashlab_course.gpu.matrix_add import matrix_add

    M = N = 8192 // here.shrink
    X, Y = here.randn(M, N), here.randn(M, N)

    def timed(by, access, add, A, B, **labels):
        return here.timed({"by": by, "access": access} | labels, add, A + B, moved=12 * A.numel())

    along = cuda.kernel("matrix_add")((-(-N // 32), -(-M // 8)), (32, 8))
    down = cuda.kernel("matrix_add_down_columns")((-(-M // 32), -(-N // 8)), (32, 8))
    yield timed("CUDA C++", "along rows", partial(into_new, along, X, Y, M, N), X, Y)
    yield timed("CUDA C++", "down columns", partial(into_new, down, X, Y, M, N), X, Y)
    for access, A, B in (("both row-major", X, Y), ("one transposed", X, Y.T), ("both transposed", X.T, Y.T)):
        yield timed("Triton", access, partial(matrix_add, A, B), A, B)
    yield timed("Triton", "descriptors", partial(matrix_add, X, Y, descriptors=True), X, Y)
    for access, A, B in (("both row-major", X, Y), ("one transposed", X, Y.T)):
        yield timed("PyTorch", access, partial(torch.add, A, B), A, B)
    for stride in (1, 2, 4, 8, 16, 32):                    # of each sector, only every stride-th number is used
        A, B = (here.randn(M // 2, N // 4 * stride)[:, ::stride] for _ in range(2))
        yield timed("Triton", "strided", partial(matrix_add, A, B), A, B, stride=stride)


def key_loading(here):
    """K loaded transposed, or transposed after the load; the compiler knows that K's last stride is 1, or does not."""
    from flashlab_course.gpu.largest_score import largest_scores

    N = here.size(16384, 128)
    for d in (64, 128):
        Q, K = (here.randn(N, d, dtype=torch.float16) for _ in range(2))
        truth = torch.cat([(part.float() @ K.float().T).amax(1) for part in Q.split(2048)])
        for blind in (False, True):
            for transposed in (False, True):
                call = partial(largest_scores, Q, K, transposed_load=transposed, blind=blind)
                labels = {"d": d, "transposed_load": transposed, "stride_known": not blind}
                yield here.timed(labels, call, truth, 1e-2, flops=2 * N * N * d)


def atomics(here):
    """A sum by atomic additions per element, per program, without; in how many ways the last digits come out."""
    from flashlab_course.gpu.vector_sum import vector_sum

    X = here.randn(2**24 // here.shrink)
    truth, tolerance = X.double().sum().reshape(1), 1e-6 * X.numel() + 1e-3

    def measured(function):
        results = {function().item() for _ in range(20)}
        fields = here.fields(function, truth, tolerance, moved=X.nbytes)
        return fields | {"different_results_of_20": len(results)}

    sums = {how: partial(vector_sum, X, how=how) for how in ("element", "block", "partial")}
    for how, function in (sums | {"torch.sum": lambda: X.sum().reshape(1)}).items():
        yield here.row({"how": how, "N": X.numel()}, partial(measured, function))


def softmax(here):
    """Row softmax: the kernel, torch.softmax, five eager operations, and a copy of the same bytes."""
    from flashlab_course.gpu.row_softmax import row_softmax

    def eager(X):
        E = torch.exp(X - X.amax(1, keepdim=True))
        return E / E.sum(1, keepdim=True)

    for dtype, tolerance in ((torch.float16, 1e-3), (torch.float32, 1e-6)):
        for N in (256, 512, 781, 1024, 2048, 3000, 4096, 5000, 8192, 16384, 32768):
            X = here.randn(here.size(2**26 // N, 2), N, dtype=dtype)
            labels = {"N": N, "M": X.shape[0], "dtype": str(dtype).removeprefix("torch.")}
            truth = torch.softmax(X.float(), 1)
            functions = {"kernel": row_softmax, "torch": partial(torch.softmax, dim=1)}
            if N in (1024, 4096):
                functions["eager"] = eager
            for by, function in functions.items():
                call = partial(function, X)
                yield here.timed(labels | {"by": by}, call, truth, tolerance, moved=2 * X.nbytes)
            yield here.timed(labels | {"by": "copy"}, partial(torch.empty_like(X).copy_, X), moved=2 * X.nbytes)


def products(here, n, bys, choices=({},)):
    """Rows of n³: matmul kernels with each of these options, checked against float32, with TFLOP/s."""
    from flashlab_course.gpu.matmul import matmul

    A, B = (here.randn(n, n, dtype=torch.float16) for _ in range(2))
    truth = A.float() @ B.float()
    tolerance = 2e-3 * truth.abs().max().item()
    small = SMALL_TILES if here.shrink > 1 else {}
    for options in choices:
        for by in bys:
            call = partial(matmul, A, B, descriptors=by == "descriptors", **options | small)
            call = partial(torch.matmul, A, B) if by == "torch" else call
            yield here.timed({"n": n, "by": by} | options, call, truth, tolerance, flops=2 * n**3)


def matmul(here):
    """torch's matmul, the kernel with pointers, the kernel with descriptors; float16."""
    for n in (1024, 2048, 4096, 8192):
        yield from products(here, here.size(n, 64), ("torch", "pointers", "descriptors"))


def matmul_tiles(here):
    """Tile sizes, warps and stages at 4096³; and the spills that too few warps for a large tile bring."""
    shapes = [(64, 64, 32, 4, 3), (128, 128, 32, 4, 4), (128, 128, 64, 4, 3), (128, 128, 64, 8, 3),
              (128, 128, 64, 8, 4), (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 3),
              (128, 256, 64, 4, 3)]
    names = ("B_m", "B_n", "B_k", "num_warps", "num_stages")
    choices = [dict(zip(names, shape, strict=True)) for shape in shapes]
    yield from products(here, here.size(4096, 64), ("pointers", "descriptors"), choices)


def matmul_order(here):
    """The order of the tiles at 8192³: group = 1 goes row by row, larger groups re-read from the L2 cache."""
    groups = [{"group": group} for group in (1, 2, 4, 8, 16, 32, 64)]
    yield from products(here, here.size(8192, 64), ("pointers",), groups)


def precision(here):
    """float32 inputs multiplied in float32, TF32, three TF32 steps; errors relative to float64's largest number."""
    from flashlab_course.gpu.matmul import matmul as kernel

    n = here.size(4096, 64)
    A, B = here.randn(n, n), here.randn(n, n)
    truth = A[:256].double() @ B.double()
    tiles = SMALL_TILES if here.shrink > 1 else {}

    def row(by, precision, function, tf32=False):
        return here.row({"n": n, "by": by, "precision": precision}, partial(measured, function, tf32))

    def measured(function, tf32):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        try:
            error = (function()[:256].double() - truth).abs()
            largest = within(0.01, (error.max() / truth.abs().max()).item())
            mean = (error.mean() / truth.abs().mean()).item()
            return here.fields(function, flops=2 * n**3) | {"max_error": largest, "mean_error": mean}
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    upright = B.T.contiguous().T                           # the same matrix, its columns without gaps
    for by, right in (("kernel", B), ("kernel, B by columns", upright)):
        for name in ("ieee", "tf32", "tf32x3"):
            yield row(by, name, partial(kernel, A, right, precision=name, **tiles))
    for name in ("ieee", "tf32"):
        yield row("torch", name, lambda: A @ B, tf32=name == "tf32")
    yield row("kernel", "float16 inputs", partial(kernel, A.half(), B.half(), **tiles))


def timing_ways(here, runs=50, in_a_graph=20):
    """A row softmax of 32 MiB, which the L2 cache holds: by Python's clock, in a CUDA graph, by do_bench."""
    from flashlab_course.gpu.row_softmax import row_softmax

    rows, columns = here.size(8192, 2), 1016               # no other section has compiled it for this length
    X = here.randn(rows, columns, dtype=torch.float16)
    on_gpu = here.device == "cuda"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    call = lambda: row_softmax(X)

    def clock(wait, runs=runs):
        found = []
        for _ in range(runs):
            start = time.perf_counter()
            call()
            wait()
            found.append(1000 * (time.perf_counter() - start))
        return found

    def of_a_graph():
        """ms of a launch, from replays of a graph of many: each finds in L2 what the one before left."""
        call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(in_a_graph):
                call()
        return [here.once_ms(graph.replay) / in_a_graph for _ in range(runs)]

    def by_do_bench():
        from triton.testing import do_bench

        return do_bench(call, warmup=10, rep=30, return_mode="all")

    def fields(take):
        return statistics(take(), moved=2 * X.nbytes)

    ways = {
        "Python's clock, first call": partial(clock, wait, 1),
        "Python's clock, not synchronized": partial(clock, lambda: None),
        "Python's clock, synchronized": partial(clock, wait),
        f"{in_a_graph} launches in a CUDA graph, L2 warm": of_a_graph if on_gpu else partial(clock, wait, 1),
        "do_bench, L2 cleared": by_do_bench if on_gpu else partial(here.timer, call),
    }
    for how, take in ways.items():
        labels = {"how": how, "M": rows, "N": columns}
        yield here.row(labels, partial(fields, take))
