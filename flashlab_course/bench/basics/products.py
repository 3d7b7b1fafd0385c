"""Chapter 09 on row softmax and matmul: against PyTorch, over tiles, orders and precisions."""

from functools import partial

import torch

from flashlab_course.bench.basics.here import within

SMALL_TILES = {"B_m": 32, "B_n": 32, "B_k": 32}        # for tests: the interpreter's time goes with the number of tiles


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
            for by, function in (functions | ({"eager": eager} if N in (1024, 4096) else {})).items():
                yield labels | {"by": by}, here.timed(partial(function, X), truth, tolerance, moved=2 * X.nbytes)
            yield labels | {"by": "copy"}, here.timed(partial(torch.empty_like(X).copy_, X), moved=2 * X.nbytes)


def products(here, n, bys, choices=({},)):
    """Cases of n³: matmul kernels with each of these options, checked against float32, with TFLOP/s."""
    from flashlab_course.gpu.matmul import matmul

    A, B = (here.randn(n, n, dtype=torch.float16) for _ in range(2))
    truth = A.float() @ B.float()
    small = SMALL_TILES if here.shrink > 1 else {}
    for options in choices:
        for by in bys:
            call = partial(matmul, A, B, descriptors=by == "descriptors", **options | small)
            call = partial(torch.matmul, A, B) if by == "torch" else call
            yield {"n": n, "by": by} | options, here.timed(call, truth, 2e-3 * truth.abs().max().item(), flops=2 * n**3)


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

    def measured(function):
        error = (function()[:256].double() - truth).abs()
        largest = within(0.01, (error.max() / truth.abs().max()).item())
        mean = (error.mean() / truth.abs().mean()).item()
        return here.timed(function, flops=2 * n**3)() | {"max_error": largest, "mean_error": mean}

    def by_torch(tf32):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        try:
            return measured(lambda: A @ B)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    upright = B.T.contiguous().T                           # the same matrix, its columns without gaps
    for by, right in (("kernel", B), ("kernel, B by columns", upright)):
        for name in ("ieee", "tf32", "tf32x3"):
            product = partial(kernel, A, right, precision=name, **tiles)
            yield {"n": n, "by": by, "precision": name}, partial(measured, product)
    for name in ("ieee", "tf32"):
        yield {"n": n, "by": "torch", "precision": name}, partial(by_torch, name == "tf32")
    halves = partial(kernel, A.half(), B.half(), **tiles)
    yield {"n": n, "by": "kernel", "precision": "float16 inputs"}, partial(measured, halves)
