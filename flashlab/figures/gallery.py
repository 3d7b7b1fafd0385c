"""Every picture in the course: functions that take data and return one matplotlib Figure.

In a notebook, make the call the last line of a cell: the Figure it returns is shown, once. No plt.show() is needed, and a
call that is not the last line shows nothing; display(...) does there.

    figures.traffic_against_N(figures.sweep_traffic([256, 512, 1024]))

Elsewhere: `figures.memory_hierarchy().savefig("hierarchy.png")`. `python -m flashlab.figures.gallery [OUT_DIR]` draws all that need
no GPU, and those of the results/*.json there are.

A title's numbers are computed from the data drawn. Dashed is a formula, a ceiling or a budget. The line at the bottom says
whether the numbers are modelled, measured here, or recorded on which device.
"""

import functools
import json
import math
import re
import sys
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from flashlab import cost
from flashlab.ladder import BACKWARD_RUNGS, RUNGS, rung
from flashlab.memory import A100_SRAM, Memory, SRAMOverflow, format_bytes
from flashlab.tiles import largest_square_tile
from flashlab.validate import check_positive

# One colour and one marker per implementation, in every picture (after Okabe and Ito 2008, made for colour-blind readers).
COLORS = {
    "naive_forward": "#D55E00",
    "online_softmax_forward": "#A97400",
    "fa1_forward": "#0072B2",
    "fa2_forward": "#009E73",
    "fa2_triton_forward": "#7A1FA2",
    "sdpa_math": "#8A8A8A",
    "sdpa_efficient": "#3FA0DD",
    "sdpa_flash": "#222222",
    "sdpa_cudnn": "#D0609F",
}
MARKERS = {"naive_forward": "o", "online_softmax_forward": "v", "fa1_forward": "s", "fa2_forward": "D",
           "fa2_triton_forward": "o", "sdpa_math": "x", "sdpa_efficient": "^", "sdpa_flash": "s", "sdpa_cudnn": "D"}
LABELS = {r.name: r.title for r in RUNGS} | {
    "sdpa_math": "SDPA math", "sdpa_efficient": "SDPA efficient", "sdpa_flash": "SDPA flash", "sdpa_cudnn": "SDPA cuDNN"}
for _rung in BACKWARD_RUNGS:                                   # a backward pass looks like its forward pass
    _forward = _rung.name.replace("_backward", "_forward")
    COLORS[_rung.name], MARKERS[_rung.name] = COLORS.get(_forward, "#5E8C1F"), MARKERS.get(_forward, "^")
    LABELS[_rung.name] = _rung.title

INK, FAINT, READ, WRITTEN = "#222222", "#D9D9D9", "#4A5568", "#B4BDCB"
STYLE = {
    "figure.facecolor": "white", "savefig.facecolor": "white", "axes.facecolor": "white",    # a light card on a dark page
    "figure.dpi": 110, "savefig.dpi": 130, "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.08, "figure.constrained_layout.w_pad": 0.08,
    "font.family": "DejaVu Sans", "font.size": 10,             # comes with matplotlib: the same picture on every machine
    "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.edgecolor": "#777777",
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10, "axes.titlelocation": "left",
    "axes.grid": False, "grid.color": "#E6E6E6", "grid.linewidth": 0.8, "axes.axisbelow": True,
    "lines.linewidth": 1.8, "lines.markersize": 6, "hatch.color": "#BBBBBB", "hatch.linewidth": 0.8,
}

# NVIDIA A100 40 GB, as in Dao et al. 2022 (arXiv:2205.14135), section 2.1 and figure 1.
A100 = {"HBM": {"bytes": 40e9, "bytes_per_s": 1.5e12}, "SRAM": {"bytes": 108 * A100_SRAM, "bytes_per_s": 19e12}}
A100_SOURCE = f"A100 40 GB, Dao et al. 2022, arXiv:2205.14135, figure 1; SRAM: {A100_SRAM // 2**10} KiB × 108 SMs"


def figure(function):
    """Draw in the course's style, then let go of the figure: it is shown by being returned, and never a second time."""
    @functools.wraps(function)
    def draw(*args, **kwargs):
        before = set(plt.get_fignums())
        with plt.rc_context(STYLE):
            try:
                return function(*args, **kwargs)
            finally:
                for number in set(plt.get_fignums()) - before:
                    plt.close(number)
    return draw


# ---- chapters 00 to 02: memory, and what attention does to it

@figure
def memory_hierarchy(levels=A100, source=A100_SOURCE):
    """Capacity and bandwidth of HBM and SRAM, back to back on log scales. levels: name -> {"bytes", "bytes_per_s"}."""
    big, fast = levels["HBM"], levels["SRAM"]
    fig, (left, right) = plt.subplots(1, 2, figsize=(8, 2.6), sharey=True)
    for y, name in enumerate(levels):
        colour = WRITTEN if name == "HBM" else READ
        for ax, key, unit in ((left, "bytes", "B"), (right, "bytes_per_s", "B/s")):
            ax.barh(y, levels[name][key], color=colour, height=0.6)
            ax.annotate(_si(levels[name][key], unit), (levels[name][key], y), (-6 if ax is left else 6, 0),
                        textcoords="offset points", va="center", ha="right" if ax is left else "left", fontweight="bold")
    left.set(xscale="log", xlim=(40 * big["bytes"], 1e6), xlabel="capacity (bytes)")
    right.set(xscale="log", xlim=(1e11, 8 * fast["bytes_per_s"]), xlabel="bandwidth (bytes/s)")
    left.set_yticks(range(len(levels)), levels, fontweight="bold")
    left.tick_params(axis="y", length=0)
    right.tick_params(axis="y", length=0, labelleft=False)
    left.spines["left"].set_visible(False)
    for ax in (left, right):
        ax.xaxis.set_minor_locator(NullLocator())
    return _finish(fig, f"SRAM is {fast['bytes_per_s'] / big['bytes_per_s']:.0f} times as fast as HBM "
                        f"and {_round(big['bytes'] / fast['bytes'])} times smaller",
                   f"Published: {source}. Log scales.")


@figure
def traffic_by_op(mem, names=None):
    """HBM bytes read and written by each eager kernel that `mem` saw, in order. names: labels to use instead of the ops'."""
    events = [event for event in mem.log if event.kind == "eager"]
    names = names or _op_names(events)
    fig, ax = plt.subplots(figsize=(8, 0.6 + 0.55 * len(events) + 0.8))
    for y, event in enumerate(events):
        ax.barh(y - 0.19, event.read, 0.36, color=READ)
        ax.barh(y + 0.19, event.written, 0.36, color=WRITTEN)
        for dy, nbytes, verb in ((-0.19, event.read, "read"), (0.19, event.written, "written")):
            ax.annotate(f"{_bytes(nbytes)} {verb}", (nbytes, y + dy), (4, 0), textcoords="offset points", va="center", fontsize=8.5)
    ax.set(ylim=(len(events) - 0.4, -0.6), xlabel="HBM traffic (bytes)")
    ax.set_yticks(range(len(events)), names)
    _byte_axis(ax.xaxis, linear_to=max(max(e.read, e.written) for e in events))
    total = mem.read + mem.written
    return _finish(fig, f"Each operation reads its operands from HBM and writes its result back: {_bytes(total)} in "
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
        ax.add_patch(Rectangle((x, -rows), columns, rows, color=COLORS["naive_forward"] if name in "SP" else READ, lw=0))
        ax.text(x + columns / 2, 0.02 * height, name, ha="center", va="bottom", fontsize=12, fontweight="bold")
        ax.text(x + columns / 2, -rows - 0.02 * height, f"{rows} × {columns}\n{_bytes(rows * columns * element_size)}",
                ha="center", va="top", fontsize=8)
        x += columns + gap
    ax.set(xlim=(-gap / 2, x - gap / 2), ylim=(-1.16 * height, 0.12 * height), aspect="equal")
    ax.axis("off")
    sizes = {name: rows * columns for name, (rows, columns) in shapes.items()}
    share = (sizes["S"] + sizes["P"]) / sum(sizes.values())
    return _finish(fig, f"S and P hold {100 * share:.0f} % of the numbers in Q, K, V, S, P and O",
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
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
    blind = max(0, N_q - N_k)
    more = f"; the first {blind} of {N_q} queries see none" if blind else ""
    return _finish(fig, f"The mask is aligned bottom right: the last query sees every key{more}",
                   "Definition: query i sees key j if j ≤ i + N_k − N_q. Filled: visible.")


# ---- chapter 03: online softmax

@figure
def softmax_passes(costs):
    """HBM bytes of each softmax. costs: name -> (read, written), in the order to draw them."""
    fig, ax = plt.subplots(figsize=(8, 1.4 + 0.5 * len(costs)))
    for y, (read, written) in enumerate(costs.values()):
        ax.barh(y, read, 0.6, color=READ)
        ax.barh(y, written, 0.6, left=read, color=WRITTEN)
        ax.annotate(f"{_bytes(read)} read + {_bytes(written)} written", (read + written, y), (5, 0),
                    textcoords="offset points", va="center", fontsize=9)
    totals = {name: read + written for name, (read, written) in costs.items()}
    ax.set(ylim=(len(costs) - 0.5, -0.5), xlim=(0, 1.02 * max(totals.values())), xlabel="HBM traffic (bytes)")
    ax.set_yticks(range(len(costs)), costs)
    _byte_axis(ax.xaxis, linear_to=max(totals.values()))
    most, least = max(totals, key=totals.get), min(totals, key=totals.get)
    return _finish(fig, f"From {most} to {least}: {_bytes(totals[most])} of HBM traffic become {_bytes(totals[least])}",
                   "Modelled: bytes counted by flashlab.memory. Dark: read, light: written.")


def softmax_states(xs):
    """The running softmax of the scores xs, one at a time: a list of (m, l, alpha) after each."""
    m, l, states = -math.inf, 0.0, []
    for x in map(float, xs):
        m_new = max(m, x)
        alpha = math.exp(m - m_new) if m_new > -math.inf else 1.0     # -inf - -inf: nothing seen yet, nothing to rescale
        l = alpha * l + (math.exp(x - m_new) if m_new > -math.inf else 0.0)
        m = m_new
        states.append((m, l, alpha))
    return states


@figure
def running_state(xs, states=None):
    """m and l as the scores xs arrive. states: a list of (m, l, alpha) to draw instead of the recurrence's own."""
    xs = [float(x) for x in xs]
    states = softmax_states(xs) if states is None else [tuple(map(float, state)) for state in states]
    steps = list(range(1, len(xs) + 1))
    before = [(-math.inf, 0.0), *((m, l) for m, l, _ in states)]
    rescaled = [n for n in steps if before[n - 1][1] > 0 and states[n - 1][2] != 1]
    grew = [n for n in steps if before[n - 1][1] > 0 and states[n - 1][0] > before[n - 1][0]]
    fig, (top, bottom) = plt.subplots(2, 1, figsize=(8, 4.6), sharex=True)
    colour = COLORS["online_softmax_forward"]
    top.plot(steps, xs, "o", color=READ, ms=5)
    top.step(steps, [m for m, _, _ in states], where="post", color=colour)
    bottom.step(steps, [l for _, l, _ in states], where="post", color=colour)
    bottom.plot(steps, [l for _, l, _ in states], "o", color=colour, ms=4)
    for ax in (top, bottom):
        ax.vlines(rescaled, 0, 1, transform=ax.get_xaxis_transform(), color=INK, lw=0.9, ls=":")
    last, raised = -math.inf, 0
    for n in rescaled:                                                 # neighbours' labels stand on top of one another
        raised = (raised + 1) % 4 if n - last < len(xs) / 8 else 0
        top.annotate(f"α = {states[n - 1][2]:.2g}", (n, 1), (0, 2 + 10 * raised), xycoords=top.get_xaxis_transform(),
                     textcoords="offset points", fontsize=8, ha="center")
        last = n
    top.set_ylabel("score")
    top.xaxis.set_major_locator(MaxNLocator(integer=True))
    bottom.set(ylabel="l", xlabel="keys seen", ylim=(0, None))
    times = {0: "is never rescaled", 1: "is rescaled once"}.get(len(rescaled), f"is rescaled {len(rescaled)} times")
    why = "whenever the maximum grows, and only then" if rescaled == grew else f"but the maximum grows {len(grew)} times"
    if not rescaled and not grew:
        why = "no score exceeds the first"
    return _finish(fig, f"In {len(xs)} keys l {times}: {why}",
                   "Modelled: the recurrence l ← α·l + exp(x − m), α = exp(m_old − m). Dots above: the scores.",
                   ends={top: [(steps[-1], states[-1][0], "m, the largest score so far", colour)],
                         bottom: [(steps[-1], states[-1][1], "l, the sum of exp(score − m)", colour)]})


# ---- chapter 04: tiles

@figure
def block_product(M, K, N, B_m, B_k, B_n, tile=(1, 1)):
    """Which tiles of A (M, K) and B (K, N) make one tile of C (M, N). tile: the (row, column) of C's tile."""
    check_positive(M=M, K=K, N=N, B_m=B_m, B_k=B_k, B_n=B_n)
    i, j = min(tile[0], math.ceil(M / B_m) - 1), min(tile[1], math.ceil(N / B_n) - 1)
    T_k, gap = math.ceil(K / B_k), 0.12 * max(M, K, N)
    fig, ax = plt.subplots(figsize=(6.4, 6.4 * (K + M + gap) / (K + N + gap) + 0.6))
    for name, x, y, rows, columns, B_rows, B_columns, marked in (
            ("A", 0, K + gap, M, K, B_m, B_k, lambda r, c: c + 1 if r == i else 0),
            ("B", K + gap, 0, K, N, B_k, B_n, lambda r, c: r + 1 if c == j else 0),
            ("C", K + gap, K + gap, M, N, B_m, B_n, lambda r, c: "Σ" if (r, c) == (i, j) else 0)):
        for r in range(math.ceil(rows / B_rows)):
            for c in range(math.ceil(columns / B_columns)):
                height, width = min(B_rows, rows - r * B_rows), min(B_columns, columns - c * B_columns)
                left, up, text = x + c * B_columns, y + r * B_rows, marked(r, c)
                ax.add_patch(Rectangle((left, up), width, height, fc=READ if text else "#F3F3F3", ec="#AAAAAA", lw=0.8))
                if text:
                    ax.text(left + width / 2, up + height / 2, text, ha="center", va="center", color="white", fontweight="bold")
        ax.text(x + columns / 2, y - 0.02 * (M + K), f"{name}  {rows} × {columns}", ha="center", va="bottom")
    ax.set(xlim=(-0.02 * (K + N), 1.02 * (K + gap + N)), ylim=(1.02 * (K + gap + M), -0.08 * (M + K)), aspect="equal")
    ax.axis("off")
    return _finish(fig, f"One tile of C is a sum of {T_k} products: a row of A's tiles with a column of B's",
                   f"Definition: tiles of at most {B_m} × {B_k} of A, {B_k} × {B_n} of B. Equal numbers are multiplied.")


@figure
def softmax_star_error(wrong, right, divided=False):
    """Each output of the tile-wise softmax* against the true one; correct outputs lie on the dashed line.

    divided: whether `wrong` was divided by the sum of its weights
    """
    wrong, right = wrong.detach().double().flatten(), right.detach().double().flatten()
    fig, ax = plt.subplots(figsize=(6.4, 4.6))
    ends = (right.min().item(), right.max().item())
    ax.plot(right, wrong, "o", color=COLORS["naive_forward"], ms=3, alpha=0.5, mew=0)
    ax.plot(ends, ends, "--", color=INK, lw=1.2)
    ax.set(xlabel="true output", ylabel=f"output of softmax*{', divided' if divided else ''}")
    off = ((wrong - right).abs().max() / right.abs().max()).item()
    what = "Divided by its weights, softmax tile by tile is still" if divided else "Softmax tile by tile is"
    return _finish(fig, f"{what} off by up to {off:.2g} times the largest true output",
                   f"Measured here: {len(right)} outputs, dots, against attention in float64, dashed.",
                   ends={ax: [(ends[1], ends[1], "correct", INK)]})


# ---- chapters 05 and 06: FA1 and FA2, replayed from the memory model's log

def _replay(log):
    """The visits (rows, cols) in order, and for each the moves (verb, tensor, bytes) of its step.

    A tile is visited when a matrix product follows the loads of Q_i and K_j. Loads before it and stores after it are its own.
    """
    visits, moves, pending = [], [], []
    Q_rows = K_rows = None
    for event in log:
        if event.kind == "load":
            pending.append((event.kind, event.name, event.read))
            Q_rows = event.rows if event.name == "Q" else Q_rows
            K_rows = event.rows if event.name == "K" else K_rows
        elif event.kind == "store":
            if moves and not pending:
                moves[-1].append((event.kind, event.name, event.written))
            else:
                pending.append((event.kind, event.name, event.written))      # a query block that sees no key at all
        elif event.name == "mm" and K_rows and (not visits or visits[-1] != (Q_rows, K_rows) or
                                                any(name in "QK" for _, name, _ in pending)):
            visits.append((Q_rows, K_rows))
            moves.append(pending)
            pending = []
        elif event.name == "mm" and pending and moves:
            moves[-1] += pending                                             # V_j, loaded between the two products
            pending = []
    if pending and moves:
        moves[-1] += pending
    return visits, moves


@figure
def tile_traversal(logs, N_q, N_k, title=None):
    """The order in which each kernel visits the (i, j) tiles of S, and what crosses HBM at each step.

    logs: {"fa1_forward": mem1.log, "fa2_forward": mem2.log}. Made for small grids such as 4 x 4 tiles.
    """
    replays = {name: _replay(log) for name, log in logs.items()}
    tensors = [T for T in ("Q", "K", "V", "O", "l", "m", "L") if any(e.name == T for log in logs.values() for e in log)]
    fig, axes = plt.subplots(3, len(logs), figsize=(5.2 * len(logs), 7.6), squeeze=False, sharey="row",
                             gridspec_kw={"height_ratios": [3.4, 0.32 * len(tensors) + 0.2, 1.3]})
    totals, longest = {}, max(len(moves) for _, moves in replays.values())
    for n, (name, (visits, moves)) in enumerate(replays.items()):
        _draw_tiles(axes[0, n], name, visits, N_q, N_k)
        _draw_moves(axes[1, n], name, moves, tensors)
        per_step = [(sum(b for verb, _, b in step if verb == "load"), sum(b for verb, _, b in step if verb == "store"))
                    for step in moves]
        steps = range(1, len(moves) + 1)
        axes[2, n].bar(steps, [r for r, _ in per_step], 0.8, color=READ)
        axes[2, n].bar(steps, [w for _, w in per_step], 0.8, bottom=[r for r, _ in per_step], color=WRITTEN)
        for ax in axes[1:, n]:
            ax.set_xlim(0.3, longest + 0.7)
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes[2, n].set_xlabel("step")
        totals[name] = sum(r + w for r, w in per_step)
        axes[2, n].set_title(f"{_bytes(totals[name])} in {len(moves)} steps", fontsize=9)
    axes[0, 0].set_ylabel("query block i")
    axes[2, 0].set_ylabel("bytes a step")
    _byte_axis(axes[2, 0].yaxis, linear_to=axes[2, 0].get_ylim()[1])
    if title is None:
        tiles = {name: (len(visits), len(_blocks([v[0] for v in visits], N_q)) * len(_blocks([v[1] for v in visits], N_k)))
                 for name, (visits, _) in replays.items()}
        title = _traversal_title(logs, {name: moves for name, (_, moves) in replays.items()}, totals, tiles)
    return _finish(fig, title, "Modelled: replayed from the log of flashlab.memory. Numbers: order of visits. "
                               "▼ load from HBM, △ store to HBM; dark bars read, light bars written.")


def _traversal_title(logs, moves, totals, tiles):
    if len(logs) == 1:
        [(name, steps)] = moves.items()
        always = [T for T in "QKVOlmL" if steps and all(any(tensor == T for _, tensor, _ in step) for step in steps)]
        return f"{_label(name)} moves {', '.join(always) or 'something'} in each of its {len(steps)} steps: {_bytes(totals[name])}"
    spared = []
    if {"fa1_forward", "fa2_forward"} <= logs.keys():
        loads = {name: {e.name for e in log if e.kind == "load"} for name, log in logs.items()}
        spared = [T for T in ("O", "l", "m") if T in loads["fa1_forward"] - loads["fa2_forward"]]
    visited, there = tiles.get("fa2_forward", (0, 0))
    if spared and visited < there:                         # two causes for one difference: the title claims neither
        return (f"FA2 skips {there - visited} of {there} tiles: {_bytes(totals['fa2_forward'])}, "
                f"FA1 {_bytes(totals['fa1_forward'])}")
    if not spared:
        return ", ".join(f"{_label(name)} moves {_bytes(total)}" for name, total in totals.items())
    return (f"FA2 keeps {', '.join(spared)} on the chip and moves {_bytes(totals['fa2_forward'])} where FA1 moves "
            f"{_bytes(totals['fa1_forward'])}")


def _draw_tiles(ax, name, visits, N_q, N_k):
    rows, cols = (_blocks([v[axis] for v in visits], N) for axis, N in ((0, N_q), (1, N_k)))
    ramp = LinearSegmentedColormap.from_list(name, [_tint(_color(name), 0.12), _color(name)])
    order = {visit: n for n, visit in enumerate(visits)}
    for row in rows:
        for col in cols:
            n = order.get((row, col))
            place = (col[0], row[0]), col[1] - col[0], row[1] - row[0]
            if n is None:
                ax.add_patch(Rectangle(*place, fc="white", ec="#AAAAAA", hatch="///", lw=0.8))
                continue
            shade = ramp(n / max(1, len(visits) - 1))
            ax.add_patch(Rectangle(*place, fc=shade, ec="white", lw=1.5))
            if len(visits) <= 100:
                ax.text((col[0] + col[1]) / 2, (row[0] + row[1]) / 2, n + 1, ha="center", va="center",
                        color="white" if _luminance(shade) < 0.55 else INK, fontsize=10 if len(visits) <= 36 else 7)
    ax.set(xlim=(0, N_k), ylim=(N_q, 0), aspect="equal")
    ax.set_xticks([(c[0] + c[1]) / 2 for c in cols], range(len(cols)))
    ax.set_yticks([(r[0] + r[1]) / 2 for r in rows], range(len(rows)))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    skipped = len(rows) * len(cols) - len(visits)
    ax.set_title(f"{_label(name)}: {len(visits)} tiles" + (f", {skipped} skipped" if skipped else ""), color=_color(name),
                 fontweight="bold")
    ax.set_xlabel("key block j")


def _draw_moves(ax, name, moves, tensors):
    for n, step in enumerate(moves, start=1):
        for verb, tensor, _ in step:
            if tensor in tensors:
                y, load = tensors.index(tensor), verb == "load"
                ax.plot(n, y + (-0.18 if load else 0.18), "v" if load else "^", ms=5, color=_color(name), mew=1,
                        mfc=_color(name) if load else "white")
    ax.set(ylim=(len(tensors) - 0.4, -0.6))
    ax.set_yticks(range(len(tensors)), tensors)
    ax.tick_params(axis="x", labelbottom=False)
    ax.grid(axis="y")


def _blocks(seen, N):
    """The blocks of 0 … N, with the size that the visits show, whether visited or not."""
    B = max((stop - start for start, stop in seen), default=N)
    return [(start, min(start + B, N)) for start in range(0, N, B)]


@figure
def sram_occupancy(memories, sram_bytes=None, title=None):
    """Bytes live in SRAM over the log's events. memories: {"fa2_forward": mem}; sram_bytes: the budget, if not mem's own."""
    fig, axes = plt.subplots(len(memories), 1, figsize=(8, 1.1 + 2.1 * len(memories)), squeeze=False, sharey=True)
    shares = {}
    for ax, (name, mem) in zip(axes[:, 0], memories.items(), strict=True):
        colour = _color(name if name in COLORS else next(e.kernel for e in mem.log if e.kind != "eager"))
        budget = sram_bytes or mem.sram_bytes
        live = [event.live for event in mem.log if event.kind != "eager"]
        peak, shares[name] = max(live), max(live) / budget
        at = live.index(peak) + 1
        ax.fill_between(range(1, len(live) + 1), live, step="mid", color=colour, alpha=0.25, lw=0)
        ax.step(range(1, len(live) + 1), live, where="mid", color=colour, lw=1)
        ax.axhline(budget, color=INK, ls="--", lw=1.2)
        ax.annotate(f"budget {_bytes(budget)}", (1, budget), (0, 3), xycoords=("axes fraction", "data"),
                    textcoords="offset points", ha="right", va="bottom", fontsize=9)
        ax.plot(at, peak, "o", color=colour, clip_on=False)
        ax.annotate(f"peak {_bytes(peak)}", (at, peak), (6, 4), textcoords="offset points", fontsize=9, color=colour,
                    fontweight="bold")
        ax.set(ylim=(0, 1.2 * max(budget, peak)), xlim=(0, len(live) + 1), ylabel="live SRAM")
        ax.set_title(_label(name), color=colour, fontweight="bold")
        _byte_axis(ax.yaxis, linear_to=1.2 * max(budget, peak))
    axes[-1, 0].set_xlabel("loads, stores and operations, in order")
    if title is None:
        title = "At the peak, live tiles take " + ", ".join(
            f"{100 * share:.0f} %{'' if n else ' of the SRAM'} in {_label(name)}" for n, (name, share) in enumerate(shares.items()))
    return _finish(fig, title, "Modelled: replayed from the log of flashlab.memory, one program at a time.")


@figure
def programs_on_sms(B, H, N, B_r, sms=108):
    """FA1's B·H programs against FA2's B·H·⌈N/B_r⌉ on a device's SMs: one program an SM at a time, time to scale."""
    check_positive(B=B, H=H, N=N, B_r=B_r, sms=sms)
    T_r = math.ceil(N / B_r)
    jobs = {"fa1_forward": (B * H, T_r), "fa2_forward": (B * H * T_r, 1)}    # how many programs, and how long each runs
    fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, sharex=True)
    times = {}
    for ax, (name, (programs, length)) in zip(axes, jobs.items(), strict=True):
        waves = math.ceil(programs / sms)
        for wave in range(waves):
            busy = min(sms, programs - wave * sms)
            ax.add_patch(Rectangle((0, wave * length), sms, length, fc="#F0F0F0", lw=0))
            ax.add_patch(Rectangle((0, wave * length), busy, length, fc=_color(name), ec="white", lw=0.6))
        times[name] = waves * length
        ax.set_title(f"{_label(name)}: {programs} programs on {min(sms, programs)} of {sms} SMs, {waves} "
                     f"wave{'s' if waves > 1 else ''}", color=_color(name), fontweight="bold", fontsize=9)
        ax.annotate(f"done at {times[name]}", (sms, times[name]), (0, -3), textcoords="offset points", ha="right", va="top",
                    fontsize=9, fontweight="bold", color=_color(name))
        ax.set(xlabel="SM")
    axes[0].set(xlim=(0, sms), ylim=(0, 1.12 * max(times.values())), ylabel="time (one FA2 program = 1)")
    axes[0].invert_yaxis()
    ratio = times["fa1_forward"] / times["fa2_forward"]
    claim = f"FA2's smaller programs finish {ratio:.1f} times sooner" if ratio > 1 else "FA2's smaller programs gain nothing here"
    return _finish(fig, f"{claim} (B = {B}, H = {H}, N = {N})",
                   f"Modelled: every tile takes equally long, one program an SM; {sms} SMs, B_r = {B_r}. Grey: idle.")


# ---- chapter 07: traffic

def sweep_traffic(Ns, d=64, sram_bytes=A100_SRAM, rungs=("naive_forward", "fa1_forward", "fa2_forward"), causal=False):
    """Run each rung under Memory at each N. Returns points: dicts of rung, N, d, B, sram_bytes, measured, formula (bytes)."""
    points = []
    for N in Ns:
        Q, K, V = (torch.randn(N, d) for _ in range(3))
        for name in rungs:
            with Memory(sram_bytes) as mem:
                B = largest_square_tile(d, d, Q.element_size())
                rung(name).function(Q, K, V, causal=causal)
            sizes = {"B_r": B, "B_c": B} if rung(name).tiled else {}
            points.append({"rung": name, "N": N, "d": d, "B": B, "sram_bytes": sram_bytes, "causal": causal,
                           "measured": mem.read + mem.written,
                           "formula": getattr(cost, name)(N, N, d, causal=causal, **sizes).traffic})
    return points


@figure
def traffic_against_N(points):
    """HBM bytes against N: dots measured under Memory, dashed lines the closed forms. points: as from sweep_traffic."""
    fig, ax = plt.subplots(figsize=(8, 4.6))
    ends = []
    for name, series in _by(points, "rung").items():
        series.sort(key=lambda p: p["N"])
        Ns = [p["N"] for p in series]
        ax.plot(Ns, [p["formula"] for p in series], "--", color=_color(name), lw=1.4)
        ax.plot(Ns, [p["measured"] for p in series], _marker(name), color=_color(name))
        ends.append((Ns[-1], series[-1]["formula"], _label(name), _color(name)))
    _log_axes(ax, sorted({p["N"] for p in points}), "N (queries = keys, one head)", "HBM traffic (bytes)")
    _byte_axis(ax.yaxis)
    N = max(p["N"] for p in points)
    last = {p["rung"]: p["measured"] for p in points if p["N"] == N}
    most, least = max(last, key=last.get), min(last, key=last.get)
    exact = all(p["measured"] == p["formula"] for p in points)
    return _finish(fig, f"At N = {N}, {_label(most)} moves {_bytes(last[most])}, {_label(least)} {_bytes(last[least])}: "
                        f"{_ratio(last[most], last[least])} times less",
                   f"Modelled: dots counted by flashlab.memory{', equal to' if exact else '; NOT all equal to'} the formulas "
                   f"(dashed). float32, d = {_all(points, 'd')}, SRAM {_all(points, 'sram_bytes', _bytes)}, tiles of "
                   f"{_all(points, 'B')} rows{', causal' if points[0]['causal'] else ''}.", ends={ax: ends})


def sweep_tiles(N, d=64, sizes=(16, 32, 48, 64, 80, 96, 128), sram_bytes=A100_SRAM, rungs=("fa1_forward", "fa2_forward"),
                causal=False):
    """Run each rung with B_r = B_c = B for each size. Points as in sweep_traffic; measured is None where the SRAM overflows."""
    Q, K, V = (torch.randn(N, d) for _ in range(3))
    points = []
    for name in rungs:
        for B in sizes:
            point = {"rung": name, "N": N, "d": d, "B": B, "sram_bytes": sram_bytes, "causal": causal,
                     "formula": getattr(cost, name)(N, N, d, B_r=B, B_c=B, causal=causal).traffic, "overflow": None}
            try:
                with Memory(sram_bytes) as mem:
                    rung(name).function(Q, K, V, causal=causal, B_r=B, B_c=B)
                point |= {"measured": mem.read + mem.written, "sram_peak": mem.sram_peak}
            except SRAMOverflow as error:
                point |= {"measured": None, "sram_peak": None, "overflow": str(error)}
            points.append(point)
    return points


@figure
def traffic_against_tile(points):
    """HBM bytes against the tile size B; where the tiles overflow the SRAM, only the formula is left."""
    fig, ax = plt.subplots(figsize=(8, 4.6))
    ends, sizes = [], sorted({p["B"] for p in points})
    for name, series in _by(points, "rung").items():
        series.sort(key=lambda p: p["B"])
        fits = [p for p in series if p["measured"] is not None]
        over = [p for p in series if p["measured"] is None]
        ax.plot([p["B"] for p in series], [p["formula"] for p in series], "--", color=_color(name), lw=1.4)
        ax.plot([p["B"] for p in fits], [p["measured"] for p in fits], _marker(name), color=_color(name))
        ax.plot([p["B"] for p in over], [p["formula"] for p in over], "x", color=_color(name), ms=8, mew=2)
        ends.append((series[-1]["B"], series[-1]["formula"], _label(name), _color(name)))
    _log_axes(ax, sizes, "tile size B (B_r = B_c = B rows)", "HBM traffic (bytes)")
    _byte_axis(ax.yaxis)
    if any(p["measured"] is None for p in points):
        right, first = ax.get_xlim()[1], {}
        for name, series in _by(points, "rung").items():
            over, fits = ([p["B"] for p in series if (p["measured"] is None) == gone] for gone in (True, False))
            if over:
                first[name] = min(over)                        # shaded from half-way, on a log axis
                left = math.sqrt(max(fits, default=first[name] / 2) * first[name])
                ax.axvspan(left, right, color=_color(name), alpha=0.09, lw=0, zorder=0)
        ax.set_xlim(right=right)
        who = "\n".join(f"{_label(name)} from B = {B}" for name, B in first.items())
        ax.annotate(f"SRAM overflow\n(budget {_all(points, 'sram_bytes', _bytes)})\n{who}", (1, 1), (-6, -4),
                    xycoords="axes fraction", textcoords="offset points", ha="right", va="top", fontsize=9)
    return _finish(fig, _tile_title(points), f"Modelled: dots counted by flashlab.memory, dashed the formulas, × does not fit. "
                   f"float32, N = {_all(points, 'N')}, d = {_all(points, 'd')}{', causal' if points[0]['causal'] else ''}.",
                   ends={ax: ends})


def _tile_title(points):
    fitting = [p for p in points if p["measured"] is not None]
    if not fitting:
        return "No tile size fits the SRAM"
    best = min(fitting, key=lambda p: p["measured"])
    falling = all(a["measured"] >= b["measured"] for series in _by(sorted(fitting, key=lambda p: p["B"]), "rung").values()
                  for a, b in zip(series, series[1:], strict=False))
    until = " until the SRAM overflows" if len(fitting) < len(points) else ""
    claim = f"Larger tiles move fewer bytes{until}" if falling else "The best tile is not the largest"
    return f"{claim}: {_label(best['rung'])} gets down to {_bytes(best['measured'])} at B = {best['B']}"


@figure
def model_vs_counters(results, d=None, causal=False, B_r=128, B_c=64):
    """Modelled HBM traffic against a GPU's hardware counters, for naive attention and the Triton kernel.

    results: a dict with "what": "counters". d None: the first row's. B_r, B_c: the kernel's tiles where its row has none.
    """
    d = results["rows"][0]["d"] if d is None and results["rows"] else d
    asked = [r for r in results["rows"] if r["d"] == d and r.get("causal", False) == causal]
    rows = [r for r in asked if not r.get("skipped")]
    panels = _by(rows, "implementation")
    if not panels:
        raise ValueError(f"results hold no row with counters for d = {d}, causal = {causal}; 'skipped' in a row says why")
    fig, axes = plt.subplots(1, len(panels), figsize=(4.8 * len(panels), 4.4), sharey=True, squeeze=False)
    dram_at, labels = {}, {}
    for ax, (name, series) in zip(axes[0], panels.items(), strict=True):
        series.sort(key=lambda r: r["N"])
        Ns = [r["N"] for r in series]
        modelled = [_modelled_traffic(name, r, r.get("B_r", B_r), r.get("B_c", B_c)) for r in series]
        dram = [r["dram_read"] + r["dram_written"] for r in series]
        dram_at[name] = dict(zip(Ns, dram, strict=True))
        l2 = [(r["N"], r["l2_bytes"]) for r in series if r.get("l2_bytes")]
        ax.plot(Ns, modelled, "--", color=_color(name))
        ax.plot(Ns, dram, "-", marker="o", color=_color(name))
        ends = [(Ns[-1], modelled[-1], "model", _color(name)), (Ns[-1], dram[-1], "DRAM", _color(name))]
        if l2:
            ax.plot(*zip(*l2, strict=True), ":", marker="s", mfc="white", color=_color(name))
            ends.append((*l2[-1], "L2", _color(name)))
        _log_axes(ax, Ns, "N", "")
        ax.set_title(f"{_label(name)}: DRAM is {dram[-1] / modelled[-1]:.2g} × model at N = {Ns[-1]}", color=_color(name),
                     fontweight="bold", fontsize=9)
        axes[0, 0].set_ylabel("bytes moved")
        labels[ax] = ends
    _byte_axis(axes[0, 0].yaxis)
    title = "Modelled traffic against the GPU's counters"
    naive, kernel = (dram_at.get(name, {}) for name in ("naive_forward", "fa2_triton_forward"))
    if both := sorted(naive.keys() & kernel.keys()):
        N = both[-1]
        title = (f"At N = {N} DRAM moves {_bytes(naive[N])} for naive attention, {_bytes(kernel[N])} for the kernel: "
                 f"{_ratio(naive[N], kernel[N])} times less")
    return _finish(fig, title, f"{_recorded(results)} DRAM and L2: counters of ncu; {_all(rows, 'dtype')}, B = {_all(rows, 'B')}, "
                               f"H = {_all(rows, 'H')}, d = {_all(rows, 'd')}, "
                               f"{_masks(rows)}. Dashed: modelled. Where L2 is above DRAM, the cache served the rest.",
                   _missing(results, asked), ends=labels)


def _modelled_traffic(name, row, B_r, B_c):
    sizes = {"element_size": getattr(torch, row["dtype"]).itemsize, "causal": row.get("causal", False)}
    if name == "naive_forward":
        one = cost.naive_forward(row["N"], row["N"], row["d"], **sizes)
    else:
        one = cost.fa2_forward(row["N"], row["N"], row["d"], B_r=B_r, B_c=B_c, **sizes)
    return row["B"] * row["H"] * one.traffic


# ---- chapter 16: the GPU. results: a dict as `flashlab bench` writes it

@figure
def runtime_against_N(results, d=128, causal=False, dtype=None, focus="fa2_triton_forward", live=False):
    """Median run time against N for every implementation, with the 20th to 80th percentile shaded."""
    fig, ax, series = _against_N(results, "ms", "run time (ms)", d, causal, dtype, focus)
    for name, rows in series.items():
        ax.fill_between([r["N"] for r in rows], [r.get("ms_low", r["ms"]) for r in rows],
                        [r.get("ms_high", r["ms"]) for r in rows], color=_color(name), alpha=0.2, lw=0)
    _plain_log(ax.yaxis)
    title = _duel(series, "ms", focus, "takes", lambda x: f"{x:.3g} ms", "as long")
    return _finish_bench(fig, ax, title, results, series, "ms", d, causal, live)


@figure
def peak_memory_against_N(results, d=128, causal=False, dtype=None, focus="fa2_triton_forward", live=False):
    """Peak memory beyond the inputs, against N."""
    ylabel = "peak memory beyond Q, K, V (bytes)" if results["what"] == "forward" else "peak memory, both passes (bytes)"
    fig, ax, series = _against_N(results, "peak_bytes", ylabel, d, causal, dtype, focus)
    _byte_axis(ax.yaxis)
    title = _duel(series, "peak_bytes", focus, "needs", _bytes, "as much")
    return _finish_bench(fig, ax, title, results, series, "peak_bytes", d, causal, live)


@figure
def tflops(results, d=128, causal=False, dtype=None, focus="fa2_triton_forward", live=False):
    """TFLOP/s against N for every implementation, under the measured matmul ceiling (dashed)."""
    fig, ax, series = _against_N(results, "tflops", "TFLOP/s", d, causal, dtype, focus)
    ceiling = results.get("ceilings", {}).get("matmul_tflops")
    top = max([r["tflops"] for rows in series.values() for r in rows] + [ceiling or 0])
    ax.set(yscale="linear", ylim=(0, 1.08 * top))
    if ceiling:
        ax.axhline(ceiling, ls="--", color=INK, lw=1.2)
        ax.annotate(f"a plain matmul: {ceiling:.0f} TFLOP/s", (0.01, ceiling), (0, -3), xycoords=("axes fraction", "data"),
                    textcoords="offset points", va="top", fontsize=9)
    title = f"{_label(focus)} was not measured here"
    if rows := series.get(focus):
        best = max(rows, key=lambda r: r["tflops"])
        share = f", {100 * best['tflops'] / ceiling:.0f} % of a plain matmul" if ceiling else ""
        flash = {r["N"]: r["tflops"] for r in series.get("sdpa_flash", [])}.get(best["N"])
        against = f", {best['tflops'] / flash:.2f} × SDPA flash" if flash else ""
        title = f"{_label(focus)} reaches {best['tflops']:.0f} TFLOP/s at N = {best['N']}{share}{against}"
    return _finish_bench(fig, ax, title, results, series, "tflops", d, causal, live)


@figure
def error_against_float64(results, d=128, causal=False, dtype=None, focus="fa2_triton_forward", live=False):
    """Largest error of O against float64, against N."""
    fig, ax, series = _against_N(results, "error", "max |O − O in float64|", d, causal, dtype, focus)
    _plain_log(ax.yaxis, "{:.0e}".format)
    title = f"{_label(focus)} and SDPA flash were not both measured here"
    flash = {r["N"]: r["error"] for r in series.get("sdpa_flash", [])}
    if ratios := [r["error"] / flash[r["N"]] for r in series.get(focus, []) if flash.get(r["N"])]:
        title = f"{_label(focus)} is off by at most {max(ratios):.2f} × the error of SDPA flash"
    return _finish_bench(fig, ax, title, results, series, "error", d, causal, live)


def _against_N(results, key, ylabel, d, causal, dtype, focus):
    """A new figure with one line an implementation, on log axes, and the rows it shows."""
    series = _series(results, key, d, causal, dtype)
    fig, ax = plt.subplots(figsize=(8, 4.8))
    for name, rows in series.items():
        strong = name == focus
        ax.plot([r["N"] for r in rows], [r[key] for r in rows], marker=_marker(name), color=_color(name),
                lw=2.8 if strong else 1.5, ms=6 if strong else 5, zorder=3 if strong else 2)
    rows = [r for part in series.values() for r in part]
    tokens = {r["B"] * r["N"] for r in rows}
    _log_axes(ax, sorted({r["N"] for r in rows}), "N" + (f" (batch × N = {tokens.pop()})" if len(tokens) == 1 else ""), ylabel)
    return fig, ax, series


def _finish_bench(fig, ax, title, results, series, key, d, causal, live):
    rows = [r for part in series.values() for r in part]
    note = _missing(results, [r for r in results["rows"] if r["d"] == d and r["causal"] == causal])
    source = (f"{_recorded(results, live)} {results['what'].capitalize()}, {_all(rows, 'dtype')}, d = {d}, H = {_all(rows, 'H')}, "
              f"{_masks(rows)}.")
    return _finish(fig, title, source, note, ends={
        ax: [(part[-1]["N"], part[-1][key], _label(name), _color(name)) for name, part in series.items()]})


def _missing(results, rows):
    """What was not measured and why, in words; "" where all was."""
    missing = {}
    for r in rows:
        if r.get("skipped"):
            missing.setdefault((_label(r["implementation"]), textwrap.shorten(r["skipped"], 90)), []).append(r["N"])
    notes = [f"{name} at N = {', '.join(map(str, sorted(Ns)))}: {why}" for (name, why), Ns in missing.items()]
    if not results.get("complete", True):
        notes.append("what the run had not reached when it was cut off")
    return "; ".join(notes)


def _masks(rows):
    return "/".join(sorted({"causal" if r.get("causal") else "no mask" for r in rows}))


def _series(results, key, d, causal, dtype):
    """implementation -> its measured rows in order of N. dtype None: the one with most rows."""
    rows = [r for r in results["rows"] if r["d"] == d and r["causal"] == causal and r.get("pass", "forward") == results["what"]
            and not r.get("skipped") and r.get(key) is not None]
    by_dtype = _by(rows, "dtype")
    dtype = dtype or max(by_dtype, key=lambda name: len(by_dtype[name]), default=None)
    if dtype not in by_dtype:
        raise ValueError(f"results hold no measured {key!r} for d = {d}, causal = {causal}, dtype = {dtype}")
    return {name: sorted(part, key=lambda r: r["N"]) for name, part in _by(by_dtype[dtype], "implementation").items()}


def _duel(series, key, focus, verb, unit, comparison):
    """The title: the kernel against naive attention, at the largest N that both were measured at."""
    other = "naive_backward" if focus.endswith("backward") else "naive_forward"
    ours, naive = ({r["N"]: r[key] for r in series.get(name, [])} for name in (focus, other))
    if not (both := sorted(ours.keys() & naive.keys())):
        return f"{_label(focus)} and naive attention were not both measured here"
    N = both[-1]
    return (f"At N = {N}, {_label(focus)} {verb} {unit(ours[N])}; naive attention {unit(naive[N])}, "
            f"{_ratio(naive[N], ours[N])} times {comparison}")


def _recorded(results, live=False):
    p = results["provenance"]
    verb = "Measured here" if live else "Recorded"
    return f"{verb} on {p['device']}, {p['date'][:10]}, torch {p['torch']}, triton {p['triton']}."


# ---- shared

def _finish(fig, title, provenance, note="", ends=None):
    """Title on top, provenance below, in the width there is; then the names at the lines' ends. ends: ax -> as _label_ends."""
    width = fig.get_figwidth()
    fig.suptitle(_wrap(title, 9.8 * width), x=0.01, ha="left", fontsize=12, fontweight="bold")
    below = _wrap(provenance, 16 * width) + (f"\n{_wrap(f'Missing: {note}.', 16 * width)}" if note else "")
    fig.supxlabel(below, x=0.01, ha="left", fontsize=8, color="#555555")
    for ax, labels in (ends or {}).items():
        _label_ends(ax, labels)
    return fig


def _wrap(text, width):
    """Lines of at most `width` characters; a number stays with its unit, and 'N = 64' in one piece."""
    tied = re.sub(r"(?<=\d) (?=[KMGT]?i?B\b|%|ms\b|TFLOP|times\b)|(?<=[=×]) | (?=[=×])", "\N{NO-BREAK SPACE}", text)
    return textwrap.fill(tied, int(width)).replace("\N{NO-BREAK SPACE}", " ")


def _label_ends(ax, ends):
    """Names at the ends of lines, (x, y, text, colour) each; those in one column are pushed apart until none overlaps."""
    ax.figure.draw_without_rendering()                                   # fixes the layout that pixels refer to
    per_point = ax.figure.dpi / 72
    gap = 13 * per_point
    for column in _by([{"x": x, "y": y, "text": text, "colour": colour} for x, y, text, colour in ends], "x").values():
        for end in column:
            end["at"] = end["line"] = ax.transData.transform((end["x"], end["y"]))[1]
        column.sort(key=lambda end: end["at"])
        for _ in range(100):
            column[0]["at"] = max(column[0]["at"], ax.bbox.y0 + gap / 2)     # not into the tick labels
            for low, high in zip(column, column[1:], strict=False):
                push = max(0, gap - (high["at"] - low["at"]))
                low["at"], high["at"] = low["at"] - push / 2, high["at"] + push / 2
        for end in column:
            text = ax.annotate(end["text"], (end["x"], end["y"]), (9, (end["at"] - end["line"]) / per_point), va="center",
                               textcoords="offset points", color=end["colour"], fontweight="bold", fontsize=9,
                               annotation_clip=False, zorder=5)
            text.set_path_effects([withStroke(linewidth=3, foreground="white")])    # readable where another line passes


def _log_axes(ax, ticks, xlabel, ylabel):
    ax.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.0f}"))
    ax.grid(axis="y")


def _byte_axis(axis, linear_to=None):
    """Ticks in B, KiB, MiB: at powers of 2, 4 or 16 on a log axis, at four to eight round places on a linear one."""
    if linear_to is None:
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(base=next((base for base in (2, 4) if math.log(high / low, base) < 6), 16)))
    else:
        step = 2 ** math.floor(math.log2(max(linear_to, 4) / 4))
        axis.set_major_locator(FixedLocator([n * step for n in range(int(linear_to / step) + 1)]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda x, _: _bytes(x)))


def _plain_log(axis, text="{:g}".format):
    """Numbers instead of powers of ten, at 1, 2 and 5 where there is room for them."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 1000 else (1,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda x, _: text(x)))


def _bytes(n):
    return format_bytes(n).replace(".0 ", " ")


def _si(n, unit):
    for power, prefix in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if n >= 10**power:
            return f"{n / 10**power:.3g} {prefix}{unit}"
    return f"{n:.3g} {unit}"


def _ratio(a, b):
    return f"{a / b:.1f}" if a / b < 10 else _round(a / b)


def _round(x):
    """Two significant digits, written out: 1932 -> 1900."""
    return f"{round(x, 1 - int(math.floor(math.log10(abs(x))))):.0f}" if x >= 10 else f"{x:.1f}"


def _all(rows, key, text=str):
    """Every value that the rows hold under key, as text: '64', or '64/128'."""
    return "/".join(text(value) for value in sorted({row[key] for row in rows}))


def _by(rows, key):
    groups = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def _op_names(events):
    plain = {"mul": "scale", "_softmax": "softmax", "_to_copy": "cast", "masked_fill": "mask"}
    products = iter(("QKᵀ", "PV")) if sum(event.name == "mm" for event in events) == 2 else iter(())
    return [next(products, "mm") if event.name == "mm" else plain.get(event.name, event.name) for event in events]


def _label(name):
    return LABELS.get(name, name)


def _color(name):
    return COLORS.get(name, READ)


def _marker(name):
    return MARKERS.get(name, "o")


def _tint(color, share):
    """`color` mixed with white, `share` of it left."""
    return tuple(1 - share * (1 - c) for c in to_rgb(color))


def _luminance(rgb):
    return 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]


# ---- python -m flashlab.figures.gallery

def gallery(results_dir="results"):
    """(file name, function that draws it) of every picture: from the rungs, and from recorded results where there are any."""
    from flashlab.oracle import attention
    from flashlab.rungs.block_matmul import softmax_star_attention
    from flashlab.rungs.online_softmax import softmax_three_pass, softmax_two_pass

    torch.manual_seed(0)

    def run(name, N, d, **kwargs):
        Q, K, V = (torch.randn(N, d) for _ in range(3))
        with Memory() as mem:
            rung(name).function(Q, K, V, **kwargs)
        return mem

    Q, K, V = (torch.randn(64, 16) for _ in range(3))
    passes = {}
    for name, softmax in (("three passes", softmax_three_pass), ("two passes", softmax_two_pass)):
        x = torch.randn(4096)
        with Memory() as mem:
            softmax(x, B=64)
        passes[name] = (mem.read, mem.written)
    logs = {causal: {name: run(name, 64, 16, causal=causal, B_r=16, B_c=16).log for name in ("fa1_forward", "fa2_forward")}
            for causal in (False, True)}
    yield "traffic", lambda: traffic_against_N(sweep_traffic([256, 512, 1024, 2048, 4096]))
    yield "memory_hierarchy", memory_hierarchy
    yield "traffic_by_op", lambda: traffic_by_op(run("naive_forward", 1024, 64))
    yield "attention_matrices", lambda: attention_matrices(1024, 1024, 64)
    yield "causal_mask", lambda: causal_mask(4, 10)
    yield "softmax_passes", lambda: softmax_passes(passes)
    yield "running_state", lambda: running_state(torch.randn(24))
    yield "block_product", lambda: block_product(64, 96, 80, 16, 24, 20)
    yield "softmax_star_error", lambda: softmax_star_error(softmax_star_attention(Q, K, V, B_r=16, B_c=16),
                                                           attention(Q, K, V, scale=1)[0])
    yield "tile_traversal", lambda: tile_traversal(logs[False], 64, 64)
    yield "tile_traversal_causal", lambda: tile_traversal(logs[True], 64, 64)
    yield "sram_occupancy", lambda: sram_occupancy({name: run(name, 192, 64) for name in ("fa1_forward", "fa2_forward")})
    yield "programs_on_sms", lambda: programs_on_sms(1, 16, 4096, 128)
    yield "traffic_against_tile", lambda: traffic_against_tile(sweep_tiles(1024))
    for path in sorted(Path(results_dir).glob("*.json")):
        results = json.loads(path.read_text())
        if results.get("what") == "counters":
            yield f"{path.stem}_counters", lambda results=results: model_vs_counters(results)
        elif results.get("what") == "forward":
            for draw in (runtime_against_N, peak_memory_against_N, tflops, error_against_float64):
                yield f"{path.stem}_{draw.__name__}", lambda draw=draw, results=results: draw(results)
        elif results.get("what") == "backward":
            for draw in (runtime_against_N, peak_memory_against_N, tflops):
                yield (f"{path.stem}_{draw.__name__}",
                       lambda draw=draw, results=results: draw(results, focus="fa2_triton_backward"))


def main(arguments):
    if len(arguments) > 1 or any(a.startswith("-") for a in arguments):
        raise SystemExit("usage: python -m flashlab.figures.gallery [OUT_DIR]    (default: docs)")
    folder = Path(arguments[0] if arguments else "docs")
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in gallery():
        draw().savefig(folder / f"{name}.png", dpi=130)
        print(f"wrote {folder / name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
