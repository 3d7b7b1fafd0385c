"""The pictures of a model in training, chapters 11 and 15: losses, memory, the parts of a step, the time of a token."""

import matplotlib.pyplot as plt

from flashlab_course.figures.style import INK, YOURS, byte_axis, figure, finish, ink_on, log_axes, plain_log
from flashlab_course.figures.words import group, ratio_text

COLOURS = ("#222222", "#7A1FA2", "#009E73", "#D55E00")
OF_ATTENTION = {"naive": "#222222", "SDPA math": "#7A1FA2", "flash_attention": "#009E73", "SDPA flash": "#D55E00",
                "SDPA cuDNN": "#0072B2"}
OF_PART = {"attention": "#009E73", "projections": "#0072B2", "mlp": "#56B4E9", "head": "#E69F00", "the rest": "#BBBBBB"}


@figure
def loss_curves(losses, reference, words):
    """Training losses, and how far each run is from the reference. losses: name -> one number a step; words: from where."""
    fig, (ax, below) = plt.subplots(2, 1, figsize=(8.4, 5), sharex=True, gridspec_kw={"height_ratios": [2.2, 1]})
    theirs = [name for name in losses if not name.startswith("your")]
    order = [OF_ATTENTION[name] for name in theirs] if set(theirs) <= set(OF_ATTENTION) else COLOURS
    colours, ends, last = dict.fromkeys(losses, YOURS) | dict(zip(theirs, order, strict=False)), [], {}
    for name, values in losses.items():
        ax.plot(values, color=colours[name], lw=3.2 if name == reference else 1.6, alpha=0.45 if name == reference else 1)
        last[name] = values[-1]
        if len(values) == max(map(len, losses.values())):
            ends.append((len(values) - 1, values[-1], name, colours[name]))
        else:
            ax.annotate(name, (len(values) - 1, values[-1]), (6, 8 if name in theirs else 21), textcoords="offset points",
                        fontsize=9, fontweight="bold", color=colours[name])
        if name != reference:
            apart = [max(abs(a - b), 1e-9) for a, b in zip(values, losses[reference], strict=False)]
            below.plot(apart, color=colours[name])
    ax.set(ylabel="loss (nats a character)", ylim=(0, 1.05 * max(max(values) for values in losses.values())))
    below.set(yscale="log", xlabel="step", ylabel=f"|loss − {reference}'s|")
    for axis in (ax, below):
        axis.grid(axis="y")
    behind = {name: values[-1] - losses[reference][len(values) - 1] for name, values in losses.items() if name != reference}
    main = next(iter(behind))
    title = f"{main} and {reference} end {abs(behind[main]):.0e} apart"
    worst = max(behind, key=behind.get)
    if behind[worst] > 100 * abs(behind[main]):
        gap = next((n for n, (x, y) in enumerate(zip(losses[worst], losses[reference], strict=False)) if x - y > 0.2), None)
        title += f"; “{worst}” ends {behind[worst]:.2f} behind" + (f", but looks right for {gap} steps" if gap else "")
    return finish(fig, title, words, ends={ax: ends})


@figure
def training_memory(points, budgets, words):
    """Memory of a training step against the context. points: dicts of implementation, N, bytes; budgets: name -> bytes, dashed."""
    fig, ax = plt.subplots(figsize=(8.4, 4.4))
    lines, ends = group(sorted(points, key=lambda p: p["N"]), "implementation"), []
    for name, rows in lines.items():
        ax.plot([p["N"] for p in rows], [p["bytes"] for p in rows], "o-", color=OF_ATTENTION.get(name, YOURS))
        ends.append((rows[-1]["N"], rows[-1]["bytes"], name, OF_ATTENTION.get(name, YOURS)))
    Ns = sorted({p["N"] for p in points})
    for name, size in budgets.items():
        ax.axhline(size, ls="--", lw=1, color=INK)
        ax.annotate(name, (Ns[0], size), (0, 3), textcoords="offset points", fontsize=9)
    log_axes(ax, Ns[::2], "context N, one text", "bytes while training")
    ax.set_xlim(0.9 * Ns[0], 1.1 * Ns[-1])
    byte_axis(ax.yaxis)
    largest = max(budgets, key=budgets.get)
    fits = {name: max((p["N"] for p in rows if p["bytes"] <= budgets[largest]), default=0) for name, rows in lines.items()}
    title = ", ".join(f"{N:,} tokens with {name}" for name, N in fits.items())
    return finish(fig, f"{largest} has room for {title}", words, ends={ax: ends})


@figure
def share_of_attention(points, words):
    """What part of a step's FLOPs is attention's own, against the context. points: (N, share)."""
    fig, ax = plt.subplots(figsize=(8.4, 3.6))
    ax.plot([N for N, _ in points], [100 * share for _, share in points], "o-", color=OF_PART["attention"])
    ax.axhline(50, ls="--", lw=1, color=INK)
    ax.set(xscale="log", ylim=(0, 100), xlabel="context N", ylabel="% of the FLOPs")
    ax.xaxis.set_ticks([N for N, _ in points][::2], [f"{N}" for N, _ in points][::2])
    ax.xaxis.set_ticks([], minor=True)
    ax.grid(axis="y")
    most = next((N for N, share in points if share > 0.5), None)
    title = f"From N = {most:,} on, attention is most of the work" if most else "Attention is the smaller part of the work"
    return finish(fig, title, words)


@figure
def parts_of_a_step(parts, words):
    """A bar of a training step for each implementation. parts: name -> {part of the model: ms}."""
    fig, ax = plt.subplots(figsize=(8.6, 1.5 + 0.5 * len(parts)))
    longest = max(sum(of.values()) for of in parts.values())
    for y, of in enumerate(parts.values()):
        left = 0
        for part, ms in of.items():
            ax.barh(y, ms, 0.62, left=left, color=OF_PART[part], label=part if y == 0 else None)
            if ms > 0.07 * longest:
                ink = ink_on(tuple(int(OF_PART[part][n : n + 2], 16) / 255 for n in (1, 3, 5)))
                ax.annotate(f"{ms:.3g}", (left + ms / 2, y), ha="center", va="center", fontsize=9, color=ink)
            left += ms
    ax.set(xlabel="ms of a step, forward and backward", ylim=(len(parts) - 0.4, -0.6), xlim=(0, 1.03 * longest))
    ax.set_yticks(range(len(parts)), list(parts))
    ax.legend(ncols=len(OF_PART), loc="lower left", bbox_to_anchor=(0, 1), frameon=False, fontsize=9, handlelength=1)
    shares = {name: of["attention"] / sum(of.values()) for name, of in parts.items()}
    title = ", ".join(f"{100 * share:.0f} % of a step with {name}" for name, share in shares.items())
    return finish(fig, f"Attention takes {title}", words)


@figure
def time_of_a_token(points, words):
    """ms of one more token against the tokens so far. points: dicts of how, N, ms."""
    fig, ax = plt.subplots(figsize=(8.4, 4))
    lines, ends = group(sorted(points, key=lambda p: p["N"]), "how"), []
    for colour, (how, rows) in zip(("#009E73", "#D55E00"), lines.items(), strict=False):
        ax.plot([p["N"] for p in rows], [p["ms"] for p in rows], "o-", color=colour)
        ends.append((rows[-1]["N"], rows[-1]["ms"], how, colour))
    Ns = sorted({p["N"] for p in points})
    log_axes(ax, Ns, "tokens so far", "ms for one more")
    plain_log(ax.yaxis)
    (first, fast), (second, slow) = sorted(((how, rows[-1]["ms"]) for how, rows in lines.items()), key=lambda pair: pair[1])
    title = f"After {Ns[-1]} tokens, one more takes {slow:.3g} ms {second} and {fast:.3g} ms {first}"
    return finish(fig, f"{title}: {ratio_text(slow, fast)} times less", words, ends={ax: ends})


@figure
def training_by_context(results, live=False):
    """Tokens a second and peak memory of training by context, of `bench gpt`; a cross where there was no room."""
    fig, panels = plt.subplots(1, 2, figsize=(9.6, 4.4))
    done, ends = group([row for row in results["rows"] if row["tokens_s"]], "implementation"), {ax: [] for ax in panels}
    Ns = sorted({row["context"] for row in results["rows"]})
    for ax, key, label in zip(panels, ("tokens_s", "peak_bytes"), ("tokens a second", "peak memory (bytes)"), strict=True):
        for name, rows in done.items():
            colour = OF_ATTENTION.get(name, YOURS)
            ax.plot([row["context"] for row in rows], [row[key] for row in rows], "o-", color=colour)
            ends[ax].append((rows[-1]["context"], rows[-1][key], name, colour))
        log_axes(ax, Ns[::2], "context N", label)
        ax.xaxis.set_ticks(Ns[::2], [f"{N // 1024}k" for N in Ns[::2]])
        ax.set_xlim(0.8 * Ns[0], 1.3 * Ns[-1])
    plain_log(panels[0].yaxis)
    byte_axis(panels[1].yaxis)
    full = {row["implementation"]: row["context"] for row in results["rows"] if row.get("skipped") == "out of memory"}
    for name, N in full.items():
        if name in done:
            panels[1].plot(N, done[name][-1]["peak_bytes"] * 2, "x", ms=9, mew=2, color=OF_ATTENTION.get(name, YOURS))
    longest = {name: f"{'' if name in full else 'at least '}{rows[-1]['context']:,}" for name, rows in done.items()}
    title = ", ".join(f"{N} with {name}" for name, N in longest.items())
    where = f"{'Measured here, on' if live else 'Recorded on'} {results['provenance']['device']}"
    sizes = "{layers} layers of {width} columns, bfloat16 autocast".format(**results["shape"])
    cross = "A cross: out of memory; its height means nothing."
    return finish(fig, f"The longest context that fits, in tokens: {title}", f"{where}: {sizes}. {cross}", ends=ends)
