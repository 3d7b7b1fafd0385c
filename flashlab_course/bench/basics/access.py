"""Chapter 09 on memory access: neighbours, views, loads of K, atomic additions."""

from functools import partial

import torch

from flashlab_course.bench.basics.here import rows_of, timed
from flashlab_course.gpu import cuda


def coalescing(here):
    """The same matrix addition with neighbours along a row, down a column, at strides, and in Triton on transposed views."""
    from flashlab_course.gpu.matrix_add import matrix_add

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
    from flashlab_course.gpu.largest_score import largest_scores

    def run(d, transposed_load, blind):
        Q, K = (here.randn(max(128, 16384 // here.shrink), d, dtype=torch.float16) for _ in range(2))
        truth = torch.cat([(part.float() @ K.float().T).amax(1) for part in Q.split(2048)])
        call = lambda: largest_scores(Q, K, transposed_load=transposed_load, blind=blind)
        return timed(here, call, truth, 1e-2, flops=2 * Q.shape[0] * K.shape[0] * d)

    return rows_of([({"d": d, "transposed_load": t, "stride_known": not blind}, partial(run, d, t, blind))
                    for d in (64, 128) for blind in (False, True) for t in (False, True)])


def atomics(here):
    """A sum by atomic additions per element, per program, and without; and in how many ways the last digits come out."""
    from flashlab_course.gpu.vector_sum import vector_sum

    X = here.randn(2**24 // here.shrink)

    def run(function):
        results = {function().item() for _ in range(20)}
        numbers = timed(here, function, X.double().sum().reshape(1), 1e-6 * X.numel() + 1e-3, moved=X.nbytes)
        return numbers | {"different_results_of_20": len(results)}

    cases = [({"how": how, "N": X.numel()}, partial(run, lambda how=how: vector_sum(X, how=how)))
             for how in ("element", "block", "partial")]
    return rows_of([*cases, ({"how": "torch.sum", "N": X.numel()}, partial(run, lambda: X.sum().reshape(1)))])
