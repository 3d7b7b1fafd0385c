"""The pictures of a model in training, chapters 11 and 15: losses, memory, the parts of a step, the time of a token."""

from flashlab_course.figures.colors import BLUE, GREEN, INK, ORANGE, PURPLE, YOURS
from flashlab_course.figures.plots import axes, curves, panel, panels, plot, stack
from flashlab_course.figures.style import figure, finish, note
from flashlab_course.figures.words import by, group, ratio_text

OF_ATTENTION = {"naive": INK, "SDPA math": PURPLE, "flash_attention": GREEN, "SDPA flash": ORANGE, "SDPA cuDNN": BLUE}
OF_PART = {"attention": GREEN, "projections": BLUE, "mlp": "#56B4E9", "head": "#E69F00", "the rest": "#BBBBBB"}


def colors_of(names):
    """A colour for each run but the learner's: its attention's, or one colour after the other."""
    theirs = [name for name in names if not name.startswith("your")]
    known = set(theirs) <= set(OF_ATTENTION)
    return {name: OF_ATTENTION[name] if known else (INK, PURPLE, GREEN, ORANGE)[n % 4] for n, name in enumerate(theirs)}


@figure
def loss_curves(losses, reference, words):
    """Training losses, and how far each run is from the reference.

    losses: name -> one number a step; words: from where.
    """
    fig, (ax, below) = panels(1, 2, size=(8.4, 5), sharex=True, height_ratios=[2.2, 1])
    colours, longest, base = colors_of(losses), max(map(len, losses.values())), losses[reference]
    behind = {}
    for name, values in losses.items():
        colour, last = colours.get(name, YOURS), len(values) - 1
        look = {"lw": 3.2, "alpha": 0.45} if name == reference else {"lw": 1.6}
        plot(ax, name if last + 1 == longest else "", enumerate(values), colour, "-", **look)
        if last + 1 < longest:
            note(ax, name, last, values[-1], 6, 12 if name in colours else 25, fontweight="bold", color=colour)
        if name != reference:
            behind[name] = [a - b for a, b in zip(values, base, strict=False)]
            plot(below, "", enumerate(max(abs(gap), 1e-9) for gap in behind[name]), colour, "-")
    axes(ax, "", "loss (nats a character)", ylim=(0, 1.05 * max(map(max, losses.values()))))
    axes(below, "step", f"|loss − {reference}'s|", yscale="log")
    main, worst = next(iter(behind)), max(behind, key=lambda name: behind[name][-1])
    gap, most = abs(behind[main][-1]), behind[worst][-1]
    title = f"{main} and {reference} end {gap:.0e} apart"
    if most > 100 * gap:
        wrong = next((n for n, apart in enumerate(behind[worst]) if apart > 0.2), None)
        title += f"; “{worst}” ends {most:.2f} behind" + (f", but looks right for {wrong} steps" if wrong else "")
    return finish(fig, title, words)


@figure
def training_memory(points, budgets, words):
    """Memory of a training step against the context.

    points: dicts of implementation, N, bytes; budgets: name -> bytes, dashed.
    """
    lines = {name: by(rows, "N", "bytes") for name, rows in group(points, "implementation").items()}
    Ns, largest = sorted({p["N"] for p in points}), max(budgets, key=budgets.get)
    fits = (f"{max((N for N, size in line if size <= budgets[largest]), default=0):,} tokens with {name}"
            for name, line in lines.items())
    return curves([(name, line, OF_ATTENTION.get(name, YOURS)) for name, line in lines.items()],
                  f"{largest} has room for {', '.join(fits)}", words, "context N, one text", "bytes while training",
                  size=(8.4, 4.4), log="xy", byte="y", ticks=Ns[::2], xlim=(0.9 * Ns[0], 1.1 * Ns[-1]),
                  ceilings=budgets)


@figure
def share_of_attention(points, words):
    """What part of a step's FLOPs is attention's own, against the context. points: (N, share)."""
    most = next((N for N, share in points if share > 0.5), None)
    return curves([("", [(N, 100 * share) for N, share in points], GREEN)],
                  f"From N = {most:,} on, attention is most of the work" if most
                  else "Attention is the smaller part of the work", words, "context N", "% of the FLOPs",
                  size=(8.4, 3.6), log="x", ticks=[N for N, _ in points][::2], ylim=(0, 100), ceilings={"": 50})


@figure
def parts_of_a_step(parts, words):
    """A bar of a training step for each implementation. parts: name -> {part of the model: ms}."""
    fig, ax = panel(8.6, 1.5 + 0.5 * len(parts))
    stack(ax, {name: [(ms, OF_PART[part], f"{ms:.3g}") for part, ms in of.items()] for name, of in parts.items()},
          xlabel="ms of a step, forward and backward", room=1.03)
    ax.legend(ax.patches[:len(OF_PART)], OF_PART, ncols=len(OF_PART), loc="lower left", bbox_to_anchor=(0, 1),
              frameon=False, fontsize=9, handlelength=1)
    shares = (f"{100 * of['attention'] / sum(of.values()):.0f} % of a step with {name}" for name, of in parts.items())
    return finish(fig, f"Attention takes {', '.join(shares)}", words)


@figure
def time_of_a_token(points, words):
    """ms of one more token against the tokens so far. points: dicts of how, N, ms."""
    lines = {how: by(rows, "N", "ms") for how, rows in group(points, "how").items()}
    (first, fast), (second, slow) = sorted(((how, line[-1][1]) for how, line in lines.items()),
                                           key=lambda pair: pair[1])
    Ns = sorted({p["N"] for p in points})
    return curves([(how, line, colour) for (how, line), colour in zip(lines.items(), (GREEN, ORANGE), strict=False)],
                  f"After {Ns[-1]} tokens, one more takes {slow:.3g} ms {second} and {fast:.3g} ms {first}: "
                  f"{ratio_text(slow, fast)} times "
                  "less", words, "tokens so far", "ms for one more", size=(8.4, 4), log="xy", ticks=Ns)


@figure
def training_by_context(results, live=False):
    """Tokens a second and peak memory of training by context, of `bench gpt`; a cross where there was no room."""
    done = group([row for row in results["rows"] if row["tokens_s"]], "implementation")
    Ns = sorted({row["context"] for row in results["rows"]})
    fig, (speed, memory) = panels(2, size=(9.6, 4.4))
    for name, rows in done.items():
        for ax, key in ((speed, "tokens_s"), (memory, "peak_bytes")):
            plot(ax, name, by(rows, "context", key), OF_ATTENTION.get(name, YOURS))
    full = {row["implementation"]: row["context"] for row in results["rows"] if row.get("skipped") == "out of memory"}
    for name in full.keys() & done.keys():
        memory.plot(full[name], done[name][-1]["peak_bytes"] * 2, "x", ms=9, mew=2, color=OF_ATTENTION.get(name, YOURS))
    for ax, words, byte in ((speed, "tokens a second", ""), (memory, "peak memory (bytes)", "y")):
        axes(ax, "context N", words, log="xy", byte=byte, ticks=Ns[::2], names=lambda N: f"{N // 1024:.0f}k",
             xlim=(0.8 * Ns[0], 1.3 * Ns[-1]))
    longest = (f"{'' if name in full else 'at least '}{rows[-1]['context']:,} with {name}"
               for name, rows in done.items())
    where = f"{'Measured here, on' if live else 'Recorded on'} {results['provenance']['device']}"
    sizes = "{layers} layers of {width} columns, bfloat16 autocast".format(**results["shape"])
    return finish(fig, f"The longest context that fits, in tokens: {', '.join(longest)}",
                  f"{where}: {sizes}. A cross: out of memory; its height means nothing.")
