"""Chapter 02: memory, threads and the roofline."""

from functools import partial
from statistics import median

import torch
from torch.nn.functional import scaled_dot_product_attention

from flashlab_course.bench.basics.here import GiB, KiB, MiB, into_new, max_error, within
from flashlab_course.gpu import cuda


def memory_bandwidth(here):
    """TB/s read from a buffer of each size: what fits in the L2 cache comes faster. And shared memory."""
    sink, sms = torch.zeros(1, device=here.device), sm_count(here)
    stream = cuda.kernel("stream_read")(8 * sms, 256)      # 2048 threads an SM, as many as it holds
    for size in (1, 2, 4, 8, 16, 24, 32, 40, 48, 64, 96, 128, 256, 512, 1024):
        nbytes = here.size(size * MiB, 16 * KiB)
        X = torch.rand(nbytes // 4, device=here.device)    # stream_read needs numbers >= 0
        rounds = max(1, 4 * GiB // here.shrink // nbytes)
        read = partial(stream, X, nbytes // 16, rounds, sink)
        yield here.timed({"level": "cache or HBM", "footprint": nbytes}, read, moved=nbytes * rounds)
    X, rounds = torch.rand(8192, device=here.device), here.size(2000)
    read = partial(cuda.kernel("shared_read")(4 * sms, 512), X, rounds, sink)
    labels = {"level": "shared memory", "footprint": 32 * KiB}
    yield here.timed(labels, read, moved=4 * sms * 32 * KiB * rounds)


def memory_latency(here):
    """ns for one load when each address depends on the load before: how far away a level is."""
    sink = torch.zeros(1, device=here.device, dtype=torch.int32)
    steps = here.size(2**15, 64)

    def ring_of(numbers):
        """A ring in random order through all cache lines, each holding the place of the next; and that order."""
        order = torch.randperm(numbers // 32, device=here.device) * 32
        following = torch.zeros(numbers, dtype=torch.int32, device=here.device)
        following[order] = order.roll(-1).to(torch.int32)
        return following, order

    def chase(nbytes):
        following, order = ring_of(nbytes // 4)
        kernel = cuda.kernel("pointer_chase")(1, 1)
        starts = iter(order[::len(order) // 12].tolist())  # far apart, so that no line is read twice
        kernel(following, 0, len(order) if len(order) <= 2**18 else 1000, sink)    # fills a cache that is large enough
        return per_step(lambda: kernel(following, next(starts), steps, sink))

    def shared_chase():
        following, _ = ring_of(4096)
        kernel = cuda.kernel("shared_chase")(1, 1)
        return per_step(lambda: kernel(following, 4096, steps, sink))

    def per_step(launch):
        launch()
        return {"ns": round(median(here.once_ms(launch) for _ in range(9)) / steps * 1e6, 2)}

    for size in (16, 64, 128, 512, 2**11, 2**13, 2**14, 2**17, 2**20):
        nbytes = here.size(size * KiB, 16 * KiB)
        yield here.row({"level": "cache or HBM", "footprint": nbytes}, partial(chase, nbytes))
    yield here.row({"level": "shared memory", "footprint": 16 * KiB}, shared_chase)


def in_flight(here):
    """TB/s from HBM against the bytes on their way at once: threads an SM, times the 4 or 16 that each waits for."""
    sink, nbytes, sms = torch.zeros(1, device=here.device), 2 * GiB // here.shrink, sm_count(here)
    X = torch.rand(nbytes // 4, device=here.device)        # far larger than the L2 cache; the kernels need numbers >= 0
    for size in (4, 16):
        for threads in (64, 128, 256, 512, 1024, 2048):
            block = min(threads, 1024)
            kernel = cuda.kernel(f"one_load_{size}")(threads // block * sms, block)
            labels = {"each": size, "threads": threads, "in_flight": size * threads * sms}
            yield here.timed(labels, partial(kernel, X, nbytes // size, sink), moved=nbytes)


def sm_count(here):
    return torch.cuda.get_device_properties(0).multi_processor_count if here.device == "cuda" else 1


def ceilings(here):
    """A device copy's TB/s, bytes read + written, and the TFLOP/s of a large matrix product by PyTorch."""
    source = here.randn(GiB // 4 // here.shrink)
    copy = partial(torch.empty_like(source).copy_, source)
    yield here.timed({"what": "copy"}, copy, moved=2 * source.nbytes)
    for name, n in (("float16", here.size(8192, 16)), ("float32", here.size(4096, 8))):
        A, B = (here.randn(n, n).to(getattr(torch, name)) for _ in range(2))
        yield here.timed({"what": f"{name} matmul", "n": n}, partial(torch.matmul, A, B), flops=2 * n**3)


def roofline(here):
    """Each operation of naive attention, the fused kernels, a matmul and a vector addition: FLOPs, bytes, ms."""
    from flashlab.kernels.fa2 import fa2_triton_forward

    H, N, d, half = 16, here.size(4096, 64), 64, torch.float16
    Q, K, V = (here.randn(1, H, N, d, dtype=half) for _ in range(3))
    S = Q @ K.mT
    P = torch.softmax(S * d**-0.5, -1)
    x, y = (here.randn(2**27 // here.shrink) for _ in range(2))
    A, B = (here.randn(N, N, dtype=half) for _ in range(2))
    scores, matrix, rows = H * N * N, 2 * H * N * N, 2 * H * N * d     # numbers and bytes of S; bytes of Q, K, V or O
    product = 2 * scores * d
    references = {"FA2 (Triton)": (P @ V, 0.02)}
    for op, function, moved, flops in (
        ("QKᵀ", lambda: Q @ K.mT, 2 * rows + matrix, product),
        ("scale", lambda: S * d**-0.5, 2 * matrix, scores),
        ("softmax", lambda: torch.softmax(S, -1), 2 * matrix, 5 * scores),
        ("PV", lambda: P @ V, 2 * rows + matrix, product),
        ("FA2 (Triton)", lambda: fa2_triton_forward(Q, K, V)[0], 4 * rows, 2 * product),
        ("SDPA", lambda: scaled_dot_product_attention(Q, K, V), 4 * rows, 2 * product),
        (f"matmul {N}³", lambda: A @ B, 6 * N * N, 2 * N**3),
        ("vector add", lambda: x + y, 3 * x.nbytes, x.numel()),
    ):
        labels = {"op": op, "H": H, "N": N, "d": d}
        yield here.timed(labels, function, *references.get(op, ()), moved=moved, flops=flops)


def vector_addition(here):
    """CUDA C++ with blocks of 1 to 1024 threads, Triton and PyTorch on one sum; a Triton program of scalars."""
    from flashlab_course.gpu.vector_add import one_by_one_kernel, vector_add

    N = 2**26 // here.shrink + 5                           # a ragged tail
    X, Y = here.randn(N), here.randn(N)
    x, y = (T[:max(64, N // 16)] for T in (X, Y))          # one number at a time is slow: a sixteenth of the work

    work = {"reference": X + Y, "moved": 12 * N}
    for block in (1, 8, 16, 32, 64, 128, 256, 512, 1024):
        kernel = cuda.kernel("vector_add")(-(-N // block), block)
        yield here.timed({"by": "CUDA C++", "block": block, "N": N}, partial(into_new, kernel, X, Y, N), **work)
    yield here.timed({"by": "PyTorch", "N": N}, lambda: X + Y, **work)
    yield here.timed({"by": "Triton", "block": 1024, "N": N}, lambda: vector_add(X, Y), **work)
    for by, options in (("a block at a time", {}), ("one number at a time", {"kernel": one_by_one_kernel})):
        labels = {"by": f"Triton, {by}", "block": 128, "N": len(x)}
        yield here.timed(labels, partial(vector_add, x, y, B=128, **options), x + y, moved=12 * len(x))


def divergence(here):
    """ms of two_paths where neighbours agree in groups of `period`: a warp that splits pays for both paths."""
    N, rounds = 2**22 // here.shrink, here.size(2000, 2)

    def measured(period):
        X, kernel = here.randn(N), cuda.kernel("two_paths")(-(-N // 256), 256)
        kernel(X, N, period, 64)
        group = torch.arange(N, device=here.device) // period % 2
        within(1e-5, max_error(X, torch.where(group == 0, 2.0, -4.0 / 3)))     # fixed points of x/2 + 1 and x/4 - 1
        return here.fields(partial(kernel, X, N, period, rounds))

    for period in (1, 2, 4, 8, 16, 32, 64, 128, 2**30):    # with the last, all take the first path
        yield here.row({"period": period, "N": N, "rounds": rounds}, partial(measured, period))
