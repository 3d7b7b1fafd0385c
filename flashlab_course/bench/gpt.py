"""A small GPT trained and writing, by each attention: loss curves, generation, tokens/s and memory by context.

Training is in bfloat16 autocast, generation in bfloat16. Times are those of a user's clock, the host's work included,
unlike those of `bench forward`; MFU is the share of a large matrix product's FLOP/s in the same run.
"""

import time
from functools import partial
from itertools import product
from typing import NamedTuple

import torch

from flashlab_course import gpt
from flashlab_course.bench import timing
from flashlab_course.bench.options import add_names, integer
from flashlab_course.gpt.count import decode_bytes
from flashlab_course.gpt.train import train_step

SECONDS = 150.0
CONTEXTS = tuple(1024 * 2**n for n in range(9))        # to 262,144: until none fits
OUT_OF_MEMORY = "out of memory"
WAYS = [{"cached": True, "graph": True}, {"cached": True, "graph": False}, {"cached": False, "graph": False}]


class Sizes(NamedTuple):
    """How large everything is; tests use smaller ones."""

    # Ten seconds of training for each curve, and enough text seen for words to appear.
    curve_shape: gpt.Shape = gpt.Shape(layers=6, width=512, heads=4, kv_heads=4)
    batch: int = 16
    context: int = 1024
    steps: int = 300
    # As wide as GPT-2's "medium" and half as deep; heads of 128 columns, as in today's models.
    shape: gpt.Shape = gpt.Shape(layers=12, width=1024, heads=8, kv_heads=8)
    tokens: int = 16384                # of a step, in as many pieces as it takes; one piece where that is longer
    contexts: tuple = CONTEXTS
    prompts: tuple = (1024, 8192, 32768)
    batches: tuple = (1, 8)
    written: int = 64


def windows(batch, N):
    """(batch, N + 1) tokens of the text, the same each time."""
    return gpt.windows(gpt.encode(gpt.text()), batch, N, torch.Generator().manual_seed(0))


def clock():
    """The time now, once the GPU has finished its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def curve(sizes, attention, device):
    """{"losses" of each step}, of the same model on the same windows in the same order."""
    model, tokens = gpt.GPT(sizes.curve_shape, attention).to(device), gpt.split(gpt.encode(gpt.text()))[0]
    losses = gpt.train(model, tokens, sizes.steps, batch=sizes.batch, context=sizes.context, learning_rate=1e-3,
                       dtype=torch.bfloat16)
    return {"losses": [round(loss, 6) for loss in losses]}


def training(shape, attention, device, N, batch, peak_flops, seconds=0.5):
    """tokens/s, MFU and peak bytes of training: a step to warm up, then as many as the seconds hold, one at least."""
    model = gpt.GPT(shape, attention).to(device)
    optimizer, tokens = torch.optim.AdamW(model.parameters(), lr=1e-4), windows(batch, N).to(device)

    def seconds_a_step(steps):
        began = clock()
        for _ in range(steps):
            train_step(model, optimizer, tokens, torch.bfloat16)
        return (clock() - began) / steps

    seconds_a_step(1)                                  # compiles, and makes the optimizer's averages
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    once = seconds_a_step(1)
    peak = torch.cuda.max_memory_allocated() if on_gpu else None
    if more := min(20, int(seconds / once)):
        once = seconds_a_step(more)
    rate = batch * N / once
    return {"tokens_s": round(rate, 1), "mfu": round(gpt.mfu(rate, shape, N, peak_flops), 4), "peak_bytes": peak}


def writing(model, prompt, count, **way):
    """tokens/s behind the third token, which a graph captures. Raises: ValueError if the graph writes other tokens"""
    write = partial(gpt.generate, model, prompt, **way)
    if way["graph"] and not torch.equal(write(8), gpt.generate(model, prompt, 8)):
        raise ValueError("the graph writes other tokens")
    times = []
    for n in (3, 3 + count):
        write(n)                                       # compiles, and works out the launches of a cache of this size
        began = clock()
        write(n)
        times.append(clock() - began)
    return {"tokens_s": round(len(prompt) * count / (times[1] - times[0]), 1)}


def tried(row, expired, function, *args, **options):
    """The row with the fields that the function finds, or why there are none."""
    found, reason = (None, timing.OUT_OF_TIME) if expired() else timing.attempt(partial(function, *args, **options))
    return row | (found or {}) | {"skipped": reason}


def pieces(args, sizes=Sizes(), device="cuda", ceilings=timing.ceilings):  # noqa: B008    a tuple of constants
    """Loss curves, generation, then training, the longest contexts last.

    Generation is with a cache and its steps in a CUDA graph, with a cache, and without one, where each token takes a
    whole forward pass. bound_tokens_s: what a copy's speed allows, if each token reads the weights and the cache once.
    """
    attentions = {name: gpt.ATTENTIONS[name] for name in args.implementations} | args.own
    limits, shape = ceilings(), sizes.shape
    yield "ceilings", limits
    yield "shape", shape._asdict()
    for name, attention in attentions.items():
        row = {"implementation": name, "batch": sizes.batch, "context": sizes.context, "losses": None}
        yield "curves", [tried(row, args.expired, curve, sizes, attention, device)]
    model = gpt.GPT(shape, gpt.ATTENTIONS["flash_attention"]).to(device, torch.bfloat16)
    for N, batch, way in product(sizes.prompts, sizes.batches, WAYS):
        bound = batch * limits["copy_tb_s"] * 1e12 / decode_bytes(shape, batch, N, torch.bfloat16.itemsize)
        row = {"prompt": N, "batch": batch, **way, "tokens_s": None, "bound_tokens_s": round(bound, 1)}
        prompt, count = windows(batch, N)[:, :N].to(device), sizes.written if way["cached"] else 4
        yield "generation", [tried(row, args.expired, writing, model, prompt, count, **way)]
    full = set()                                       # attentions that have run out of memory
    for N, (name, attention) in product(sizes.contexts, attentions.items()):
        batch = max(1, sizes.tokens // N)
        row = {"implementation": name, "context": N, "batch": batch, "tokens_s": None}
        if N > args.longest:
            continue
        if name in full:
            yield "rows", [row | {"skipped": f"{OUT_OF_MEMORY} at a shorter one"}]
            continue
        peak = 1e12 * limits["matmul_tflops"]
        row = tried(row, args.expired, training, shape, attention, device, N, batch, peak)
        if row["skipped"] == OUT_OF_MEMORY:
            full.add(name)
        yield "rows", [row]


def add_arguments(parser):
    add_names(parser, "--implementations", gpt.ATTENTIONS)
    words = f"the longest context to train at ({CONTEXTS[-1]})"
    parser.add_argument("--longest", type=integer, default=CONTEXTS[-1], metavar="N", help=words)
    words = "your own kernels too: those of chapters 10 and 11 that pass"
    parser.add_argument("--yours", action="store_true", help=words)
