"""Chapter 09 on timing: one kernel, and what the ways of taking its time make of it."""

import time

import torch

from flashlab_course.bench.basics.here import rows_of
from flashlab_course.bench.timing import statistics

RUNS, IN_A_GRAPH = 50, 20


def timing_ways(here):
    """A row softmax of 32 MiB, which the L2 cache holds: by Python's clock, by a CUDA graph on a warm cache, by do_bench."""
    from flashlab_course.gpu.row_softmax import row_softmax

    rows, columns = max(2, 8192 // here.shrink), 1016                     # a length of its own: no other section has compiled it
    X = here.randn(rows, columns, dtype=torch.float16)
    call = lambda: row_softmax(X)
    wait = torch.cuda.synchronize if here.device == "cuda" else lambda: None
    graph = _graph if here.device == "cuda" else lambda call: _clock(call, wait, 1)
    cases = [("Python's clock, first call", lambda: _clock(call, wait, 1)),
             ("Python's clock, not synchronized", lambda: _clock(call, lambda: None)),
             ("Python's clock, synchronized", lambda: _clock(call, wait)),
             (f"{IN_A_GRAPH} launches in a CUDA graph, L2 warm", lambda: graph(call)),
             ("do_bench, L2 cleared", lambda: _do_bench(call) if here.device == "cuda" else here.timer(call))]
    return rows_of([({"how": how, "M": rows, "N": columns}, lambda take=take: statistics(take(), moved=2 * X.nbytes))
                    for how, take in cases])


def _clock(function, wait, runs=RUNS):
    """ms of each run, as Python sees it; `wait` is inside the time."""
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        wait()
        found.append(1000 * (time.perf_counter() - start))
    return found


def _do_bench(function):
    from triton.testing import do_bench

    return do_bench(function, warmup=10, rep=30, return_mode="all")


def _graph(function):
    """ms of a launch, from replays of a graph of many: nothing between them, and each finds in L2 what the one before left."""
    function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(IN_A_GRAPH):
            function()
    found = []
    for _ in range(RUNS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) / IN_A_GRAPH)
    return found
