"""What the hardware's counters say of single launches: sectors, bytes, active lanes."""

import torch

from flashlab_course.bench import ncu
from flashlab_course.bench.basics.here import Here
from flashlab_course.bench.basics.softmax_matmul import SMALL_TILES
from flashlab_course.bench.timing import attempt
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
OPTIONAL = ("async_load_sectors", "async_load_requests")   # not every version of ncu has them


def launches(here):
    """(labels, function that launches one kernel) for everything that ncu is to look at, in order.

    The label "asked" is how many bytes the kernel's loads want: sectors beyond that moved for nothing.
    """
    from flashlab_course.gpu.largest_score import largest_scores
    from flashlab_course.gpu.matmul import matmul as product
    from flashlab_course.gpu.matrix_add import matrix_add
    from flashlab_course.gpu.row_softmax import row_softmax

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
    """What the process under ncu does: each launch once to compile and warm up, and once more to be looked at."""
    for _, launch in launches(Here()):
        launch()
        ncu.profiled(launch)


def count(metrics, **options):
    """The counters of all launches. Raises: as ncu.count."""
    child = "from flashlab_course.bench.basics.counters import launch_for_ncu; launch_for_ncu()"
    return ncu.count(metrics, child, partial=True, timeout=150, **options)


def counters(here, count=count):
    """Sectors, bytes and active lanes of one launch each, from the hardware's counters."""
    if here.device == "cuda" and (why := ncu.why_no_ncu()):
        raise RuntimeError(why)
    kernels, reason = attempt(count, METRICS)
    if reason:
        kernels, reason = attempt(count, {metric: name for metric, name in METRICS.items() if name not in OPTIONAL})
    if reason:
        raise RuntimeError(reason)
    labels = [labels for labels, _ in launches(here)]
    if len(labels) != len(kernels):
        raise ValueError(f"ncu saw {len(kernels)} kernels where {len(labels)} were launched: {[k['name'] for k in kernels]}")
    return [label | kernel for label, kernel in zip(labels, kernels, strict=True)]
