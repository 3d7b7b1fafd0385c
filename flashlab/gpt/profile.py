"""Where the time of a training step goes, by the parts of the model: forward and backward together."""

import bisect
import os

import torch
from torch.profiler import ProfilerActivity, profile

from flashlab.gpt.train import train_step

os.environ.setdefault("KINETO_LOG_LEVEL", "99")        # else PyTorch's profiler writes that it has started and stopped
PARTS = ("attention", "projections", "mlp", "head")    # as the model calls them, with record_function
BACKWARD = "autograd::engine::evaluate_function: "     # what autograd calls each step back


def parts(model, tokens, dtype=None, steps=2):
    """({part: ms of a step}, [(kernel or operation, ms of a step, calls of a step)], longest first).

    On a GPU the times are those of its kernels, on a CPU those of PyTorch's operations. "the rest" is norms, embedding, loss, optimizer.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    train_step(model, optimizer, tokens, dtype)                              # compiles, and allocates
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * tokens.is_cuda
    with profile(activities=activities) as profiler:
        for _ in range(steps):
            train_step(model, optimizer, tokens, dtype)
        if tokens.is_cuda:
            torch.cuda.synchronize()
    time_of = (lambda e: e.device_time_total) if tokens.is_cuda else (lambda e: e.cpu_time_total)
    own_time = (lambda e: e.self_device_time_total) if tokens.is_cuda else (lambda e: e.self_cpu_time_total)
    events = profiler.events()
    found = {part: sum(map(time_of, mine)) for part, mine in events_of_parts(events).items()}
    averages = [e for e in profiler.key_averages() if own_time(e) > 0 and e.key not in PARTS and not e.key.startswith("Profiler")]
    if tokens.is_cuda:
        averages = [e for e in averages if e.device_type == torch.autograd.DeviceType.CUDA]
    found["the rest"] = sum(map(own_time, averages)) - sum(found.values())
    longest = sorted(averages, key=own_time, reverse=True)
    per_step = lambda microseconds: microseconds / 1e3 / steps
    return {part: per_step(time) for part, time in found.items()}, [(e.key, per_step(own_time(e)), e.count / steps) for e in longest]


def events_of_parts(events):
    """{part: events}: its ranges in the forward pass, and the steps of autograd that belong to them.

    Autograd numbers its steps as the forward pass makes them, and the profiler keeps the number with both: an operation's step back
    has a number from the range in which the operation ran.
    """
    cpu = [e for e in events if e.device_type == torch.autograd.DeviceType.CPU]
    ranges = sorted((e.time_range.start, e.time_range.end, e.name) for e in cpu if e.name in PARTS)
    starts = [start for start, _, _ in ranges]
    found, owner = {part: [e for e in cpu if e.name == part] for part in PARTS}, {}
    for e in cpu:
        at = bisect.bisect_right(starts, e.time_range.start) - 1
        if e.sequence_nr >= 0 and not e.name.startswith(BACKWARD) and at >= 0 and e.time_range.end <= ranges[at][1] and e.name not in PARTS:
            owner[e.sequence_nr] = ranges[at][2]
    for e in cpu:
        if e.name.startswith(BACKWARD) and e.sequence_nr in owner:
            found[owner[e.sequence_nr]].append(e)
    return found
