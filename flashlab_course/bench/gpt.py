"""A small GPT trained and writing, by each attention: loss curves, tokens/s and memory by context, where the time goes, generation.

Training is in bfloat16 autocast, generation in bfloat16. An attention that had no room for a context is not tried at longer ones.
Times are those of a user's clock, the host's work included, unlike those of `bench forward`; MFU is the share of a large matrix
product's FLOP/s in the same run.
"""

import time
from functools import partial

import torch
from tqdm import tqdm

from flashlab_course import gpt
from flashlab_course.bench import timing
from flashlab_course.bench.options import add_budget_and_out, positive
from flashlab_course.bench.results import finish, save, start
from flashlab_course.gpt.count import decode_bytes
from flashlab_course.gpt.train import train_step

# A sixth of a minute of training each, and enough text seen for words to appear.
CURVE = {"shape": gpt.Shape(layers=6, width=512, heads=4, kv_heads=4), "batch": 16, "context": 1024, "steps": 300}
# As GPT-2's "medium" is wide and half as deep; heads of 128 columns, as today's models have.
LARGE = gpt.Shape(layers=12, width=1024, heads=8, kv_heads=8)
CONTEXTS = tuple(1024 * 2**n for n in range(9))        # to 262,144: until none fits
TOKENS = 16384                                         # of a step, in as many pieces as it takes; one piece where that is longer
PROFILED = 8192                                        # a context that naive attention has room for, on a GPU of 80 GB or more
WRITTEN, PROMPTS, BATCHES = 64, (1024, 8192, 32768), (1, 8)
OUT_OF_MEMORY = "out of memory"


def clock():
    """The time now, once the GPU has done what was asked of it."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def curves(attentions, device, expired, *, shape, batch, context, steps):
    """A row for each attention: the loss of each step, of the same model on the same windows in the same order."""
    tokens, rows = gpt.split(gpt.encode(gpt.text()))[0], []
    for name, attention in attentions.items():
        row = {"implementation": name, "batch": batch, "context": context, "losses": None}

        def run(name=name, attention=attention):
            model = gpt.GPT(shape, attention).to(device)
            began = clock()
            losses = gpt.train(model, tokens, steps, batch=batch, context=context, learning_rate=1e-3, dtype=torch.bfloat16)
            return model, losses, clock() - began

        found, reason = (None, timing.OUT_OF_TIME) if expired() else timing.attempt(run)
        if reason:
            row["skipped"] = reason
        else:
            model, losses, row["seconds"] = found
            row["losses"] = [round(loss, 6) for loss in losses]
            row["text"], _ = timing.attempt(written_by, model.to(torch.bfloat16), device)
        rows.append(row)
    return rows


def written_by(model, device):
    """A few lines, to see what was learned."""
    return gpt.decode(gpt.generate(model, gpt.encode("ROMEO:")[None].to(device), 200, temperature=0.7)[0])


def contexts(attentions, device, expired, add, *, shape, sizes, tokens_a_step, peak_flops):
    """A row for each attention and context, given to `add` one by one: tokens/s, peak memory, MFU of whole training steps."""
    full = set()                                       # attentions that have had no room
    for N in tqdm(sizes, unit="context"):
        for name, attention in attentions.items():
            batch = max(1, tokens_a_step // N)
            row = {"implementation": name, "context": N, "batch": batch, "tokens_s": None}
            if expired() or name in full:
                row["skipped"] = f"{OUT_OF_MEMORY} at a shorter one" if name in full else timing.OUT_OF_TIME
            else:
                found, reason = timing.attempt(steps_of_a_context, attention, device, shape, batch, N)
                if reason:
                    row["skipped"] = reason
                    full |= {name} if reason == OUT_OF_MEMORY else set()
                else:
                    row |= found | {"mfu": round(gpt.mfu(found["tokens_s"], shape, N, peak_flops), 4)}
            add(row)


def steps_of_a_context(attention, device, shape, batch, N, seconds=0.5):
    """tokens/s and peak bytes of training steps: one to warm up, then as many as the seconds hold, one at least."""
    model = gpt.GPT(shape, attention).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = gpt.windows(gpt.encode(gpt.text()), batch, N, torch.Generator().manual_seed(0)).to(device)
    step = lambda: train_step(model, optimizer, tokens, torch.bfloat16)
    step()                                             # compiles, and makes the optimizer's averages
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    began = clock()
    step()
    once, steps = clock() - began, 1
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    if more := min(20, int(seconds / once)):
        began = clock()
        for _ in range(more):
            step()
        once, steps = (clock() - began) / more, more
    return {"tokens_s": round(batch * N / once, 1), "step_ms": round(1e3 * once, 3), "steps": steps, "peak_bytes": peak}


def profiled(attentions, device, *, shape, context):
    """A row for each attention: ms of each part of the model in a step, and the kernels that take longest."""
    rows = []
    for name, attention in attentions.items():
        def run(attention=attention):
            tokens = gpt.windows(gpt.encode(gpt.text()), 1, context, torch.Generator().manual_seed(0)).to(device)
            return gpt.parts(gpt.GPT(shape, attention).to(device), tokens, torch.bfloat16)

        row = {"implementation": name, "context": context, "parts": None}
        found, reason = timing.attempt(run)
        if reason:
            row["skipped"] = reason
        else:
            row["parts"] = {part: round(ms, 4) for part, ms in found[0].items()}
            row["kernels"] = [{"name": kernel[:120], "ms": round(ms, 4), "calls": calls} for kernel, ms, calls in found[1][:12]]
        rows.append(row)
    return rows


def generation(device, expired, *, shape, prompts, batches, written, copy_tb_s):
    """Rows of writing `written` tokens behind prompts: with a cache and its steps in a CUDA graph, with a cache, and without one,
    where each token takes a whole forward pass.

    bound_tokens_s: what a copy's speed allows, if each token reads the weights and the cache once.
    """
    dtype = torch.bfloat16
    model, rows = gpt.GPT(shape, gpt.ATTENTIONS["flash_attention"]).to(device, dtype), []
    for N in prompts:
        for batch in batches:
            prompt = gpt.windows(gpt.encode(gpt.text()), batch, N, torch.Generator().manual_seed(0))[:, :N].to(device)
            bound = batch * copy_tb_s * 1e12 / decode_bytes(shape, batch, N, dtype.itemsize)
            for how in ({"cached": True, "graph": True}, {"cached": True, "graph": False}, {"cached": False, "graph": False}):
                row = {"prompt": N, "batch": batch, **how, "tokens_s": None, "bound_tokens_s": round(bound, 1)}
                count = written if how["cached"] else 4                            # each costs as much as the whole prompt
                one = partial(rate, model, prompt, count, **how)
                found, reason = (None, timing.OUT_OF_TIME) if expired() else timing.attempt(one)
                if reason:
                    row["skipped"] = reason
                rows.append(row | (found or {}))
    return rows


def rate(model, prompt, count, cached, graph):
    """tokens/s behind the third, and the seconds until the first: that is where a prompt is read.

    Raises: ValueError if a graph writes anything else
    """
    write, times = partial(gpt.generate, model, prompt, cached=cached, graph=graph), []
    if graph and not torch.equal(write(8), gpt.generate(model, prompt, 8)):
        raise ValueError("the graph writes other tokens")
    for n in (1, 3, 3 + count):                        # the third is captured
        write(n)                                       # compiles, and works out the launches of a cache of this size
        began = clock()
        write(n)
        times.append(clock() - began)
    return {"tokens_s": round(len(prompt) * count / (times[2] - times[1]), 1), "first_s": round(times[0], 5)}


def run(attentions, *, out=None, command=None, device="cuda", expired=lambda: False, ceilings=timing.ceilings, curve=CURVE,
        shape=LARGE, sizes=CONTEXTS, tokens_a_step=TOKENS, prompts=PROMPTS, batches=BATCHES, written=WRITTEN, profile_at=PROFILED):
    """Measure all of it. `out` is written after each part; what the time did not suffice for says so."""
    results = start("gpt", command, shape=shape._asdict(), curve_shape=curve["shape"]._asdict(), rows=[])
    results["ceilings"] = limits = ceilings()
    results["curves"] = curves(attentions, device, expired, **curve)
    save(results, out)

    results["profile"] = profiled(attentions, device, shape=shape, context=profile_at)
    save(results, out)
    results["generation"] = generation(device, expired, shape=shape, prompts=prompts, batches=batches, written=written,
                                       copy_tb_s=limits["copy_tb_s"])
    save(results, out)

    def add(row):
        results["rows"].append(row)
        save(results, out)

    contexts(attentions, device, expired, add, shape=shape, sizes=sizes, tokens_a_step=tokens_a_step,      # the longest come last
             peak_flops=1e12 * limits["matmul_tflops"])
    return finish(results, out)


def run_asked(args, out, command):
    """What the options ask for."""
    chosen = {name: gpt.ATTENTIONS[name] for name in args.implementations} | args.own
    sizes = [N for N in CONTEXTS if N <= args.longest]
    results = run(chosen, out=out, command=command, expired=timing.deadline(args.budget_seconds), sizes=sizes)
    print(table(results))
    return results


def table(results):
    """The results for a terminal: the last losses, tokens/s by context, parts of a step, tokens/s of generation."""
    why = lambda row: row.get("skipped") or ""
    lines = [f"{row['implementation']}: loss {row['losses'][-1]:.4f} after {len(row['losses'])} steps" if row["losses"] else
             f"{row['implementation']}: {why(row)}" for row in results["curves"]]
    for row in results["rows"]:
        found = f"{row['tokens_s']:,.0f} tokens/s, MFU {row['mfu']:.0%}" if row["tokens_s"] else why(row)
        peak = f", {row['peak_bytes'] / 2**30:.1f} GiB" if row.get("peak_bytes") else ""
        lines.append(f"context {row['context']}, {row['implementation']}: {found}{peak}")
    for row in results["profile"]:
        found = ", ".join(f"{part} {ms:.1f} ms" for part, ms in row["parts"].items()) if row["parts"] else why(row)
        lines.append(f"a step at context {row['context']}, {row['implementation']}: {found}")
    for row in results["generation"]:
        found = f"{row['tokens_s']:,.0f} tokens/s of at most {row['bound_tokens_s']:,.0f}" if row["tokens_s"] else why(row)
        how = "a cache in a graph" if row["graph"] else "a cache" if row["cached"] else "no cache"
        lines.append(f"{row['batch']} prompts of {row['prompt']}, {how}: {found}")
    return "\n".join(lines)


def add_arguments(parser):
    """The options of `bench gpt`, and what they run."""
    names = list(gpt.ATTENTIONS)
    parser.add_argument("--implementations", choices=names, nargs="+", metavar="NAME", default=names,
                        help=f"among {', '.join(names)} (all)")
    parser.add_argument("--longest", type=positive(int, "an integer >= 1"), default=CONTEXTS[-1], metavar="N",
                        help=f"the longest context to train at ({CONTEXTS[-1]})")
    parser.add_argument("--yours", action="store_true", help="your own kernels too: those of chapters 10 and 11 that pass")
    add_budget_and_out(parser, 150.0)
    parser.set_defaults(run=run_asked)
