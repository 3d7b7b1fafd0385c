"""The cost of a call on the host: microseconds of Python and launching, for a problem so small that the GPU waits.

B = H = 1, N = 128, d = 64; what training does, a forward pass whose gradient is recorded and both passes together, also
at the size of a small GPT's layer, for which a GPU needs less time than the host. Each function is called many times
without waiting for the GPU, by Python's clock.
"""

import time
from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from flashlab import ladder
from flashlab.operator.attention import flash_attention
from flashlab_course.bench.timing import measure

SECONDS = 120.0
N, d = 128, 64
LAYER = 8, 12, 512, 64         # B, H, N, d of a small GPT's layer


def functions(device="cuda"):
    """{name: a call}: forward passes, eager and compiled, and backward passes of stored outputs."""
    Q, K, V = (torch.randn(1, 1, N, d, device=device, dtype=torch.bfloat16) for _ in range(3))
    leaves = [T.clone().requires_grad_() for T in (Q, K, V)]
    dO = torch.randn_like(Q)
    named = {kernel.name: partial(flash_attention, backend=kernel.name) for kernel in ladder.KERNELS}
    both = {"flash_attention": flash_attention, "sdpa": scaled_dot_product_attention}
    found = {name: partial(call, Q, K, V) for name, call in (both | named).items()}
    found |= {f"{name}, compiled": partial(torch.compile(call), Q, K, V) for name, call in both.items()}
    layer = [torch.randn(*LAYER, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    for name, call in both.items():
        found[f"{name}, backward"] = partial(torch.autograd.grad, call(*leaves), leaves, dO, retain_graph=True)
        for words, tensors in (("", leaves), (" of a layer", layer)):
            found[f"{name}, recorded{words}"] = partial(call, *tensors)
            found[f"{name}, both{words}"] = partial(forward_and_backward, call, tensors, torch.randn_like(tensors[0]))
    return found


def forward_and_backward(call, tensors, dO):
    return torch.autograd.grad(call(*tensors), tensors, dO)


def host_ms(function, calls=300, wait=torch.cuda.synchronize):
    """[ms that a call takes the host], of many in a row without waiting for the GPU."""
    function()                                         # allocates: later calls find that memory cached
    wait()
    began = time.perf_counter()
    for _ in range(calls):
        function()
    found = 1e3 * (time.perf_counter() - began) / calls
    wait()
    return [found]


def runs(call):
    """No check but that it runs, which compiles it: other subjects compare the same calls with float64."""
    call()
    return {"skipped": None}


def pieces(args, rounds=15, timer=host_ms):
    """A row for each call. "us" is the 20th percentile of the rounds: others' work on the machine only adds."""
    rows = measure(functions(), runs, rounds, timer=timer, expired=args.expired)
    for name, row in rows.items():
        us = round(1e3 * row["ms_low"], 2) if row["ms"] else None
        yield "rows", [{"call": name, "us": us, "skipped": row["skipped"]}]


def add_arguments(parser):
    pass
