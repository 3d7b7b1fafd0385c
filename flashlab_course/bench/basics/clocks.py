"""Chapter 09 on timing: one kernel, and what the ways of taking its time make of it."""

import time

import torch

from flashlab_course.bench.timing import statistics

RUNS, IN_A_GRAPH = 50, 20


def timing_ways(here):
    """A row softmax of 32 MiB, which the L2 cache holds: by Python's clock, in a CUDA graph, by do_bench."""
    from flashlab_course.gpu.row_softmax import row_softmax

    rows, columns = here.size(8192, 2), 1016               # a length of its own: no other section has compiled it
    X = here.randn(rows, columns, dtype=torch.float16)
    on_gpu = here.device == "cuda"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    call = lambda: row_softmax(X)
    ways = {
        "Python's clock, first call": lambda: clock(call, wait, 1),
        "Python's clock, not synchronized": lambda: clock(call, lambda: None),
        "Python's clock, synchronized": lambda: clock(call, wait),
        f"{IN_A_GRAPH} launches in a CUDA graph, L2 warm": lambda: in_a_graph(call) if on_gpu else clock(call, wait, 1),
        "do_bench, L2 cleared": lambda: by_do_bench(call) if on_gpu else here.timer(call),
    }
    for how, take in ways.items():
        yield {"how": how, "M": rows, "N": columns}, lambda take=take: statistics(take(), moved=2 * X.nbytes)


def clock(function, wait, runs=RUNS):
    """ms of each run, as Python sees it; `wait` is inside the time."""
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        wait()
        found.append(1000 * (time.perf_counter() - start))
    return found


def by_do_bench(function):
    from triton.testing import do_bench

    return do_bench(function, warmup=10, rep=30, return_mode="all")


def in_a_graph(function):
    """ms of a launch, from replays of a graph of many: each finds in L2 what the one before left."""
    function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(IN_A_GRAPH):
            function()
    return [gpu_ms(graph.replay) / IN_A_GRAPH for _ in range(RUNS)]


def gpu_ms(launch):
    """ms of a single launch by the GPU's events, with nothing cleared before it: a latency, not a throughput."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    launch()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)
