"""The pictures of chapters 00 and 01 about attention itself: the ladder, a tile of scores, who sees whom, saturation."""

import math
import textwrap

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from flashlab.ladder import RUNGS
from flashlab.validate import check_positive
from flashlab_course.figures.style import FAINT, READ, WRITTEN, bare, figure, finish, plain_log
from flashlab_course.figures.words import ratio_text

TILE = "#0072B2"


@figure
def ladder(rungs=None):
    """The rungs from the lowest up: what each is called, where it stands, and what it changes."""
    rungs = list(rungs or RUNGS)
    fig, ax = plt.subplots(figsize=(9, 0.9 + 0.85 * len(rungs)))
    for y, rung in enumerate(rungs):
        ax.add_patch(Rectangle((0, y - 0.09), 1.5, 0.18, fc=rung.color, lw=0))
        ax.text(0.75, y + 0.14, f"{rung.number} · {rung.title}", ha="center", va="bottom", fontsize=10, fontweight="bold",
                color=rung.color)
        ax.text(1.75, y, f"{rung.name}, chapter {rung.chapter}\n{textwrap.fill(rung.new, 62)}", va="center", fontsize=9,
                linespacing=1.4)
    for x in (0, 1.5):
        ax.plot([x, x], [-0.4, len(rungs) - 0.35], color="#999999", lw=4, solid_capstyle="round", zorder=0)
    ax.set(xlim=(-0.05, 5.2), ylim=(-0.5, len(rungs) - 0.3))
    ax.axis("off")
    return finish(fig, f"{len(rungs)} ways to compute the same attention, each one idea above the last",
                  "Definition: flashlab.ladder.RUNGS, the list that tests and benchmarks loop over.")


@figure
def tile_of_scores(N_q, N_k, B_r, B_c, i, j):
    """S cut into tiles: the rows of Q and of K that tile (i, j) is made of."""
    check_positive(N_q=N_q, N_k=N_k, B_r=B_r, B_c=B_c)
    d, gap = max(2, N_k // 4), 1.2
    rows, columns = (slice(n * B, min((n + 1) * B, N)) for n, B, N in ((i, B_r, N_q), (j, B_c, N_k)))
    cell = 3.4 / (max(N_q, N_k) + d)                                   # inches
    fig, ax = plt.subplots(figsize=(8, cell * (N_q + d + gap) + 1.3))
    for x, y, across, down, name in ((-d - gap, 0, d, N_q, "Q"), (0, -d - gap, N_k, d, "Kᵀ"), (0, 0, N_k, N_q, "S")):
        for r in range(down):
            for c in range(across):
                row_in, column_in = rows.start <= r < rows.stop, columns.start <= c < columns.stop
                used = {"Q": row_in, "Kᵀ": column_in, "S": row_in and column_in}[name]
                ax.add_patch(Rectangle((x + c + 0.05, y + r + 0.05), 0.9, 0.9, fc=TILE if used else "#E9EDF2", lw=0))
        ax.text(x - 0.3, y - 0.2, name, ha="right", va="bottom", fontsize=12, fontweight="bold")
    for y in range(0, N_q + 1, B_r):
        ax.plot([0, N_k], [y, y], color=READ, lw=1.2)
    for x in range(0, N_k + 1, B_c):
        ax.plot([x, x], [0, N_q], color=READ, lw=1.2)
    ax.set(xlim=(-d - gap - 1.4, N_k + 0.3), ylim=(N_q + 0.3, -d - gap - 1.4), aspect="equal")
    ax.axis("off")
    tiles = math.ceil(N_q / B_r) * math.ceil(N_k / B_c)
    needs = [f"{part.stop - part.start} row{'s' if part.stop > part.start + 1 else ''} of" for part in (rows, columns)]
    return finish(fig, f"Tile ({i}, {j}) of S needs {needs[0]} Q and {needs[1]} K, and nothing else",
                  f"Definition: {N_q} queries, {N_k} keys, tiles of {B_r} × {B_c} scores: {tiles} tiles, counted from (0, 0).")


@figure
def who_sees_whom(N_source, N_target):
    """The three uses of attention in a transformer that translates: who asks, who is asked, and which pairs are hidden."""
    uses = [("encoder", "source", "source", N_source, N_source, False), ("decoder", "target", "target", N_target, N_target, True),
            ("decoder, cross-attention", "target", "source", N_target, N_source, False)]
    fig, axes = plt.subplots(1, 3, figsize=(9, 3.5))
    for ax, (name, asks, asked, N_q, N_k, causal) in zip(axes, uses, strict=True):
        for i in range(N_q):
            for j in range(N_k):
                seen = not causal or j <= i
                ax.add_patch(Rectangle((j, i), 1, 1, fc=READ if seen else "white", ec="white" if seen else FAINT, lw=1))
        ax.set(xlim=(-0.1, max(N_source, N_target) + 0.1), ylim=(max(N_source, N_target) + 0.1, -0.1), aspect="equal",
               xticks=[], yticks=[], xlabel=f"keys: {asked} tokens", ylabel=f"queries: {asks} tokens", anchor="N")
        ax.set_title(f"{name}\n{'causal' if causal else 'not causal'}, {N_q} × {N_k}")
        bare(ax)
    return finish(fig, "Only text that is still being written needs the causal mask",
                  "Definition: the transformer of Vaswani et al. 2017, arXiv:1706.03762, section 3.2.3. Filled: visible.")


@figure
def saturation(points):
    """How much a weight follows its score, against how far the scores spread. points: dicts of spread, mean, median, largest."""
    points = sorted(points, key=lambda point: point["spread"])
    fig, ax = plt.subplots(figsize=(8, 3.9))
    lowest, ends = max(min(point["median"] for point in points), 1e-12) / 3, []
    for key, text, colour in (("mean", "mean of all keys", TILE), ("median", "median key", "#D55E00")):
        ax.plot([point["spread"] for point in points], [point[key] for point in points], "o-", color=colour)
        last = [point for point in points if point[key] > lowest][-1]
        ends.append((last["spread"], last[key], text, colour))
    ax.set(xscale="log", yscale="log", xlabel="spread of a query's scores (standard deviation)", ylabel="∂ weight / ∂ its score",
           ylim=(lowest, 0.05))
    plain_log(ax.xaxis)
    ax.grid(axis="y", color=WRITTEN, lw=0.5)
    near, far = (min(points, key=lambda point: abs(math.log(point["spread"] / spread))) for spread in (1, 8))
    return finish(fig, f"With scores {far['spread']:.0f} times as far apart, the gradient of the median key is "
                       f"{float(ratio_text(near['median'], far['median'])):,.0f} times smaller",
                  "Measured here: softmax's own derivative, p (1 − p), for 512 queries and 512 random keys.", ends={ax: ends})
