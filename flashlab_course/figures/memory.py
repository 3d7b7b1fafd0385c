"""The pictures of chapters 00 to 02: the memories of a GPU, and what attention does to them."""

import matplotlib.pyplot as plt
import torch
from matplotlib.patches import Rectangle

from flashlab.ladder import RUNGS
from flashlab.memory import A100_SRAM
from flashlab.validate import check_positive
from flashlab_course.figures.style import FAINT, INK, READ, WRITTEN, bare, byte_axis, figure, finish, log_axes
from flashlab_course.figures.words import bytes_text, ratio_text, si_text

# NVIDIA A100 40 GB, as in Dao et al. 2022 (arXiv:2205.14135), section 2.1 and figure 1.
A100 = {"HBM": {"bytes": 40e9, "bytes_per_s": 1.5e12}, "SRAM": {"bytes": 108 * A100_SRAM, "bytes_per_s": 19e12}}
A100_L2 = 40 * 2**20       # NVIDIA A100 whitepaper
A100_SOURCE = f"A100 40 GB, Dao et al. 2022, arXiv:2205.14135, figure 1; SRAM: {A100_SRAM // 2**10} KiB × 108 SMs"


@figure
def memory_hierarchy(levels=A100, source=A100_SOURCE):
    """Capacity of HBM and SRAM as areas, bandwidth as lengths: nothing logarithmic. levels: name -> {"bytes", "bytes_per_s"}."""
    big, fast = levels["HBM"], levels["SRAM"]
    fig, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.7), gridspec_kw={"width_ratios": [1, 1.5]})
    side = (fast["bytes"] / big["bytes"]) ** 0.5                       # of the small square, if the large one's is 1
    left.add_patch(Rectangle((0, 0), 1, 1, fc=WRITTEN, lw=0))
    left.add_patch(Rectangle((1.06, 0), side, side, fc=READ, lw=0))
    left.text(0.5, 0.5, f"HBM\n{si_text(big['bytes'], 'B')}", ha="center", va="center", fontweight="bold")
    left.text(1.06, side + 0.04, f"SRAM\n{si_text(fast['bytes'], 'B')}", va="bottom", fontweight="bold")
    left.set(xlim=(0, 1.5), ylim=(0, 1.02), aspect="equal", anchor="W", title="capacity, as areas")
    left.axis("off")
    for y, name in enumerate(levels):
        rate = levels[name]["bytes_per_s"]
        right.barh(y, rate / 1e12, color=WRITTEN if name == "HBM" else READ, height=0.5)
        right.annotate(f"{name}: {si_text(rate, 'B/s')}", (rate / 1e12, y), (6, 0) if name == "HBM" else (-6, 0), va="center",
                       textcoords="offset points", ha="left" if name == "HBM" else "right", fontweight="bold",
                       color=INK if name == "HBM" else "white")
    right.set(ylim=(1.6, -0.6), yticks=[], xlabel="TB/s", title="bandwidth, as lengths")
    return finish(fig, f"SRAM is {fast['bytes_per_s'] / big['bytes_per_s']:.0f} times as fast as HBM "
                       f"and {ratio_text(big['bytes'], fast['bytes'])} times smaller", f"Published: {source}.")


@figure
def matrix_sizes(Ns, d, element_size=4):
    """Bytes of S and of Q for one head, against N, beside the L2 cache and the HBM of an A100."""
    fig, ax = plt.subplots(figsize=(8, 4))
    ends = []
    for name, columns, colour in (("S", None, RUNGS[0].color), ("Q", d, READ)):
        nbytes = [N * (columns or N) * element_size for N in Ns]
        ax.plot(Ns, nbytes, "o-", color=colour)
        ends.append((Ns[-1], nbytes[-1], f"{name}: {bytes_text(nbytes[-1])}", colour))
    log_axes(ax, Ns, "N (queries = keys, one head)", "bytes")
    byte_axis(ax.yaxis)
    ax.axhline(A100_L2, ls="--", color=INK, lw=1.2)
    ax.annotate(f"L2 cache of an A100, {bytes_text(A100_L2)}", (0, A100_L2), (4, 4), xycoords=("axes fraction", "data"),
                textcoords="offset points", fontsize=9)
    return finish(fig, f"At N = {Ns[-1]}, S takes {Ns[-1] / d:.0f} times the bytes of Q",
                  f"Modelled: from the shapes alone, d = {d}, {element_size} bytes a number. Dashed: NVIDIA's A100 whitepaper.",
                  ends={ax: ends})


@figure
def traffic_by_op(mem):
    """HBM bytes read and written by each eager kernel that `mem` saw, in order."""
    events = [event for event in mem.log if event.kind == "eager"]
    fig, ax = plt.subplots(figsize=(8, 0.6 + 0.55 * len(events) + 0.8))
    for y, event in enumerate(events):
        ax.barh(y - 0.19, event.read, 0.36, color=READ)
        ax.barh(y + 0.19, event.written, 0.36, color=WRITTEN)
        for place, nbytes, verb in ((y - 0.19, event.read, "read"), (y + 0.19, event.written, "written")):
            ax.annotate(f"{bytes_text(nbytes)} {verb}", (nbytes, place), (4, 0), textcoords="offset points", va="center",
                        fontsize=8.5)
    ax.set(ylim=(len(events) - 0.4, -0.6), xlabel="HBM traffic (bytes)")
    ax.set_yticks(range(len(events)), _op_names(events))
    byte_axis(ax.xaxis, linear_to=max(max(e.read, e.written) for e in events))
    total = mem.read + mem.written
    return finish(fig, f"Each operation reads its operands from HBM and writes its result back: {bytes_text(total)} in "
                       f"{len(events)} kernels", "Modelled: counted by flashlab.memory, op by op.")


@figure
def crossings(mem):
    """Every trip of an N x N matrix between HBM and the chip in naive attention, as `mem` saw it: arrows as wide as their bytes."""
    events = [event for event in mem.log if event.kind == "eager"]
    names = _op_names(events)
    whole = max(event.written for event in events)                     # bytes of S
    extra = {"scale": READ, "logsumexp": WRITTEN}
    fig, ax = plt.subplots(figsize=(9, 3.9))
    for y, height, text, colour in ((2.6, 0.8, "HBM", "#F6D8C6"), (-0.8, 0.8, "the chip", "#EEF2F7")):
        ax.add_patch(Rectangle((-0.6, y), len(events) + 0.2, height, fc=colour, lw=0))
        ax.text(-0.55, y + height / 2, text, va="center", fontweight="bold")
    count = {}
    for x, (name, event) in enumerate(zip(names, events, strict=True)):
        ax.text(x + 0.12, -0.4, name, ha="center", va="center", fontsize=10)
        for place, nbytes, start, end in ((x - 0.12, event.read, 2.6, 0), (x + 0.36, event.written, 0, 2.6)):
            width, colour = 0.2 * nbytes / whole, extra.get(name, RUNGS[0].color)
            if nbytes >= whole:
                count[name] = count.get(name, 0) + 1
            ax.arrow(place, start, 0, end - start, width=max(width, 0.008), head_width=max(2 * width, 0.06), head_length=0.3,
                     length_includes_head=True, fc=colour if nbytes >= whole else FAINT, lw=0)
    ax.set(xlim=(-0.62, len(events) - 0.38), ylim=(-0.85, 3.45))
    ax.axis("off")
    plain = sum(n for name, n in count.items() if name not in extra)
    more = "".join(f", {count[name]} for {text}" for name, text in (("scale", "the scale (dark)"), ("logsumexp", "L (light)"))
                   if name in count)
    return finish(fig, f"An N × N matrix crosses HBM {sum(count.values())} times: {plain} for the formula (orange){more}",
                  "Modelled: counted by flashlab.memory. Arrows are as wide as their bytes; grey: Q, K, V, O and L.")


@figure
def peak_against_N(peaks, d, element_size=4):
    """Most bytes that a function held at once, against N, beside one and two N x N matrices. peaks: N -> bytes."""
    Ns = sorted(peaks)
    fig, ax = plt.subplots(figsize=(8, 3.8))
    ax.plot(Ns, [peaks[N] for N in Ns], "o", color=RUNGS[0].color)
    for n, text in ((1, "one N × N matrix"), (2, "two")):
        steps = [Ns[-1] * step / 40 for step in range(41)]
        ax.plot(steps, [n * N * N * element_size for N in steps], "--", color=READ, lw=1.2)
        ax.annotate(text, (Ns[-1], n * Ns[-1] ** 2 * element_size), (8, 0), textcoords="offset points", va="center", fontsize=9,
                    color=READ, annotation_clip=False)
    ax.set(xlim=(0, 1.02 * Ns[-1]), ylim=(0, 1.1 * max(peaks.values())), xticks=[0, *Ns],
           xlabel="N (queries = keys, one head)", ylabel="peak (bytes)")
    byte_axis(ax.yaxis, linear_to=max(peaks.values()))
    ax.grid(axis="y")
    growth = ratio_text(peaks[Ns[-1]], peaks[Ns[-2]])
    return finish(fig, f"Twice the tokens, {growth} times the memory" if Ns[-1] == 2 * Ns[-2] else "The peak grows with N²",
                  f"Modelled: mem.hbm_peak, what naive_forward holds at once beside its inputs. d = {d}, {element_size} bytes a "
                  "number.")


@figure
def attention_matrices(N_q, N_k, d, d_v=None, element_size=4):
    """Q, K, V, S, P, O as rectangles, all to one scale."""
    d_v = d if d_v is None else d_v
    shapes = {"Q": (N_q, d), "K": (N_k, d), "V": (N_k, d_v), "S": (N_q, N_k), "P": (N_q, N_k), "O": (N_q, d_v)}
    gap = 0.09 * sum(columns for _, columns in shapes.values()) + 0.05 * max(N_q, N_k)
    fig, ax = plt.subplots(figsize=(9, 3.9))
    x, height = 0, max(N_q, N_k)
    for name, (rows, columns) in shapes.items():
        ax.add_patch(Rectangle((x, -rows), columns, rows, color=RUNGS[0].color if name in "SP" else READ, lw=0))
        ax.text(x + columns / 2, 0.02 * height, name, ha="center", va="bottom", fontsize=12, fontweight="bold")
        ax.text(x + columns / 2, -rows - 0.02 * height, f"{rows} × {columns}\n{bytes_text(rows * columns * element_size)}",
                ha="center", va="top", fontsize=8)
        x += columns + gap
    ax.set(xlim=(-gap / 2, x - gap / 2), ylim=(-1.16 * height, 0.12 * height), aspect="equal")
    ax.axis("off")
    sizes = {name: rows * columns for name, (rows, columns) in shapes.items()}
    share = (sizes["S"] + sizes["P"]) / sum(sizes.values())
    return finish(fig, f"S and P hold {100 * share:.0f} % of the numbers in Q, K, V, S, P and O",
                  f"Modelled: from the shapes alone, N_q = {N_q}, N_k = {N_k}, d = {d}; to scale, {element_size} bytes a number.")


@figure
def causal_mask(N_q, N_k):
    """The causal mask of N_k queries and of N_q queries, both over N_k keys, bottom-right aligned."""
    check_positive(N_q=N_q, N_k=N_k)
    sizes = [(N_k, N_k)] if N_q == N_k else [(N_k, N_k), (N_q, N_k)]
    tallest = max(N_q, N_k)
    cell = min(0.36, 3.6 / tallest)                                    # inches
    fig, axes = plt.subplots(1, len(sizes), figsize=(max(3.9, cell * N_k + 0.8) * len(sizes), cell * tallest + 1.7), squeeze=False)
    for ax, (rows, columns) in zip(axes[0], sizes, strict=True):
        visible = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
        for i in range(rows):
            for j in range(columns):
                seen = bool(visible[i, j])
                ax.add_patch(Rectangle((j, i), 1, 1, fc=READ if seen else "white", ec="white" if seen else FAINT, lw=1))
        ax.text(0, -0.25, f"{rows} queries, {columns} keys: {int(visible.sum())} of {rows * columns} pairs visible",
                va="bottom", fontsize=9)
        ax.set(xlim=(-0.1, columns + 0.1), ylim=(rows + 0.1, rows - tallest - 1), aspect="equal", anchor="W", xlabel="key j")
        ax.set_ylabel("query i", y=rows / (2 * tallest + 2))           # beside the cells: short masks stand at the bottom
        ax.set_xticks([0.5, columns - 0.5], [0, columns - 1])
        ax.set_yticks([0.5, rows - 0.5], [0, rows - 1])
        bare(ax)
    blind = max(0, N_q - N_k)
    more = f"; the first {blind} of {N_q} queries see none" if blind else ""
    return finish(fig, f"The mask is aligned bottom right: the last query sees every key{more}",
                  "Definition: query i sees key j if j ≤ i + N_k − N_q. Filled: visible.")


def _op_names(events):
    plain = {"mul": "scale", "_softmax": "softmax", "_to_copy": "cast", "masked_fill": "mask"}
    products = iter(("QKᵀ", "PV")) if sum(event.name == "mm" for event in events) == 2 else iter(())
    return [next(products, "mm") if event.name == "mm" else plain.get(event.name, event.name) for event in events]
