"""Chapter 09 on memory access: neighbours, views, loads of K, atomic additions."""

from functools import partial

import torch

from flashlab_course.gpu import cuda


def coalescing(here):
    """Matrix addition with neighbours along a row, down a column, at strides, and in Triton on transposed views."""
    from flashlab_course.gpu.matrix_add import matrix_add

    M = N = 8192 // here.shrink
    X, Y = here.randn(M, N), here.randn(M, N)
    total = X + Y

    def by_cuda(kernel):
        Out = torch.empty_like(X)
        kernel(X, Y, Out, M, N)
        return Out

    def by_triton(A, B, **options):
        return here.timed(lambda: matrix_add(A, B, **options), A + B, moved=12 * A.numel())

    along = cuda.kernel("matrix_add")((-(-N // 32), -(-M // 8)), (32, 8))
    down = cuda.kernel("matrix_add_down_columns")((-(-M // 32), -(-N // 8)), (32, 8))
    for access, kernel in (("along rows", along), ("down columns", down)):
        yield {"by": "CUDA C++", "access": access}, here.timed(partial(by_cuda, kernel), total, moved=12 * M * N)
    yield {"by": "Triton", "access": "both row-major"}, by_triton(X, Y)
    yield {"by": "Triton", "access": "one transposed"}, by_triton(X, Y.T)
    yield {"by": "Triton", "access": "both transposed"}, by_triton(X.T, Y.T)
    yield {"by": "Triton", "access": "descriptors"}, by_triton(X, Y, descriptors=True)
    yield {"by": "PyTorch", "access": "both row-major"}, here.timed(lambda: X + Y, total, moved=12 * M * N)
    yield {"by": "PyTorch", "access": "one transposed"}, here.timed(lambda: X + Y.T, X + Y.T, moved=12 * M * N)
    for step in (1, 2, 4, 8, 16, 32):                  # every step-th number: the rest of each sector is wasted
        A, B = (here.randn(M // 2, N // 4 * step)[:, ::step] for _ in range(2))
        yield {"by": "Triton", "access": "strided", "stride": step}, by_triton(A, B)


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
                yield labels, here.timed(call, truth, 1e-2, flops=2 * N * N * d)


def atomics(here):
    """A sum by atomic additions per element, per program, without; in how many ways the last digits come out."""
    from flashlab_course.gpu.vector_sum import vector_sum

    X = here.randn(2**24 // here.shrink)
    truth = X.double().sum().reshape(1)

    def counted(function):
        results = {function().item() for _ in range(20)}
        row = here.timed(function, truth, 1e-6 * X.numel() + 1e-3, moved=X.nbytes)()
        return row | {"different_results_of_20": len(results)}

    for how in ("element", "block", "partial"):
        yield {"how": how, "N": X.numel()}, lambda how=how: counted(lambda: vector_sum(X, how=how))
    yield {"how": "torch.sum", "N": X.numel()}, lambda: counted(lambda: X.sum().reshape(1))
