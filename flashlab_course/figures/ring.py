"""The pictures of chapter 14: who computed what in which step of a ring, how evenly, and what several GPUs gain."""

import matplotlib.pyplot as plt
from matplotlib.patches import Polygon, Rectangle
from matplotlib.ticker import NullLocator

from flashlab_course.figures.style import FAINT, INK, bare, figure, finish, ink_on, plain_log, ramp

RANKS = ("#0072B2", "#D55E00", "#5E8C1F", "#E0A100", "#8E5EA2", "#4A5568", "#B03A6F", "#2A9D8F")
OF_RINGS = {1: "#4A5568", 2: "#0072B2", 4: "#D55E00", 8: "#5E8C1F"}      # a line's colour, by the number of GPUs
BEFORE = "#C9CFD6"


@figure
def ring_parts(ranks, N, words):
    """Who computed what when: a row for each rank, a column for each step, in each a small matrix of scores.

    ranks: of each rank {"calls": [{"queries", "keys", "causal"}]}, places in the sequence, as flashlab_course.ring_check notes them
    """
    R, size = len(ranks), N // (2 * len(ranks))
    owned = [set(rank["calls"][0]["queries"]) for rank in ranks]           # step 0 is a rank's own block, all of it
    fig, axes = plt.subplots(R, R, figsize=(1.35 * R + 2.2, 1.35 * R + 1.4), squeeze=False)
    times = {}
    for r, rank in enumerate(ranks):
        done, by_step = [], {}
        for call in rank["calls"]:
            owner = next(n for n, rows in enumerate(owned) if call["keys"][0] in rows)
            by_step.setdefault((r - owner) % R, []).extend(pairs_of(call, size))
        for step, ax in enumerate(axes[r]):
            owner, pairs = (r - step) % R, by_step.get(step, [])
            for shade, several in ((BEFORE, done), (RANKS[owner % len(RANKS)], pairs)):
                for q, k in several:
                    ax.add_patch(_chunk(q, k, shade, half=q == k and rank["calls"][0]["causal"]))
            for pair in pairs:
                times[pair] = times.get(pair, 0) + 1
            done = done + pairs
            ax.add_patch(Rectangle((0, 0), 2 * R, 2 * R, fill=False, ec="#BBBBBB", lw=0.8))
            ax.set(xlim=(-0.1, 2 * R + 0.1), ylim=(2 * R + 0.1, -0.1), aspect="equal", xticks=[], yticks=[])
            ax.set_title(f"keys of rank {owner}" if pairs else "nothing to do", fontsize=8, loc="center",
                         color=RANKS[owner % len(RANKS)] if pairs else "#888888")
            bare(ax)
            if r == R - 1:
                ax.set_xlabel(f"step {step}", fontsize=9)
        axes[r, 0].set_ylabel(f"rank {r}", fontsize=9)
    causal = ranks[0]["calls"][0]["causal"]
    wanted = R * (2 * R + 1) if causal else 4 * R * R
    whole = len(times) == wanted and set(times.values()) == {1}
    came = "every score has been computed once" if whole else "scores are missing or computed twice"
    return finish(fig, f"After {R} steps of {R} ranks {came}",
                  f"{words} Down: queries, across: keys, in chunks of {size} rows. Coloured: computed in this step; grey: before.")


def pairs_of(call, size):
    """[(query chunk, key chunk)] of one call of the kernel, those left out that its mask hides whole."""
    chunks = [list(dict.fromkeys(place // size for place in call[name])) for name in ("queries", "keys")]
    return [(q, k) for q in chunks[0] for k in chunks[1] if k <= q or not call["causal"]]


def _chunk(q, k, shade, half):
    if half:
        return Polygon([(k, q), (k, q + 1), (k + 1, q + 1)], fc=shade, ec="white", lw=0.5)
    return Rectangle((k, q), 1, 1, fc=shade, ec="white", lw=0.5)


@figure
def ring_work(works, words):
    """How much each rank computes in each step, in whole blocks, a panel for each way to deal out a sequence.

    works: name -> [[work of a rank in each step]]
    """
    R = len(next(iter(works.values())))
    fig, axes = plt.subplots(1, len(works), figsize=(9.4, 1.9 + 0.42 * R), squeeze=False)
    shades, needed = ramp("#0072B2", lightest=0.12), {}
    for ax, (name, work) in zip(axes[0], works.items(), strict=True):
        slowest = [max(rank[step] for rank in work) for step in range(R)]
        needed[name] = sum(slowest)
        for step in range(R):
            for r, rank in enumerate(work):
                shade = shades(rank[step]) if rank[step] else (0.95, 0.95, 0.95, 1)
                ax.add_patch(Rectangle((step, r), 1, 1, fc=shade, ec="white", lw=2))
                ax.text(step + 0.5, r + 0.5, f"{rank[step]:.2g}", ha="center", va="center", fontsize=9, color=ink_on(shade))
            ax.text(step + 0.5, R + 0.55, f"{slowest[step]:.2g}", ha="center", va="center", fontsize=9, fontweight="bold")
        ax.text(-0.15, R + 0.55, "slowest", ha="right", va="center", fontsize=9, fontweight="bold")
        ax.set(xlim=(-0.05, R), ylim=(R + 1, 0))
        ax.set_title(f"{name}: {needed[name]:g} blocks' time")
        ax.set_xticks([step + 0.5 for step in range(R)], [f"step {step}" for step in range(R)], fontsize=8)
        ax.set_yticks([r + 0.5 for r in range(R)], [f"rank {r}" for r in range(R)], fontsize=8)
        bare(ax)
    (first, slow), (last, fast) = list(needed.items())[0], list(needed.items())[-1]
    total = sum(map(sum, next(iter(works.values()))))
    said = f"{total / slow:.2g} times one GPU's speed {first}, {total / fast:.2g} times {last}"
    return finish(fig, f"The slowest rank sets the pace: {said}",
                  f"Modelled: {words} 1 is a block of scores without a mask; a step takes as long as its slowest rank.")


@figure
def ring_speedup(results):
    """How many times as fast as one GPU at the same N: recorded. Filled: forward; hollow: forward and backward together."""
    modes = {"all": "no mask", "causal, zig-zag": "causal"}
    fig, axes = plt.subplots(1, 2, figsize=(9.4, 4.1), sharey=True)
    rows = [row for row in results["rows"] if row["ms"] and row["speedup"] and row["ranks"] > 1]
    if not rows:
        raise ValueError("results must have rows of rings of two GPUs or more that were measured, got none")
    sizes = sorted({row["N"] for row in rows})
    names = {}
    for ax, (mode, name) in zip(axes, modes.items(), strict=True):
        ends = []
        for ranks in sorted({row["ranks"] for row in rows}):
            shade = OF_RINGS.get(ranks, INK)
            ax.axhline(ranks, ls="--", lw=1, color=shade)
            for passes, fill in (("forward", shade), ("forward+backward", "white")):
                points = sorted((row["N"], row["speedup"]) for row in rows
                                if (row["mode"], row["ranks"], row["passes"]) == (mode, ranks, passes))
                if points:
                    ax.plot(*zip(*points, strict=True), "o-", color=shade, mfc=fill)
                    ends = [*ends, (*points[-1], f"{ranks} GPUs", shade)] if passes == "forward" else ends
            slow = sorted((row["N"], row["speedup"]) for row in rows if (row["mode"], row["ranks"]) == ("causal, in order", ranks))
            if slow and mode != "all":
                ax.plot(*zip(*slow, strict=True), "o-", color=BEFORE)
                ends.append((*slow[-1], f"{ranks}, in order", "#7A8490"))
        ax.set(title=name, xscale="log", xlim=(0.85 * sizes[0], 2.6 * sizes[-1]), xlabel="N, rows of the whole sequence",
               ylim=(0, 1.12 * max(row["ranks"] for row in rows)))
        _sizes(ax, sizes)
        names[ax] = ends
    axes[0].set_ylabel("times as fast as one GPU")
    best = max(rows, key=lambda row: (row["ranks"], row["N"], row["speedup"]))
    title = f"{best['ranks']} GPUs are {best['speedup']:.2f} times as fast as one at N = {best['N']}"
    words = f"The title: {_words(best)}. Filled: forward; hollow: forward and backward. Dashed: as many times as there are GPUs."
    return finish(fig, title, f"{_where(results)} {words}", ends=names)


@figure
def ring_memory(results, mode="causal, zig-zag", passes="forward+backward"):
    """Peak memory of one GPU against the length of the whole sequence: recorded."""
    rows = [row for row in results["rows"] if row["ms"] and (row["mode"], row["passes"]) == (mode, passes)]
    if not rows:
        raise ValueError(f"results must have rows of mode {mode!r} and passes {passes!r}, got none")
    fig, ax = plt.subplots(figsize=(8, 3.9))
    ends, sizes = [], sorted({row["N"] for row in rows})
    for ranks in sorted({row["ranks"] for row in rows}):
        points = sorted((row["N"], row["peak_bytes"] / 2**30) for row in rows if row["ranks"] == ranks)
        ax.plot(*zip(*points, strict=True), "o-", color=OF_RINGS.get(ranks, INK))
        ends.append((*points[-1], f"{ranks} GPU{'s' if ranks > 1 else ''}", OF_RINGS.get(ranks, INK)))
    ax.set(xscale="log", yscale="log", xlim=(0.9 * sizes[0], 1.7 * sizes[-1]), xlabel="N, rows of the whole sequence",
           ylabel="GiB on one GPU, at most")
    plain_log(ax.yaxis)
    _sizes(ax, sizes)
    most = max(rows, key=lambda row: (row["N"], row["ranks"]))
    one = next((row for row in rows if row["N"] == most["N"] and row["ranks"] == 1), None)
    beside = f", one GPU alone {one['peak_bytes'] / 2**30:.1f}" if one and one is not most else ""
    return finish(fig, f"At N = {most['N']} each of {most['ranks']} GPUs holds {most['peak_bytes'] / 2**30:.1f} GiB{beside}",
                  f"{_where(results)} {_words(most)[0].upper()}{_words(most)[1:]}: shards, results and what is held meanwhile.",
                  ends={ax: ends})


def _sizes(ax, sizes):
    ax.xaxis.set_major_locator(plt.FixedLocator(sizes))
    ax.xaxis.set_major_formatter(lambda N, _: f"{N // 1024:.0f}k")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.grid(axis="y", color=FAINT)


def _words(row):
    mask = "no mask" if row["mode"] == "all" else row["mode"]
    return f"{mask}, {row['passes'].replace('+', ' and ')}, H = {row['H']}, d = {row['d']}, {row['dtype']}"


def _where(results):
    p = results["provenance"]
    return f"Recorded on {p['device']}s of one host, {p['date'][:10]}, torch {p['torch']}."
