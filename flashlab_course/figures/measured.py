"""Pictures of the measurements of chapter 09 and its appendix: bars, and what depends on a stride, a length, a precision."""

import matplotlib.pyplot as plt

from flashlab_course.figures.style import HALO, INK, READ, YOURS, figure, finish, plain_log

OURS, THEIRS, WORSE = "#0072B2", "#4A5568", "#D55E00"


@figure
def bars(values, title, words, xlabel, *, log=False, worse=()):
    """A bar for each name, its number behind it. worse: names that get the colour of what goes wrong; words: from where."""
    fig, ax = plt.subplots(figsize=(8.6, 1 + 0.42 * max(1, len(values))))
    for y, (name, value) in enumerate(values.items()):
        ax.barh(y, value, 0.66, color=WORSE if name in worse else OURS, log=log)
        number = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        ax.annotate(number, (value, y), (4, 0), textcoords="offset points", va="center", fontsize=9)
    ax.set(ylim=(len(values) - 0.4, -0.6), xlabel=xlabel)
    ax.set_yticks(range(len(values)), list(values))
    high = max(values.values(), default=1)
    ax.set_xlim((min(values.values()) / 2, 4 * high) if log else (0, 1.14 * high))
    if log:
        plain_log(ax.xaxis)
    return finish(fig, title, words)


@figure
def slower_with_stride(rows, words, sectors=None):
    """Time of an addition of strided matrices against stride 1. rows: dicts of stride, ms.

    sectors: stride -> what somebody's ex09_uncoalesced says of it, (sectors, coalesced); what says nothing is left out
    """
    times = {row["stride"]: row["ms"] for row in sorted(rows, key=lambda row: row["stride"])}
    ratios = {stride: ms / times[1] for stride, ms in times.items()}
    fig, ax = plt.subplots(figsize=(8, 3.9))
    ax.plot(list(ratios), list(ratios.values()), "o-", color=OURS)
    ax.annotate("time", (max(ratios), ratios[max(ratios)]), (8, 0), textcoords="offset points", va="center", color=OURS,
                fontweight="bold", annotation_clip=False)
    counts = {stride: said[0] for stride, said in (sectors or {}).items()
              if isinstance(said, tuple) and said and isinstance(said[0], int)}
    if counts.get(1):
        moved = {stride: count / counts[1] for stride, count in counts.items()}
        ax.plot(list(moved), list(moved.values()), "*--", color=YOURS, ms=10)
        ax.annotate("sectors, by your\nex09_uncoalesced", (max(moved), moved[max(moved)]), (8, -4), textcoords="offset points",
                    va="center", color=YOURS, fontsize=9, fontweight="bold", annotation_clip=False)
    ax.set(xscale="log", yscale="log", xlabel="stride, in elements of 4 bytes", ylabel="times as long as stride 1", ylim=(0.7, 40),
           xlim=(0.9, 1.9 * max(ratios)))
    for axis, places in ((ax.xaxis, list(ratios)), (ax.yaxis, [1, 2, 4, 8, 16, 32])):
        axis.set_ticks(places, [f"{place:g}" for place in places])
        axis.set_ticks([], minor=True)
    ax.grid(axis="y")
    last = max(ratios)
    return finish(fig, f"The same number of elements takes {ratios[8]:.1f} times as long at stride 8, {ratios[last]:.0f} times at "
                       f"stride {last}", f"{words} The matrices have the same number of elements at each stride.")


@figure
def share_of_copy(rows, words, dtype="float16"):
    """How fast softmaxes are against a copy of the same matrix, in percent. rows: dicts of N, dtype, by, ms."""
    rows = [row for row in rows if row["dtype"] == dtype]
    copies = {row["N"]: row["ms"] for row in rows if row["by"] == "copy"}
    fig, ax = plt.subplots(figsize=(8, 3.9))
    ends, ours = [], []
    lines = ("kernel", "one program a row", OURS), ("torch", "torch.softmax", THEIRS), ("eager", "five kernels", WORSE)
    for by, title, colour in lines:
        points = [(row["N"], 100 * copies[row["N"]] / row["ms"]) for row in rows if row["by"] == by and row["N"] in copies]
        if points:
            points.sort()
            ax.plot(*zip(*points, strict=True), "o-", color=colour)
            ends.append((*points[-1], title, colour))
            ours = ours or [y for _, y in points]
    ax.axhline(100, ls="--", color=INK, lw=1.2)
    ax.annotate("a copy", (min(copies), 100), (0, 4), textcoords="offset points", fontsize=9, path_effects=HALO)
    ax.set(xscale="log", xlim=(0.85 * min(copies), 2.6 * max(copies)), ylim=(0, 115), xlabel="columns N",
           ylabel="% of a copy's speed")
    places = [256, 1024, 4096, 16384]
    ax.xaxis.set_ticks(places, [f"{n}" for n in places])
    ax.xaxis.set_ticks([], minor=True)
    ax.grid(axis="y")
    title = f"The fused softmax runs at {min(ours):.0f} to {max(ours):.0f} % of a copy's speed ({dtype})"
    return finish(fig, title, words, ends={ax: ends})


@figure
def speed_and_error(rows, words):
    """What a precision costs and what it gives. rows: dicts of by, precision, tflops, mean_error."""
    fig, ax = plt.subplots(figsize=(8.6, 4.4))
    for row in rows:
        colour = OURS if row["by"].startswith("kernel") else THEIRS
        hollow = row["by"] == "kernel, B by columns"
        ax.plot(row["tflops"], row["mean_error"], "s" if row["by"] == "torch" else "o", color=colour, ms=8,
                mfc="white" if hollow else colour)
        name = row["precision"] + {"torch": ", torch", "kernel": "", "kernel, B by columns": ", B by columns"}[row["by"]]
        place, side = ((-5, -12), "right") if row["by"] == "kernel" else ((0, 12), "center")
        ax.annotate(name, (row["tflops"], row["mean_error"]), place, textcoords="offset points", fontsize=8.5, color=colour,
                    ha=side, va="center", path_effects=HALO)
    ax.set(xscale="log", yscale="log", xlabel="TFLOP/s", ylabel="error, of the mean", xlim=(13, 2000),
           ylim=(min(row["mean_error"] for row in rows) / 4, 4 * max(row["mean_error"] for row in rows)))
    plain_log(ax.xaxis)
    ax.grid()
    exact, fast = (max((row["tflops"] for row in rows if row["precision"] == name), default=0)
                   for name in ("ieee", "tf32"))
    return finish(fig, f"TF32 runs up to {fast / exact:.1f} times as fast as float32, with three digits",
                  f"{words} Filled: B by rows; hollow: B by columns; squares: PyTorch.")


@figure
def share_of_library(rows, words):
    """A matrix product's speed against PyTorch's, by size. rows: dicts of n, by, tflops."""
    library = {row["n"]: row["tflops"] for row in rows if row["by"] == "torch"}
    fig, ax = plt.subplots(figsize=(8, 3.7))
    ends = []
    for by, colour in (("pointers", OURS), ("descriptors", THEIRS)):
        points = sorted((row["n"], 100 * row["tflops"] / library[row["n"]]) for row in rows
                        if row["by"] == by and row["n"] in library)
        if points:
            ax.plot(*zip(*points, strict=True), "o-", color=colour)
            ends.append((*points[-1], by, colour))
    ax.axhline(100, ls="--", color=INK, lw=1.2)
    ax.annotate("torch", (min(library), 100), (0, 4), textcoords="offset points", fontsize=9)
    ax.set(xscale="log", ylim=(0, 115), xlim=(0.9 * min(library), 2 * max(library)), xlabel="n, of an n × n × n product",
           ylabel="% of torch")
    ax.xaxis.set_ticks(sorted(library), [str(n) for n in sorted(library)])
    ax.xaxis.set_ticks([], minor=True)
    ax.grid(axis="y")
    said = ", ".join(f"{by} {y:.0f} %" for _, y, by, _ in ends)
    said += f"; at {min(library)}³ both are far behind" if _all_below(rows, library, 60) else ""
    return finish(fig, f"Against PyTorch's product at {max(library)}³: {said}", words, ends={ax: ends})


def _all_below(rows, library, percent):
    """Is every kernel below so many percent of the library at the smallest size?"""
    small = min(library)
    return all(100 * row["tflops"] < percent * library[small] for row in rows if row["n"] == small and row["by"] != "torch")


@figure
def order_and_time(rows, counted, words):
    """What the order of programs changes. rows: dicts of group, ms; counted: dicts of group, dram_read."""
    times = {row["group"]: row["ms"] for row in rows}
    fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), gridspec_kw={"width_ratios": [1, 1.6]})
    read = {row["group"]: row["dram_read"] / 1e9 for row in counted}
    left.bar(range(len(read)), list(read.values()), 0.6, color=[READ, OURS][:len(read)])
    left.set(ylabel="GB read from DRAM", xlabel="tile rows a group")
    left.set_xticks(range(len(read)), list(read))
    right.plot(list(times), list(times.values()), "o-", color=OURS)
    right.set(xscale="log", ylim=(0, 1.25 * max(times.values())), xlabel="tile rows a group", ylabel="ms")
    right.xaxis.set_ticks(list(times), [str(n) for n in times])
    right.xaxis.set_ticks([], minor=True)
    right.grid(axis="y")
    bytes_said = f"read {100 * read[8] / read[1]:.0f} % of the bytes and " if {1, 8} <= set(read) else ""
    return finish(fig, f"Groups of 8 {bytes_said}take {100 * times[8] / times[1]:.0f} % of the time of row by row", words)
