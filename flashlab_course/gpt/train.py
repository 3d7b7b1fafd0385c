"""Training on the text that ships with the course: batches, steps, and a line of progress."""

import contextlib
import functools
import math
import sys
import time
from pathlib import Path

import torch

TEXT = Path(__file__).with_name("shakespeare.txt")     # where it comes from: shakespeare.md beside it
HELD_BACK = 0.1                                        # the share of the text, its end, that is not trained on
WARM_UP = 0.1                                          # the share of the steps in which the learning rate rises


@functools.cache
def text():
    """From the plays of William Shakespeare."""
    return TEXT.read_text(encoding="ascii")


def encode(words):
    """Text -> tokens (N,), its bytes."""
    return torch.tensor(list(words.encode()), dtype=torch.int64)


def decode(tokens):
    """Tokens (N,) -> text."""
    return bytes(tokens.tolist()).decode(errors="replace")


def split(tokens):
    """The tokens to train on, and those at the end that are held back."""
    cut = int(len(tokens) * (1 - HELD_BACK))
    return tokens[:cut], tokens[cut:]


def windows(tokens, batch, context, generator):
    """(batch, context + 1) tokens: pieces of the text from random places, the same on every machine."""
    if len(tokens) < context + 1:
        raise ValueError(f"context must be less than the text's {len(tokens)} tokens, got {context}")
    starts = torch.randint(len(tokens) - context, (batch, 1), generator=generator)
    return tokens[starts + torch.arange(context + 1)]


def train(model, tokens, steps, *, batch=8, context=128, learning_rate=2e-3, seed=0, dtype=None, report=None):
    """Train the model where its weights are; the loss of each step, in nats a token.

    seed:   two runs with the same seed see the same text in the same order
    dtype:  for autocast; None: the weights' own
    report: called now and then with (step, steps, loss)
    Source: AdamW, Loshchilov and Hutter 2019, arXiv:1711.05101; the learning rate rises, then falls along half a cosine
    """
    device, draw = next(model.parameters()).device, torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
    losses, began, said = [], time.monotonic(), 0.0
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = learning_rate * pace(step, steps)
        losses.append(train_step(model, optimizer, windows(tokens, batch, context, draw).to(device), dtype))
        now = time.monotonic() - began
        if report and (now - said > 0.5 or step == steps - 1):               # not each step: reading the loss waits
            said = now
            report(step + 1, steps, losses[-1].item())
    return torch.stack(losses).tolist()


def train_step(model, optimizer, tokens, dtype=None):
    """One step on these windows. Returns the loss as a tensor: reading its number would wait for the GPU."""
    with torch.autocast(tokens.device.type, dtype) if dtype else contextlib.nullcontext():
        loss = model.loss(tokens)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def pace(step, steps):
    """The factor of the learning rate: it rises to 1 in the first tenth of the steps, then falls to 0.1."""
    rise = max(1, int(WARM_UP * steps))
    if step < rise:
        return (step + 1) / rise
    return 0.55 + 0.45 * math.cos(math.pi * (step - rise) / max(1, steps - rise))


@torch.no_grad()
def held_back_loss(model, tokens, *, batch=8, context=128, seed=1):
    """The loss on windows of a text that was not trained on."""
    pieces = windows(tokens, batch, context, torch.Generator().manual_seed(seed))
    return model.loss(pieces.to(next(model.parameters()).device)).item()


def progress(name):
    """A `report` for train: one line, overwritten in a notebook or terminal; elsewhere only the last one."""
    shown = None

    def report(step, steps, loss):
        nonlocal shown
        line = f"{name}: step {step} of {steps}, loss {loss:.2f}"
        if "ipykernel" in sys.modules and sys.modules["IPython"].get_ipython():              # in a notebook
            from IPython.display import display

            shown = shown or display({"text/plain": line}, raw=True, display_id=True)
            shown.update({"text/plain": line}, raw=True)
        elif sys.stdout.isatty():
            print(f"\r{line}", end="\n" if step == steps else "", flush=True)
        elif step == steps:
            print(line)

    return report
