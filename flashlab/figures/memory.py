"""The pictures of chapters 00 to 02: the memories of a GPU, and what attention does to them."""

import matplotlib.pyplot as plt
import torch
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from flashlab.figures.style import FAINT, READ, WRITTEN, bare, byte_axis, figure, finish
from flashlab.figures.words import bytes_text, ratio_text, si_text
from flashlab.ladder import RUNGS
from flashlab.memory import A100_SRAM
from flashlab.validate import check_positive

# NVIDIA A100 40 GB, as in Dao et al. 2022 (arXiv:2205.14135), section 2.1 and figure 1.
A100 = {"HBM": {"bytes": 40e9, "bytes_per_s": 1.5e12}, "SRAM": {"bytes": 108 * A100_SRAM, "bytes_per_s": 19e12}}
A100_SOURCE = f"A100 40 GB, Dao et al. 2022, arXiv:2205.14135, figure 1; SRAM: {A100_SRAM // 2**10} KiB × 108 SMs"


@figure
def memory_hierarchy(levels=A100, source=A100_SOURCE):
    """Capacity and bandwidth of HBM and SRAM, back to back on log scales. levels: name -> {"bytes", "bytes_per_s"}."""
    big, fast = levels["HBM"], levels["SRAM"]
    fig, (left, right) = plt.subplots(1, 2, figsize=(8, 2.6), sharey=True)
    for y, name in enumerate(levels):
        colour = WRITTEN if name == "HBM" else READ
        for ax, key, unit in ((left, "bytes", "B"), (right, "bytes_per_s", "B/s")):
            ax.barh(y, levels[name][key], color=colour, height=0.6)
            ax.annotate(si_text(levels[name][key], unit), (levels[name][key], y), (-6 if ax is left else 6, 0),
                        textcoords="offset points", va="center", ha="right" if ax is left else "left", fontweight="bold")
    left.set(xscale="log", xlim=(40 * big["bytes"], 1e6), xlabel="capacity (bytes)")
    right.set(xscale="log", xlim=(1e11, 8 * fast["bytes_per_s"]), xlabel="bandwidth (bytes/s)")
    left.set_yticks(range(len(levels)), levels, fontweight="bold")
    left.tick_params(axis="y", length=0)
    right.tick_params(axis="y", length=0, labelleft=False)
    left.spines["left"].set_visible(False)
    for ax in (left, right):
        ax.xaxis.set_minor_locator(NullLocator())
    return finish(fig, f"SRAM is {fast['bytes_per_s'] / big['bytes_per_s']:.0f} times as fast as HBM "
                       f"and {ratio_text(big['bytes'], fast['bytes'])} times smaller",
                  f"Published: {source}. Log scales.")


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
