"""The pictures of chapters 00 and 04: the ladder, and which tiles make a tile of a matrix product."""

import textwrap

import numpy as np

from flashlab.cost import ceil_div
from flashlab.ladder import RUNGS
from flashlab.validate import check_positive
from flashlab_course.figures.plots import box, canvas, heat_map, panel
from flashlab_course.figures.style import figure, finish


@figure
def ladder(rungs=None):
    """The rungs from the lowest up: what each is called, where it stands, and what it changes."""
    rungs = list(rungs or RUNGS)
    fig, ax = panel(9, 0.9 + 0.62 * len(rungs))
    for y, rung in enumerate(rungs):
        box(ax, 0, y - 0.4, 1.6, 0.8, rung.color, f"{rung.number} · {rung.title}")
        ax.text(1.75, y, f"{rung.name}, chapter {rung.chapter}\n{textwrap.fill(rung.new, 80)}", va="center", fontsize=8)
    canvas(ax, (0, 6), (-0.5, len(rungs) - 0.5), equal=False)
    return finish(fig, f"{len(rungs)} ways to compute the same attention, each one idea above the last",
                  "Definition: flashlab.ladder.RUNGS, the list that tests and benchmarks loop over.")


@figure
def block_product(M, K, N, B_m, B_k, B_n, tile=(0, 0), names=("A", "B", "C")):
    """Which tiles of A (M, K) and B (K, N) make one tile of C (M, N): a square a tile.

    tile: the (row, column) of C's tile
    """
    check_positive(M=M, K=K, N=N, B_m=B_m, B_k=B_k, B_n=B_n)
    T_m, T_k, T_n = ceil_div(M, B_m), ceil_div(K, B_k), ceil_div(N, B_n)
    (i, j), gap = tile, T_k + 1
    shares = np.full((gap + T_m, gap + T_n), np.nan)
    shares[gap:, :T_k] = shares[:T_k, gap:] = shares[gap:, gap:] = 0
    texts = np.full(shares.shape, "", dtype=object)
    shares[gap + i, :T_k] = shares[:T_k, gap + j] = np.linspace(0.6, 0.3, T_k)
    shares[gap + i, gap + j], (A, B, C) = 1, names
    for k in range(T_k if T_k > 1 else 0):             # a single product needs no names
        texts[gap + i, [k, gap + j]] = f"${A}_{{{i}{k}}}$", f"${C}_{{{i}{j}}}$"
        texts[k, gap + j] = f"${B}_{{{k}{j}}}$"
    fig, ax = panel(6.4, 5)
    heat_map(ax, shares, texts)
    for name, x, y, shape in zip(names, (0, gap, gap), (gap, 0, gap), ((M, K), (K, N), (M, N)), strict=True):
        ax.text(x, y - 0.15, f"{name}  {shape[0]} × {shape[1]}", fontweight="bold")
    ax.set(xticks=[], yticks=[])
    return finish(fig, f"Tile ({i}, {j}) of {C} needs row {i} of {A}'s tiles, column {j} of {B}'s, and nothing else",
                  f"Definition: tiles of {B_m} × {B_k} of {A} and {B_k} × {B_n} of {B}."
                  + " Tiles of one shade are multiplied, and the products added up." * (T_k > 1))
