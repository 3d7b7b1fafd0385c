"""The pictures of chapter 14: who computed what in which step of a ring, how evenly, and what several GPUs gain."""

from matplotlib.patches import Polygon

from flashlab_course.figures.colors import BLUE, INK, ORANGE, READ, ramp
from flashlab_course.figures.plots import axes, box, cells, curves, panels, plot, write
from flashlab_course.figures.style import bare, figure, finish
from flashlab_course.figures.words import by

RANKS = (BLUE, ORANGE, "#5E8C1F", "#E0A100", "#8E5EA2", READ, "#B03A6F", "#2A9D8F")
OF_RINGS = {1: READ, 2: BLUE, 4: ORANGE, 8: "#5E8C1F"}      # a line's colour, by the number of GPUs
BEFORE = "#C9CFD6"
THOUSANDS = {"xlabel": "N, rows of the whole sequence", "names": lambda N: f"{N // 1024:.0f}k"}


@figure
def ring_parts(ranks, N, words):
    """Who computed what when: a row for each rank, a column for each step, in each a small matrix of scores.

    ranks: of each rank {"calls": [{"queries", "keys", "causal"}]}, places in the sequence, as
    flashlab_course.ring_check notes them
    """
    R, size, causal = len(ranks), N // (2 * len(ranks)), ranks[0]["calls"][0]["causal"]
    owned = [set(rank["calls"][0]["queries"]) for rank in ranks]           # step 0 is a rank's own block, all of it
    fig, axs = panels(R, R, size=(1.35 * R + 2.2, 1.35 * R + 1.4))
    times = {}
    for r, rank in enumerate(ranks):
        by_step, done = {}, []
        for call in rank["calls"]:
            owner = next(n for n, rows in enumerate(owned) if call["keys"][0] in rows)
            by_step.setdefault((r - owner) % R, []).extend(pairs_of(call, size))
        for step, ax in enumerate(axs[r * R:(r + 1) * R]):
            owner, pairs = (r - step) % R, by_step.get(step, [])
            for q, k in done:
                chunk(ax, q, k, BEFORE, causal)
            for q, k in pairs:
                chunk(ax, q, k, RANKS[owner % len(RANKS)], causal)
                times[q, k] = times.get((q, k), 0) + 1
            done = done + pairs
            box(ax, 0, 0, 2 * R, 2 * R, "none", edge="#BBBBBB", lw=0.8)
            ax.set(xlim=(-0.1, 2 * R + 0.1), ylim=(2 * R + 0.1, -0.1), aspect="equal", xticks=[], yticks=[],
                   xlabel=f"step {step}" if r == R - 1 else "", ylabel=f"rank {r}" if step == 0 else "")
            ax.set_title(f"keys of rank {owner}" if pairs else "nothing to do", fontsize=8, loc="center",
                         color=RANKS[owner % len(RANKS)] if pairs else "#888888")
            bare(ax)
    whole = len(times) == (R * (2 * R + 1) if causal else 4 * R * R) and set(times.values()) == {1}
    came = "every score has been computed once" if whole else "scores are missing or computed twice"
    return finish(fig, f"After {R} steps of {R} ranks {came}",
                  f"{words} Down: queries, across: keys, in chunks of {size} rows. Coloured: computed in this step; "
                  "grey: before.")


def pairs_of(call, size):
    """[(query chunk, key chunk)] of one call of the kernel, without those that its mask hides whole."""
    queries, keys = (list(dict.fromkeys(place // size for place in call[name])) for name in ("queries", "keys"))
    return [(q, k) for q in queries for k in keys if k <= q or not call["causal"]]


def chunk(ax, q, k, fill, causal):
    """One chunk of scores; on the diagonal of a causal mask the half below it."""
    if causal and q == k:
        ax.add_patch(Polygon([(k, q), (k, q + 1), (k + 1, q + 1)], fc=fill, ec="white", lw=0.5))
    else:
        box(ax, k, q, fill=fill, lw=0.5)


@figure
def ring_work(works, words):
    """How much each rank computes in each step, in whole blocks, a panel for each way to deal out a sequence.

    works: name -> [[work of a rank in each step]]
    """
    R = len(next(iter(works.values())))
    fig, axs = panels(len(works), size=(9.4, 1.9 + 0.42 * R))
    needed = {}
    for ax, (name, work) in zip(axs, works.items(), strict=True):
        slowest = [max(step) for step in zip(*work, strict=True)]
        needed[name] = sum(slowest)
        tint = lambda share: ramp(BLUE, lightest=0.12)(float(share))[:3] if share else "#F2F2F2"
        cells(ax, [[tint(share) for share in rank] for rank in work],
              [[f"{share:.2g}" for share in rank] for rank in work], columns=[f"step {step}" for step in range(R)],
              rows=[*(f"rank {r}" for r in range(R)), "slowest"])
        for step, share in enumerate(slowest):
            write(ax, step + 0.5, R + 0.5, f"{share:.2g}", 9, fontweight="bold")
        ax.set(ylim=(R + 1, 0), title=f"{name}: {needed[name]:g} blocks' time")
    total = sum(map(sum, next(iter(works.values()))))
    (first, slow), *_, (last, fast) = needed.items()
    return finish(fig, f"The slowest rank sets the pace: {total / slow:.2g} times one GPU's speed {first}, "
                       f"{total / fast:.2g} times {last}",
                  f"Modelled: {words} 1 is a block of scores without a mask; a step takes as long as its slowest rank.")


@figure
def ring_speedup(results):
    """How many times as fast as one GPU at the same N: recorded.

    Filled: forward; hollow: forward and backward together.
    """
    rows = [row for row in results["rows"] if row["ms"] and row["speedup"] and row["ranks"] > 1]
    if not rows:
        raise ValueError("results must have rows of rings of two GPUs or more that were measured, got none")
    sizes, most = sorted({row["N"] for row in rows}), max(row["ranks"] for row in rows)
    points = lambda *of: by([row for row in rows if (row["mode"], row["ranks"], row["passes"]) == of], "N", "speedup")
    fig, axs = panels(2, size=(9.4, 4.1), sharey=True)
    for ax, mode, title in ((axs[0], "all", "no mask"), (axs[1], "causal, zig-zag", "causal")):
        for ranks in sorted({row["ranks"] for row in rows}):
            shade = OF_RINGS.get(ranks, INK)
            ax.axhline(ranks, ls="--", lw=1, color=shade)
            plot(ax, f"{ranks} GPUs", points(mode, ranks, "forward"), shade)
            plot(ax, "", points(mode, ranks, "forward+backward"), shade, fill="white")
            if mode != "all":
                plot(ax, f"{ranks}, in order", points("causal, in order", ranks, "forward"), BEFORE)
        axes(ax, log="x", ticks=sizes, title=title, xlim=(0.85 * sizes[0], 2.6 * sizes[-1]), ylim=(0, 1.12 * most),
             **THOUSANDS)
    axs[0].set_ylabel("times as fast as one GPU")
    best = max(rows, key=lambda row: (row["ranks"], row["N"], row["speedup"]))
    return finish(fig, f"{best['ranks']} GPUs are {best['speedup']:.2f} times as fast as one at N = {best['N']}",
                  f"{where(results)} The title: {row_text(best)}. Filled: forward; hollow: forward and backward. "
                  "Dashed: as many times as there are GPUs.")


@figure
def ring_memory(results, mode="causal, zig-zag", passes="forward+backward"):
    """Peak memory of one GPU against the length of the whole sequence: recorded."""
    rows = [row | {"GiB": row["peak_bytes"] / 2**30} for row in results["rows"]
            if row["ms"] and (row["mode"], row["passes"]) == (mode, passes)]
    if not rows:
        raise ValueError(f"results must have rows of mode {mode!r} and passes {passes!r}, got none")
    lines = {ranks: by([row for row in rows if row["ranks"] == ranks], "N", "GiB")
             for ranks in sorted({row["ranks"] for row in rows})}
    sizes, most = sorted({row["N"] for row in rows}), max(rows, key=lambda row: (row["N"], row["ranks"]))
    alone = dict(lines.get(1, [])).get(most["N"])
    beside = f", one GPU alone {alone:.1f}" if alone and most["ranks"] > 1 else ""
    words = row_text(most)
    return curves([(f"{ranks} GPU{'s' * (ranks > 1)}", line, OF_RINGS.get(ranks, INK))
                   for ranks, line in lines.items()],
                  f"At N = {most['N']} each of {most['ranks']} GPUs holds {most['GiB']:.1f} GiB{beside}",
                  f"{where(results)} {words[0].upper()}{words[1:]}: shards, results and what is held meanwhile.",
                  THOUSANDS["xlabel"], "GiB on one GPU, at most", size=(8, 3.9), log="xy", ticks=sizes,
                  names=THOUSANDS["names"], xlim=(0.9 * sizes[0], 1.7 * sizes[-1]))


def row_text(row):
    mask = "no mask" if row["mode"] == "all" else row["mode"]
    return f"{mask}, {row['passes'].replace('+', ' and ')}, H = {row['H']}, d = {row['d']}, {row['dtype']}"


def where(results):
    p = results["provenance"]
    return f"Recorded on {p['device']}s of one host, {p['date'][:10]}, torch {p['torch']}."
