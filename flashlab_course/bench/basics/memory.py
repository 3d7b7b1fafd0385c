"""Chapter 02 on memory: bandwidth, latency, the ceilings and the roofline."""

from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from flashlab_course.bench.basics.here import GiB, KiB, MiB, rows_of, timed
from flashlab_course.gpu import cuda


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


def in_flight(here):
    """TB/s from HBM against the bytes on their way at once: threads an SM, times the 4 or 16 bytes that each waits for."""
    sink, n_bytes = torch.zeros(1, device=here.device), 2 * GiB // here.shrink
    X = torch.rand(n_bytes // 4, device=here.device)       # far larger than the L2 cache; numbers >= 0: the kernels count on it

    def read(size, threads):
        block = min(threads, 1024)
        kernel = cuda.kernel(f"one_load_{size}")(threads // block * sm_count(here), block)
        measured = timed(here, lambda: kernel(X, n_bytes // size, sink), moved=n_bytes)
        return measured | {"in_flight": size * threads * sm_count(here)}

    return rows_of([({"each": size, "threads": threads}, partial(read, size, threads))
                    for size in (4, 16) for threads in (64, 128, 256, 512, 1024, 2048)])


def host_copies(here):
    """ms to add two vectors that lie in the CPU's memory: there, or on the GPU with the copies there and back."""
    n = 2**26 // here.shrink
    x, y, out = torch.randn(n), torch.randn(n), torch.empty(n)
    a, b, total = (T.to(here.device) for T in (x, y, x + y))
    pinned = [T.pin_memory() if here.device == "cuda" else T for T in (x, y, out)]

    def there_and_back(x, y, out):
        return [("two copies to the GPU", 2 * x.nbytes, lambda: (a.copy_(x, non_blocking=True), b.copy_(y, non_blocking=True))),
                ("one copy back", x.nbytes, lambda: out.copy_(total, non_blocking=True))]

    def sums(on, x, y):
        return [(f"x + y on the {on}", 3 * x.nbytes, lambda: x + y)]

    parts = {"pageable": there_and_back(x, y, out), "pinned": there_and_back(*pinned), "": sums("GPU", a, b) + sums("CPU", x, y)}
    return rows_of([({"what": what, "memory": memory, "n": n}, partial(timed, here, function, moved=moved))
                    for memory, cases in parts.items() for what, moved, function in cases])


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
