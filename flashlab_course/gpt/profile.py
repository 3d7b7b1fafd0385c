"""Where the time of a training step goes, by the parts of the model: forward and backward together."""

import bisect
import os

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from flashlab_course.gpt.train import train_step

os.environ.setdefault("KINETO_LOG_LEVEL", "99")        # else PyTorch's profiler writes that it has started and stopped
PARTS = ("attention", "projections", "mlp", "head")    # as the model calls them, with record_function
STEP_BACK = "autograd::engine::evaluate_function: "    # begins the name of each step of the backward pass


def parts(model, tokens, dtype=None, steps=2):
    """({part: ms of a step}, [(kernel or operation, ms of a step, calls of a step)], the longest first).

    On a GPU the times are those of its kernels, on a CPU those of PyTorch's operations. "the rest" is the last norm,
    the embedding, the loss and the optimizer.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    train_step(model, optimizer, tokens, dtype)                              # compiles, and allocates
    gpu = tokens.is_cuda
    with profile(activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * gpu) as profiler:
        for _ in range(steps):
            train_step(model, optimizer, tokens, dtype)
        if gpu:
            torch.cuda.synchronize()
    whole = on_the_gpu if gpu else on_the_cpu
    own = (lambda e: e.self_device_time_total) if gpu else (lambda e: e.self_cpu_time_total)
    named = lambda e: e.key in PARTS or (gpu and e.is_user_annotation)       # ranges, whose kernels are listed as well
    works = [e for e in profiler.key_averages()
             if own(e) > 0 and (e.device_type == DeviceType.CUDA) == gpu and not named(e)]
    ms = lambda microseconds: microseconds / 1e3 / steps
    found = {part: ms(sum(map(whole, events))) for part, events in events_of_parts(profiler.events()).items()}
    found["the rest"] = ms(sum(map(own, works))) - sum(found.values())
    return found, [(e.key, ms(own(e)), e.count / steps) for e in sorted(works, key=own, reverse=True)]


def on_the_cpu(event):
    """µs of the operations within an event, without the Python between the operations of a range."""
    return event.cpu_time_total - (event.self_cpu_time_total if event.name in PARTS else 0)


def on_the_gpu(event):
    """µs of the kernels launched within an event. The profiler lists ranges among the kernels: these are left out."""
    own = sum(kernel.duration for kernel in event.kernels if kernel.name not in PARTS)
    return own + sum(map(on_the_gpu, event.cpu_children))


def events_of_parts(events):
    """{part: events}: its ranges in the forward pass, and the steps of autograd that belong to them.

    A step of the backward pass has the same sequence number as its operation in the forward pass.
    """
    events = [e for e in events if e.device_type == DeviceType.CPU]
    ranges = sorted((e for e in events if e.name in PARTS), key=lambda e: e.time_range.start)
    starts = [e.time_range.start for e in ranges]
    found, owner = {part: [e for e in ranges if e.name == part] for part in PARTS}, {}
    for e in events:
        before = bisect.bisect_right(starts, e.time_range.start) - 1         # the range that began last
        inside = before >= 0 and e.time_range.end <= ranges[before].time_range.end
        if inside and e.sequence_nr >= 0 and e.name not in PARTS:
            owner[e.sequence_nr] = ranges[before].name
    for e in events:
        if e.name.startswith(STEP_BACK) and e.sequence_nr in owner:
            found[owner[e.sequence_nr]].append(e)
    return found
