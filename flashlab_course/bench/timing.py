"""How time and memory are measured, and the loop behind every number: `measure`.

The GPU's own events take the time, warm and with a cold L2 cache. A GPU's clocks drift as it warms up: functions take
turns, in an order that changes from round to round, and only numbers of the same run are compared.
"""

import random
import time
from functools import partial
from statistics import median

import torch

MATMUL_SIZE, COPY_BYTES, PAUSE_BYTES = 8192, 2**30, 2**30
OUT_OF_TIME = "not measured: the time budget was used up"


def never():
    return False


def time_ms(function, warmup=25, rep=60):
    """ms of each of many runs, by the GPU's events, as triton.testing.do_bench takes them, with a longer pause between.

    warmup, rep: ms to spend, pauses included. In the pause the GPU overwrites its L2 cache and Python gets ahead, so
    that the time is the GPU's, not how long the host takes to launch (`bench launch` measures that).
    """
    memory = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    pause = torch.empty(min(PAUSE_BYTES, memory // 32), dtype=torch.int8, device="cuda")

    def timed(runs):
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(3)] for _ in range(runs)]
        for before, start, end in events:
            before.record()
            pause.zero_()
            start.record()
            function()
            end.record()
        torch.cuda.synchronize()
        return [(before.elapsed_time(end), start.elapsed_time(end)) for before, start, end in events]

    function()                                         # compiles
    once = median(whole for whole, _ in timed(5))
    timed(max(1, int(warmup / once)))
    return [ms for _, ms in timed(max(1, int(rep / once)))]


quick_ms = partial(time_ms, warmup=10, rep=30)


def measure(calls, check, rounds=5, *, timer=time_ms, expired=never, **work):
    """A row for each of `calls`, {name: function}: all are checked, then those that are right take turns at the clock.

    check: check(call) -> the first fields of its row, with "skipped": why it is not timed, None if it is right
    work:  moved, flops: of one call, see `statistics`
    """
    rows = {name: checked(check, call, expired) for name, call in calls.items()}
    names = [name for name, row in rows.items() if row["skipped"] is None]
    turns, shuffle = {name: [] for name in names}, random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(names)                 # after a kernel that heats the GPU, the next one runs at lower clocks
        for name in names:
            if rows[name]["skipped"] is None and not expired():
                ms, rows[name]["skipped"] = attempt(timer, calls[name])
                turns[name] += [ms] if ms else []
    for name in names:
        if rows[name]["skipped"] is None:
            all_runs = sum(turns[name], [])
            timed = all_runs and statistics(all_runs, **work) | {"runs": len(all_runs)}
            rows[name] |= timed or {"skipped": OUT_OF_TIME}
    return rows


def checked(check, call, expired):
    """The row of a call that has been checked and not timed."""
    fields, reason = (None, OUT_OF_TIME) if expired() else attempt(check, call)
    return {"ms": None, "skipped": reason} if reason else {"ms": None, **fields, "skipped": fields["skipped"]}


def attempt(function, *args):
    """(result, None), or (None, why it failed). Memory that others left cached is freed first."""
    torch.cuda.empty_cache()
    try:
        return function(*args), None
    except torch.OutOfMemoryError:
        return None, "out of memory"
    except Exception as error:         # whatever a kernel raises becomes the row's reason
        return None, f"{type(error).__name__}: {(str(error) or 'no message').splitlines()[0][:300]}"


def peak_bytes(function):
    """The most memory that PyTorch held during a call, less what it held before: not the inputs. None on a CPU."""
    if not torch.cuda.is_available():
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    function()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def statistics(ms, *, moved=0, flops=0):
    """Median, 20th and 80th percentile of many runs; TB/s and TFLOP/s of what one run moves and computes."""
    at = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)
    low, middle, high = torch.tensor(ms, dtype=torch.float64).quantile(at).tolist()
    found = {"ms": round(middle, 6), "ms_low": round(low, 6), "ms_high": round(high, 6)}
    if moved:
        found |= {"bytes": moved, "tb_s": round(moved / middle / 1e9, 4)}
    if flops:
        found |= {"flops": flops, "tflops": round(flops / middle / 1e9, 3)}
    return found


def ceilings():
    """What no kernel can beat by much: a big bfloat16 matmul's TFLOP/s, a copy's TB/s, bytes read + written."""
    A, B = (torch.randn(MATMUL_SIZE, MATMUL_SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    matmul = statistics(time_ms(lambda: A @ B), flops=2 * MATMUL_SIZE**3)
    source = torch.randn(COPY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    copy = statistics(time_ms(lambda: target.copy_(source)), moved=2 * COPY_BYTES)
    return {"matmul_tflops": matmul["tflops"], "copy_tb_s": copy["tb_s"]}


def sweep(problems, measure):
    """Pieces of a run, see results.collect: the ceilings, and for each problem the rows that `measure` gives."""
    yield "ceilings", ceilings()
    for problem in problems:
        rows, reason = attempt(measure, problem)
        yield "rows", rows or [problem._asdict() | {"implementation": "all", "ms": None, "skipped": reason}]


def deadline(seconds, clock=time.monotonic):
    """A function that says whether `seconds` have passed since now."""
    end = clock() + seconds
    return lambda: clock() >= end
