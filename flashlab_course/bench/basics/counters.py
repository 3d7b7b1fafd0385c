"""What the hardware's counters say of single launches: sectors, bytes, active lanes."""

from functools import partial

import torch

from flashlab_course.bench import ncu
from flashlab_course.bench.basics.chapter_09 import SMALL_TILES
from flashlab_course.bench.basics.here import Here
from flashlab_course.gpu import cuda

METRICS = {
    "dram__bytes_read.sum": "dram_read",
    "dram__bytes_write.sum": "dram_written",
    "lts__t_bytes.sum": "l2_bytes",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "load_sectors",
    "smsp__thread_inst_executed_per_inst_executed.ratio": "lanes_per_instruction",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": "spill_load_sectors",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": "spill_store_sectors",
}


def launches(here):
    """(labels, function that launches one kernel) for everything that ncu is to look at, in order."""
    from flashlab_course.gpu.matmul import matmul

    n = 8192 // here.shrink
    X, Y, Out = here.randn(n, n), here.randn(n, n), torch.empty(n, n, device=here.device)
    for name, access in (("matrix_add", "along rows"), ("matrix_add_down_columns", "down columns")):
        kernel = cuda.kernel(name)((-(-n // 32), -(-n // 8)), (32, 8))
        yield {"kernel": "matrix_add", "access": access}, partial(kernel, X, Y, Out, n, n)
    for period in (1, 16, 32):
        kernel = cuda.kernel("two_paths")(-(-n // 256), 256)
        yield {"kernel": "two_paths", "period": period}, partial(kernel, here.randn(n), n, period, 256)
    A, B = (here.randn(n, n, dtype=torch.float16) for _ in range(2))
    small = SMALL_TILES if here.shrink > 1 else {}
    for group in (1, 8):
        yield {"kernel": "matmul", "n": n, "group": group}, partial(matmul, A, B, group=group, **small)
    tiles = small or {"B_m": 128, "B_n": 256, "B_k": 64, "num_stages": 3}
    for warps in (8, 4):
        yield {"kernel": "matmul", "n": n, "num_warps": warps}, partial(matmul, A, B, **tiles, num_warps=warps)


def launch_for_ncu():
    """What the process under ncu does: each launch once to compile and warm up, and once more for ncu."""
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
    yield from (label | kernel for label, kernel in zip(labels, kernels, strict=True))
