"""The pictures of chapter 00: the ladder, a tile of scores, how large S is."""

import math
import textwrap

from flashlab.ladder import RUNGS
from flashlab.validate import check_positive
from flashlab_course.figures.colors import BLUE, READ
from flashlab_course.figures.plots import box, canvas, curves, panel
from flashlab_course.figures.style import figure, finish
from flashlab_course.figures.words import bytes_text

A100_L2 = 40 * 2**20       # NVIDIA A100 whitepaper


@figure
def ladder(rungs=None):
    """The rungs from the lowest up: what each is called, where it stands, and what it changes."""
    rungs = list(rungs or RUNGS)
    fig, ax = panel(9, 0.9 + 0.85 * len(rungs))
    for y, rung in enumerate(rungs):
        box(ax, 0, y - 0.09, 1.5, 0.18, rung.color, lw=0)
        ax.text(0.75, y + 0.14, f"{rung.number} · {rung.title}", ha="center", fontweight="bold", color=rung.color)
        ax.text(1.75, y, f"{rung.name}, chapter {rung.chapter}\n{textwrap.fill(rung.new, 62)}", va="center", fontsize=9,
                linespacing=1.4)
    for x in (0, 1.5):
        ax.plot([x, x], [-0.4, len(rungs) - 0.35], color="#999999", lw=4, solid_capstyle="round", zorder=0)
    canvas(ax, (-0.05, 5.2), (-0.5, len(rungs) - 0.3), equal=False)
    return finish(fig, f"{len(rungs)} ways to compute the same attention, each one idea above the last",
                  "Definition: flashlab.ladder.RUNGS, the list that tests and benchmarks loop over.")


@figure
def tile_of_scores(N_q, N_k, B_r, B_c, i, j):
    """S cut into tiles: the rows of Q and of K that tile (i, j) is made of."""
    check_positive(N_q=N_q, N_k=N_k, B_r=B_r, B_c=B_c)
    d, gap = max(2, N_k // 4), 1.2
    rows, columns = range(N_q)[i * B_r:(i + 1) * B_r], range(N_k)[j * B_c:(j + 1) * B_c]
    inch = 3.4 / (max(N_q, N_k) + d)                                   # of a cell
    fig, ax = panel(8, inch * (N_q + d + gap) + 1.3)
    for name, x, y, height, width, used in (("Q", -d - gap, 0, N_q, d, lambda r, c: r in rows),
                                            ("Kᵀ", 0, -d - gap, d, N_k, lambda r, c: c in columns),
                                            ("S", 0, 0, N_q, N_k, lambda r, c: r in rows and c in columns)):
        for r in range(height):
            for c in range(width):
                box(ax, x + c + 0.05, y + r + 0.05, 0.9, 0.9, BLUE if used(r, c) else "#E9EDF2", lw=0)
        ax.text(x - 0.3, y - 0.2, name, ha="right", va="bottom", fontsize=12, fontweight="bold")
    ax.hlines(range(0, N_q + 1, B_r), 0, N_k, color=READ, lw=1.2)
    ax.vlines(range(0, N_k + 1, B_c), 0, N_q, color=READ, lw=1.2)
    canvas(ax, (-d - gap - 1.4, N_k + 0.3), (N_q + 0.3, -d - gap - 1.4))
    needs = [f"{len(part)} row{'s' if len(part) > 1 else ''} of" for part in (rows, columns)]
    tiles = math.ceil(N_q / B_r) * math.ceil(N_k / B_c)
    return finish(fig, f"Tile ({i}, {j}) of S needs {needs[0]} Q and {needs[1]} K, and nothing else",
                  f"Definition: {N_q} queries, {N_k} keys, tiles of {B_r} × {B_c} scores: {tiles} tiles, counted from "
                  "(0, 0).")


@figure
def matrix_sizes(Ns, d):
    """Bytes of S and of Q for one head, against N, beside the L2 cache of an A100."""
    sizes = {"S": {N: 4 * N * N for N in Ns}, "Q": {N: 4 * N * d for N in Ns}}
    lines = [(f"{name}: {bytes_text(of[Ns[-1]])}", of, colour)
             for (name, of), colour in zip(sizes.items(), (RUNGS[0].color, READ), strict=True)]
    return curves(lines, f"At N = {Ns[-1]}, S takes {Ns[-1] / d:.0f} times the bytes of Q",
                  f"Modelled: from the shapes alone, d = {d}, 4 bytes a number. Dashed: NVIDIA's A100 whitepaper.",
                  "N (queries = keys, one head)", "bytes", log="xy", byte="y", ticks=Ns,
                  ceilings={f"L2 cache of an A100, {bytes_text(A100_L2)}": A100_L2})
