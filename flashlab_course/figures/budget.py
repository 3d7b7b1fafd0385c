"""The pictures of chapter 05: which tiles fit the SRAM, and why the paper's rule has a minimum in it."""

import matplotlib.pyplot as plt

from flashlab.memory import KiB
from flashlab.tiles import paper_tile_sizes
from flashlab_course.figures.style import HALO, INK, READ, WRITTEN, byte_axis, color, figure, finish, log_axes
from flashlab_course.figures.words import bytes_text

SQUARE = "#0072B2"                                             # S_ij, P_ij and copies of them
BLOCK_LIMITS = {"a block on an A100 gets": 163 * KiB, "on an H100": 227 * KiB}      # shared memory, CUDA C++ Programming Guide


def tile_bytes(B_r, B_c, d, d_v=None, element_size=4):
    """What FA1's inner step keeps on chip, in the order in which it comes: name -> bytes."""
    d_v = d if d_v is None else d_v
    numbers = {"K_j": B_c * d, "V_j": B_c * d_v, "Q_i": B_r * d, "O_i": B_r * d_v, "S_ij": B_r * B_c, "scaled S_ij": B_r * B_c,
               "P_ij": B_r * B_c}
    return {name: element_size * n for name, n in numbers.items()}


@figure
def tiles_in_sram(stacks, sram_bytes, limits=None):
    """Tiles end to end against the size of the SRAM. stacks: name -> {tile: bytes}, as tile_bytes makes them.

    limits: other budgets to mark, words -> bytes; those of a block on two GPUs if None
    """
    limits = BLOCK_LIMITS if limits is None else limits
    fig, ax = plt.subplots(figsize=(9, 2 + 0.75 * len(stacks)))
    for y, stack in enumerate(stacks.values()):
        left = 0
        for tile, nbytes in stack.items():
            square = "_ij" in tile
            ax.barh(y, nbytes, 0.6, left=left, color=SQUARE if square else WRITTEN, ec="white", lw=1.2)
            if nbytes > 0.04 * max(sum(one.values()) for one in stacks.values()):
                ax.text(left + nbytes / 2, y, tile.replace("scaled S_ij", "scaled\nS_ij"), ha="center", va="center", fontsize=8,
                        color="white" if square else INK)
            left += nbytes
    budgets = sorted({"the model's budget": sram_bytes, **limits}.items(), key=lambda pair: pair[1])
    for n, (words, nbytes) in enumerate(budgets):                        # the words go down like stairs, or they would overlap
        ax.axvline(nbytes, color=INK, ls="--", lw=1.6 if nbytes == sram_bytes else 0.8)
        ax.annotate(f"{words}: {bytes_text(nbytes)}", (nbytes, len(stacks) - 0.4 + 0.3 * n), (-4, 0), textcoords="offset points",
                    va="top", ha="right", fontsize=8, path_effects=HALO)
    ax.set(ylim=(len(stacks) - 0.4 + 0.32 * len(budgets), -0.5), xlabel="bytes on chip")
    ax.set_yticks(range(len(stacks)), stacks)
    byte_axis(ax.xaxis, linear_to=max(sum(stack.values()) for stack in stacks.values()))
    return finish(fig, "; ".join(_verdict(name, stack, sram_bytes) for name, stack in stacks.items()),
                  "Modelled: tiles of FA1's inner step in the order in which they come. Grey: strips of d columns. Blue: squares.")


def _verdict(name, stack, sram_bytes):
    name, total = name.replace("\n", " "), 0
    for tile, nbytes in stack.items():
        total += nbytes
        if total > sram_bytes:
            return f"{name}: {bytes_text(total - nbytes)} without {tile}, which no longer fits"
    return f"{name}: {bytes_text(total)} fit"


@figure
def share_of_S(ds, sram_bytes, element_size=4):
    """How much of the SRAM one S_ij takes under the paper's rule, with and without its min(·, d), for each head dimension."""
    M = sram_bytes // element_size
    shares = {"B_r = min(⌈M/4d⌉, d)": [], "B_r = ⌈M/4d⌉": []}
    for d in ds:
        B_r, B_c = paper_tile_sizes(sram_bytes, d, element_size)
        shares["B_r = min(⌈M/4d⌉, d)"].append(B_r * B_c / M)
        shares["B_r = ⌈M/4d⌉"].append(B_c * B_c / M)
    fig, ax = plt.subplots(figsize=(8, 3.8))
    ends = []
    for (name, values), colour in zip(shares.items(), (color("fa1_forward"), READ), strict=True):
        ax.plot(ds, values, "o-" if colour != READ else "o--", color=colour)
        ends.append((ds[0], values[0], name, colour))
    ax.axhline(1, color=INK, ls="--", lw=1.2)
    ax.annotate(f"all of the SRAM, {bytes_text(sram_bytes)}", (1, 1), (0, 4), xycoords=("axes fraction", "data"),
                textcoords="offset points", ha="right", fontsize=9)
    log_axes(ax, list(ds), "head dimension d", "share of the SRAM that S_ij takes")
    ax.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    ax.margins(y=0.15)                                                 # no fixed limits: a prediction may lie anywhere
    ax.grid(axis="y")
    for x, y, name, colour in ends:
        ax.annotate(name, (x, y), (9, 5), textcoords="offset points", color=colour, fontsize=9, fontweight="bold")
    with_min, without = (values[0] for values in shares.values())
    return finish(fig, f"At d = {ds[0]} one S_ij would take {without:.2g} times the SRAM; with min(·, d) it takes {with_min:.2g}",
                  f"Modelled: the paper's rule, M = {M} elements of {element_size} bytes.")
