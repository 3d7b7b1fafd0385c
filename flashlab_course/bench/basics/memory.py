"""Chapter 02 on memory: bandwidth, latency, the ceilings and the roofline."""

from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from flashlab_course.bench.basics.clocks import gpu_ms
from flashlab_course.bench.basics.here import GiB, KiB, MiB
from flashlab_course.gpu import cuda


def memory_bandwidth(here):
    """TB/s read from a buffer of each size: what fits in the L2 cache comes faster. And shared memory."""
    sink, sms = torch.zeros(1, device=here.device), sm_count(here)
    stream = cuda.kernel("stream_read")(8 * sms, 256)      # 8 blocks of 256 threads: 2048 threads, all an SM holds
    for nbytes in here.sizes(n * MiB for n in (1, 2, 4, 8, 16, 24, 32, 40, 48, 64, 96, 128, 256, 512, 1024)):
        X = torch.rand(nbytes // 4, device=here.device)    # numbers >= 0: stream_read counts on it
        rounds = max(1, 4 * GiB // here.shrink // nbytes)
        read = partial(stream, X, nbytes // 16, rounds, sink)
        yield {"level": "cache or HBM", "footprint": nbytes}, here.timed(read, moved=nbytes * rounds)
    X, rounds = torch.rand(8192, device=here.device), here.size(2000)
    read = partial(cuda.kernel("shared_read")(4 * sms, 512), X, rounds, sink)
    yield {"level": "shared memory", "footprint": 32 * KiB}, here.timed(read, moved=4 * sms * 32 * KiB * rounds)


def memory_latency(here):
    """ns for one load when each address depends on the load before: how far away a level is."""
    sink = torch.zeros(1, device=here.device, dtype=torch.int32)
    steps = here.size(2**15, 64)

    def ring_of(numbers):
        """(numbers, in each cache line the place of the next: one ring through all, in random order; that order)"""
        order = torch.randperm(numbers // 32, device=here.device) * 32
        following = torch.zeros(numbers, dtype=torch.int32, device=here.device)
        following[order] = order.roll(-1).to(torch.int32)
        return following, order

    def chase(nbytes):
        following, order = ring_of(nbytes // 4)
        kernel = cuda.kernel("pointer_chase")(1, 1)
        starts = iter(order[::len(order) // 12].tolist())  # far apart: no lines twice
        kernel(following, 0, len(order) if len(order) <= 2**18 else 1000, sink)    # warm: what fits a cache is there
        return per_step(lambda: kernel(following, next(starts), steps, sink))

    def shared_chase():
        following, _ = ring_of(4096)
        kernel = cuda.kernel("shared_chase")(1, 1)
        return per_step(lambda: kernel(following, 4096, steps, sink))

    def per_step(launch):
        launch()
        time = gpu_ms if here.device == "cuda" else lambda launch: launch() or 1.0
        return {"ns": round(sorted(time(launch) for _ in range(9))[4] / steps * 1e6, 2)}

    for nbytes in here.sizes(n * KiB for n in (16, 64, 128, 512, 2**11, 2**13, 2**14, 2**17, 2**20)):
        yield {"level": "cache or HBM", "footprint": nbytes}, partial(chase, nbytes)
    yield {"level": "shared memory", "footprint": 16 * KiB}, shared_chase


def in_flight(here):
    """TB/s from HBM against the bytes on their way at once: threads an SM, times the 4 or 16 that each waits for."""
    sink, nbytes, sms = torch.zeros(1, device=here.device), 2 * GiB // here.shrink, sm_count(here)
    X = torch.rand(nbytes // 4, device=here.device)    # far larger than the L2 cache; >= 0: the kernels count on it
    for size in (4, 16):
        for threads in (64, 128, 256, 512, 1024, 2048):
            block = min(threads, 1024)
            kernel = cuda.kernel(f"one_load_{size}")(threads // block * sms, block)
            labels = {"each": size, "threads": threads, "in_flight": size * threads * sms}
            yield labels, here.timed(partial(kernel, X, nbytes // size, sink), moved=nbytes)


def host_copies(here):
    """ms to add two vectors that lie in the CPU's memory: there, or on the GPU with the copies there and back."""
    n = 2**26 // here.shrink
    x, y, out = torch.randn(n), torch.randn(n), torch.empty(n)
    a, b, total = (T.to(here.device) for T in (x, y, x + y))

    def both(x, y):
        a.copy_(x, non_blocking=True)
        b.copy_(y, non_blocking=True)

    pinned = [T.pin_memory() if here.device == "cuda" else T for T in (x, y, out)]
    for memory, (from_x, from_y, to) in {"pageable": (x, y, out), "pinned": pinned}.items():
        copies = {"what": "two copies to the GPU", "memory": memory, "n": n}
        yield copies, here.timed(partial(both, from_x, from_y), moved=2 * x.nbytes)
        back = partial(to.copy_, total, non_blocking=True)
        yield copies | {"what": "one copy back"}, here.timed(back, moved=x.nbytes)
    for on, one, other in (("GPU", a, b), ("CPU", x, y)):
        labels = {"what": f"x + y on the {on}", "memory": "", "n": n}
        yield labels, here.timed(partial(torch.add, one, other), moved=3 * x.nbytes)


def sm_count(here):
    return torch.cuda.get_device_properties(0).multi_processor_count if here.device == "cuda" else 1


def ceilings(here):
    """A device copy's TB/s, bytes read + written, and the TFLOP/s of a large matrix product by PyTorch."""
    source = here.randn(GiB // 4 // here.shrink)
    yield {"what": "copy"}, here.timed(partial(torch.empty_like(source).copy_, source), moved=2 * source.nbytes)
    for dtype, n in ((torch.float16, here.size(8192, 16)), (torch.float32, here.size(4096, 8))):
        A, B = (here.randn(n, n).to(dtype) for _ in range(2))
        name = f"{str(dtype).removeprefix('torch.')} matmul"
        yield {"what": name, "n": n}, here.timed(partial(torch.matmul, A, B), flops=2 * n**3)


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
    fused = here.timed(lambda: fa2_triton_forward(Q, K, V)[0], P @ V, 0.02, moved=4 * rows, flops=2 * product)
    sdpa = partial(scaled_dot_product_attention, Q, K, V)
    operations = {
        "QKᵀ": here.timed(lambda: Q @ K.mT, moved=2 * rows + matrix, flops=product),
        "scale": here.timed(lambda: S * d**-0.5, moved=2 * matrix, flops=scores),
        "softmax": here.timed(lambda: torch.softmax(S, -1), moved=2 * matrix, flops=5 * scores),
        "PV": here.timed(lambda: P @ V, moved=2 * rows + matrix, flops=product),
        "FA2 (Triton)": fused,
        "SDPA": here.timed(sdpa, moved=4 * rows, flops=2 * product),
        f"matmul {N}³": here.timed(lambda: A @ B, moved=6 * N * N, flops=2 * N**3),
        "vector add": here.timed(lambda: x + y, moved=3 * x.nbytes, flops=x.numel()),
    }
    for op, measured in operations.items():
        yield {"op": op, "H": H, "N": N, "d": d}, measured
