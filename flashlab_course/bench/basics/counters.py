"""What the hardware's counters say of single launches: sectors, bytes, active lanes."""

from functools import partial

import torch

from flashlab_course.bench import ncu
from flashlab_course.bench.basics.here import Here
from flashlab_course.bench.basics.products import SMALL_TILES
from flashlab_course.gpu import cuda

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


def launches(here):
    """(labels, function that launches one kernel) for everything that ncu is to look at, in order.

    The label "asked" is how many bytes the kernel's loads want: sectors beyond that moved for nothing.
    """
    from flashlab_course.gpu.matrix_add import matrix_add
    from flashlab_course.gpu.row_softmax import row_softmax

    n = 8192 // here.shrink
    X, Y, Out = here.randn(n, n), here.randn(n, n), torch.empty(n, n, device=here.device)
    wide = [here.randn(n // 8, n // 4 * 8)[:, ::8] for _ in range(2)]
    asked = {"asked": X.nbytes + Y.nbytes}
    for name, access in (("matrix_add", "along rows"), ("matrix_add_down_columns", "down columns")):
        kernel = cuda.kernel(name)((-(-n // 32), -(-n // 8)), (32, 8))
        yield {"kernel": "matrix_add", "access": access} | asked, partial(kernel, X, Y, Out, n, n)
    yield {"kernel": "Triton matrix_add", "access": "both row-major"} | asked, partial(matrix_add, X, Y)
    yield {"kernel": "Triton matrix_add", "access": "both transposed"} | asked, partial(matrix_add, X.T, Y.T)
    asked = {"asked": 8 * wide[0].numel()}
    yield {"kernel": "Triton matrix_add", "access": "stride 8"} | asked, partial(matrix_add, *wide)
    x = here.randn(n)
    for block in (8, 32, 256):
        kernel = cuda.kernel("vector_add")(-(-n // block), block)
        yield {"kernel": "vector_add", "block": block}, partial(kernel, x, x, Out.view(-1), n)
    for period in (1, 16, 32):
        kernel = cuda.kernel("two_paths")(-(-n // 256), 256)
        yield {"kernel": "two_paths", "period": period}, partial(kernel, x, n, period, 256)
    rows = here.randn(n, 4096 // here.shrink, dtype=torch.float16)
    yield {"kernel": "row_softmax", "N": rows.shape[1], "M": n}, partial(row_softmax, rows)
    yield from of_products(here, n)


def of_products(here, n):
    """The launches of kernels that multiply matrices."""
    from flashlab_course.gpu.largest_score import largest_scores
    from flashlab_course.gpu.matmul import matmul

    half = here.randn(here.size(16384, 128), 64, dtype=torch.float16)
    asked = half.nbytes * (1 + len(half) // 128)           # Q once; K once for each block of 128 queries
    for blind in (False, True):
        for transposed in (False, True):
            labels = {"kernel": "largest_score", "transposed_load": transposed, "stride_known": not blind}
            call = partial(largest_scores, half, half, transposed_load=transposed, blind=blind)
            yield labels | {"asked": asked}, call
    A, B = (here.randn(n, n, dtype=torch.float16) for _ in range(2))
    small = SMALL_TILES if here.shrink > 1 else {}
    for group in (1, 8):
        yield {"kernel": "matmul", "n": n, "group": group}, partial(matmul, A, B, group=group, **small)
    big = small or {"B_m": 128, "B_n": 256, "B_k": 64, "num_stages": 3}
    for warps in (8, 4):
        yield {"kernel": "matmul", "n": n, "num_warps": warps}, partial(matmul, A, B, **big, num_warps=warps)


def launch_for_ncu():
    """What the process under ncu does: each launch once to compile and warm up, and once more to be looked at."""
    for _, launch in launches(Here()):
        launch()
        ncu.profiled(launch)


def counters(here, count=ncu.count):
    """Sectors, bytes and active lanes of one launch each, from the hardware's counters."""
    child = "from flashlab_course.bench.basics.counters import launch_for_ncu; launch_for_ncu()"
    kernels = count(METRICS, child, timeout=150)
    labels = [labels for labels, _ in launches(here)]
    if len(labels) != len(kernels):
        names = [kernel["name"] for kernel in kernels]
        raise ValueError(f"ncu saw {len(kernels)} kernels where {len(labels)} were launched: {names}")
    for label, kernel in zip(labels, kernels, strict=True):
        yield label, lambda kernel=kernel: kernel
