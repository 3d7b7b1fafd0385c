"""Chapter 09 on row softmax and matmul: against PyTorch, over tiles, orders and precisions."""

from functools import partial

import torch

from flashlab_course.bench.basics.here import rows_of, timed


def softmax(here):
    """Row softmax: the kernel, torch.softmax, five eager operations, and a copy of the same bytes."""
    from flashlab_course.gpu.row_softmax import row_softmax

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
    from flashlab_course.gpu.row_softmax import row_softmax

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
    from flashlab_course.gpu.matmul import matmul

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
    from flashlab_course.gpu.matmul import matmul as kernel

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
