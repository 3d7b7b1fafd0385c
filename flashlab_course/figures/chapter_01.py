"""The pictures of chapter 01: who sees whom, the matrices of attention, and their trips between HBM and the chip."""

import math

from flashlab.ladder import RUNGS
from flashlab.memory import A100_SRAM
from flashlab.validate import check_positive
from flashlab_course.figures.colors import BLUE, FAINT, INK, ORANGE, READ, WRITTEN
from flashlab_course.figures.plots import axes, box, canvas, cells, curves, first_and_last, panel, panels, plot, write
from flashlab_course.figures.style import byte_axis, figure, finish, note
from flashlab_course.figures.words import by, bytes_text, ratio_text, si_text

# NVIDIA A100 40 GB, as in Dao et al. 2022 (arXiv:2205.14135), section 2.1 and figure 1.
A100 = {"HBM": {"bytes": 40e9, "bytes_per_s": 1.5e12}, "SRAM": {"bytes": 108 * A100_SRAM, "bytes_per_s": 19e12}}
NAIVE = RUNGS[0].color


@figure
def saturation(points):
    """How much a weight follows its score, against how far the scores spread.

    points: dicts of spread, mean, median, largest.
    """
    points = sorted(points, key=lambda point: point["spread"])
    lowest = max(min(point["median"] for point in points), 1e-12) / 3
    near, far = (min(points, key=lambda point: abs(math.log(point["spread"] / spread))) for spread in (1, 8))
    times = float(ratio_text(near["median"], far["median"]))
    return curves([("mean of all keys", by(points, "spread", "mean"), BLUE),
                   ("median key", by(points, "spread", "median"), ORANGE)],
                  f"With scores {far['spread']:.0f} times as far apart, the gradient of the median key is {times:,.0f} "
                  "times smaller",
                  "Measured here: softmax's own derivative, p (1 − p), for 512 queries and 512 random keys.",
                  "spread of a query's scores (standard deviation)", "∂ weight / ∂ its score", log="xy",
                  ylim=(lowest, 0.05))


def visible(N_q, N_k, causal=True):
    """The colours of a mask: filled where query i sees key j."""
    return [[READ if not causal or j <= i + N_k - N_q else "white" for j in range(N_k)] for i in range(N_q)]


@figure
def who_sees_whom(N_source, N_target):
    """The three uses of attention in a transformer that translates: who asks whom, and which pairs are hidden."""
    uses = [("encoder", "source", "source", N_source, N_source, False),
            ("decoder", "target", "target", N_target, N_target, True),
            ("decoder, cross-attention", "target", "source", N_target, N_source, False)]
    fig, axs = panels(3, size=(9, 3.5))
    for ax, (name, asks, asked, N_q, N_k, causal) in zip(axs, uses, strict=True):
        cells(ax, visible(N_q, N_k, causal), xlabel=f"keys: {asked} tokens", ylabel=f"queries: {asks} tokens",
              equal=True, title=f"{name}\n{'causal' if causal else 'not causal'}, {N_q} × {N_k}")
        limit = max(N_source, N_target) + 0.1
        ax.set(xlim=(-0.1, limit), ylim=(limit, -0.1), anchor="N")
    return finish(fig, "Only text that is still being written needs the causal mask",
                  "Definition: the transformer of Vaswani et al. 2017, arXiv:1706.03762, section 3.2.3. Filled: "
                  "visible.")


@figure
def causal_mask(N_q, N_k):
    """The causal mask of N_k queries and of N_q queries, both over N_k keys, bottom-right aligned."""
    check_positive(N_q=N_q, N_k=N_k)
    heights = list(dict.fromkeys((N_k, N_q)))
    tallest = max(heights)
    cell = min(0.36, 3.6 / tallest)                                    # inches
    fig, axs = panels(len(heights), size=(max(3.9, cell * N_k + 0.8) * len(heights), cell * tallest + 1.7))
    for ax, rows in zip(axs, heights, strict=True):
        fills = visible(rows, N_k)
        cells(ax, fills, xlabel="key j", columns=first_and_last(N_k), rows=first_and_last(rows), equal=True, size=10)
        seen = sum(row.count(READ) for row in fills)
        ax.text(0, -0.25, f"{rows} queries, {N_k} keys: {seen} of {rows * N_k} pairs visible", va="bottom", fontsize=9)
        ax.set(ylim=(rows + 0.1, rows - tallest - 1), anchor="W")
        # beside the cells: short masks stand at the bottom
        ax.set_ylabel("query i", y=rows / (2 * tallest + 2))
    blind = max(0, N_q - N_k)
    more = f"; the first {blind} of {N_q} queries see none" if blind else ""
    return finish(fig, f"The mask is aligned bottom right: the last query sees every key{more}",
                  "Definition: query i sees key j if j ≤ i + N_k − N_q. Filled: visible.")


@figure
def attention_matrices(N_q, N_k, d):
    """Q, K, V, S, P, O as rectangles, all to one scale."""
    shapes = {"Q": (N_q, d), "K": (N_k, d), "V": (N_k, d), "S": (N_q, N_k), "P": (N_q, N_k), "O": (N_q, d)}
    x, height = 0, max(N_q, N_k)
    gap = 0.09 * sum(columns for _, columns in shapes.values()) + 0.05 * height
    fig, ax = panel(9, 3.9)
    for name, (rows, columns) in shapes.items():
        box(ax, x, -rows, columns, rows, NAIVE if name in "SP" else READ, lw=0)
        ax.text(x + columns / 2, 0.02 * height, name, ha="center", va="bottom", fontsize=12, fontweight="bold")
        ax.text(x + columns / 2, -rows - 0.02 * height, f"{rows} × {columns}\n{bytes_text(rows * columns * 4)}",
                ha="center", va="top", fontsize=8)
        x += columns + gap
    canvas(ax, (-gap / 2, x - gap / 2), (-1.16 * height, 0.12 * height))
    share = 2 * N_q * N_k / sum(rows * columns for rows, columns in shapes.values())
    return finish(fig, f"S and P hold {100 * share:.0f} % of the numbers in Q, K, V, S, P and O",
                  f"Modelled: from the shapes alone, N_q = {N_q}, N_k = {N_k}, d = {d}; to scale, 4 bytes a number.")


@figure
def peak_against_N(peaks, d):
    """Most bytes that naive attention held at once, against N, beside one and two N x N matrices. peaks: N -> bytes."""
    *_, before, last = Ns = sorted(peaks)
    fig, ax = panel(8, 3.8)
    plot(ax, "", peaks, NAIVE, "o")
    for count, words in ((1, "one N × N matrix"), (2, "two")):
        plot(ax, words, {last * step / 40: count * 4 * (last * step / 40) ** 2 for step in range(41)}, READ, "--",
             lw=1.2)
    axes(ax, "N (queries = keys, one head)", "peak (bytes)", byte="y", ticks=[0, *Ns], xlim=(0, 1.02 * last),
         ylim=(0, 1.1 * max(peaks.values())))
    growth = ratio_text(peaks[last], peaks[before])
    return finish(fig,
                  f"Twice the tokens, {growth} times the memory" if last == 2 * before else "The peak grows with N²",
                  f"Modelled: mem.hbm_peak, what naive_forward holds at once beside its inputs. d = {d}, 4 bytes a "
                  "number.")


@figure
def memory_hierarchy():
    """Capacity of HBM and SRAM as areas, bandwidth as lengths: nothing logarithmic."""
    big, fast = A100["HBM"], A100["SRAM"]
    fig, (left, right) = panels(2, size=(8.5, 3.7), width_ratios=[1, 1.5])
    side = (fast["bytes"] / big["bytes"]) ** 0.5                       # of the small square, if the large one's is 1
    box(left, 0, 0, 1, 1, WRITTEN, f"HBM\n{si_text(big['bytes'], 'B')}", size=10, lw=0)
    box(left, 1.06, 0, side, side, READ, lw=0)
    left.text(1.06, side + 0.04, f"SRAM\n{si_text(fast['bytes'], 'B')}", va="bottom", fontweight="bold")
    left.set(xlim=(0, 1.5), ylim=(0, 1.02), aspect="equal", anchor="W", title="capacity, as areas")
    left.axis("off")
    for y, (name, level) in enumerate(A100.items()):
        rate, inside = level["bytes_per_s"], name == "SRAM"
        right.barh(y, rate / 1e12, color=READ if inside else WRITTEN, height=0.5)
        note(right, f"{name}: {si_text(rate, 'B/s')}", rate / 1e12, y, -6 if inside else 6,
             ha="right" if inside else "left", color="white" if inside else INK, fontweight="bold", fontsize=10)
    right.set(ylim=(1.6, -0.6), yticks=[], xlabel="TB/s", title="bandwidth, as lengths")
    return finish(fig, f"SRAM is {fast['bytes_per_s'] / big['bytes_per_s']:.0f} times as fast as HBM and "
                       f"{ratio_text(big['bytes'], fast['bytes'])} times smaller",
                  f"Published: A100 40 GB, Dao et al. 2022, arXiv:2205.14135, figure 1; SRAM: {A100_SRAM // 2**10} KiB "
                  "× 108 SMs.")


def eager_ops(mem):
    """(name as in the formula, event) of each eager kernel that `mem` saw, in order."""
    events = [event for event in mem.log if event.kind == "eager"]
    plain = {"mul": "scale", "_softmax": "softmax", "_to_copy": "cast", "masked_fill": "mask"}
    products = iter(("QKᵀ", "PV")) if [event.name for event in events].count("mm") == 2 else iter(())
    return [(next(products, "mm") if event.name == "mm" else plain.get(event.name, event.name), event)
            for event in events]


@figure
def traffic_by_op(mem):
    """HBM bytes read and written by each eager kernel that `mem` saw, in order."""
    ops = eager_ops(mem)
    fig, ax = panel(8, 1.4 + 0.55 * len(ops))
    for y, (_, event) in enumerate(ops):
        for place, nbytes, verb, fill in ((y - 0.19, event.read, "read", READ),
                                          (y + 0.19, event.written, "written", WRITTEN)):
            ax.barh(place, nbytes, 0.36, color=fill)
            note(ax, f"{bytes_text(nbytes)} {verb}", nbytes, place, fontsize=8.5)
    ax.set(ylim=(len(ops) - 0.4, -0.6), xlabel="HBM traffic (bytes)")
    ax.set_yticks(range(len(ops)), [name for name, _ in ops])
    byte_axis(ax.xaxis)
    return finish(fig, "Each operation reads its operands from HBM and writes its result back: "
                       f"{bytes_text(mem.read + mem.written)} in {len(ops)} kernels",
                  "Modelled: counted by flashlab.memory, op by op.")


@figure
def crossings(mem):
    """Every trip of an N x N matrix between HBM and the chip, as `mem` saw it: arrows as wide as their bytes."""
    ops = eager_ops(mem)
    whole = max(event.written for _, event in ops)                     # bytes of S
    extra, count = {"scale": READ, "logsumexp": WRITTEN}, {}
    fig, ax = panel(9, 3.9)
    for y, words, colour in ((2.6, "HBM", "#F6D8C6"), (-0.8, "the chip", "#EEF2F7")):
        box(ax, -0.6, y, len(ops) + 0.2, 0.8, colour, lw=0)
        ax.text(-0.55, y + 0.4, words, va="center", fontweight="bold")
    for x, (name, event) in enumerate(ops):
        write(ax, x + 0.12, -0.4, name, 10)
        for place, nbytes, start, end in ((x - 0.12, event.read, 2.6, 0), (x + 0.36, event.written, 0, 2.6)):
            width, large = 0.2 * nbytes / whole, nbytes >= whole
            count[name] = count.get(name, 0) + large
            ax.arrow(place, start, 0, end - start, width=max(width, 0.008), head_width=max(2 * width, 0.06),
                     head_length=0.3, length_includes_head=True, fc=extra.get(name, NAIVE) if large else FAINT, lw=0)
    canvas(ax, (-0.62, len(ops) - 0.38), (-0.85, 3.45), equal=False)
    plain = sum(n for name, n in count.items() if name not in extra)
    more = "".join(f", {count[name]} for {text}"
                   for name, text in (("scale", "the scale (dark)"), ("logsumexp", "L (light)")) if name in count)
    return finish(fig,
                  f"An N × N matrix crosses HBM {sum(count.values())} times: {plain} for the formula (orange){more}",
                  "Modelled: counted by flashlab.memory. Arrows are as wide as their bytes; grey: Q, K, V, O and L.")
