"""The pictures of chapter 05: which tiles fit the SRAM, and why the paper's rule has a minimum in it."""

from flashlab.memory import KiB
from flashlab.tiles import paper_tile_sizes
from flashlab_course.figures.colors import BLUE, INK, READ, WRITTEN, color
from flashlab_course.figures.plots import axes, ceiling, heading, panel, panels, plot, stack
from flashlab_course.figures.style import HALO, figure, finish, note
from flashlab_course.figures.words import bytes_text, label

# shared memory, CUDA C++ Programming Guide
BLOCK_LIMITS = {"a block on an A100 gets": 163 * KiB, "on an H100": 227 * KiB}


def tile_bytes(B_r, B_c, d, element_size=4):
    """What FA1's inner step keeps on chip, in the order in which it comes: name -> bytes."""
    numbers = {"K_j": B_c * d, "V_j": B_c * d, "Q_i": B_r * d, "O_i": B_r * d, "S_ij": B_r * B_c,
               "scaled S_ij": B_r * B_c, "P_ij": B_r * B_c}
    return {name: element_size * n for name, n in numbers.items()}


@figure
def tiles_in_sram(stacks, sram_bytes):
    """Tiles end to end against the size of the SRAM. stacks: name -> {tile: bytes}, as tile_bytes makes them."""
    fig, ax = panel(9, 2 + 0.75 * len(stacks))
    longest = max(sum(tiles.values()) for tiles in stacks.values())
    parts = lambda tiles: [(nbytes, BLUE if "_ij" in tile else WRITTEN, tile.replace(" ", "\n"))
                           for tile, nbytes in tiles.items()]
    stack(ax, {name: parts(tiles) for name, tiles in stacks.items()}, xlabel="bytes on chip", byte=True)
    for bar in ax.patches:
        bar.set(ec="white", lw=1.2)
    budgets = sorted({"the model's budget": sram_bytes, **BLOCK_LIMITS}.items(), key=lambda pair: pair[1])
    for n, (words, nbytes) in enumerate(budgets):                # the words go down like stairs, or they would overlap
        ax.axvline(nbytes, color=INK, ls="--", lw=1.6 if nbytes == sram_bytes else 0.8)
        note(ax, f"{words}: {bytes_text(nbytes)}", nbytes, len(stacks) - 0.4 + 0.3 * n, -4, 0, va="top", ha="right",
             fontsize=8, path_effects=HALO)
    ax.set(xlim=(0, 1.05 * max(longest, *BLOCK_LIMITS.values())), ylim=(len(stacks) - 0.4 + 0.32 * len(budgets), -0.5))
    return finish(fig,
                  "; ".join(fit_text(name.replace("\n", " "), tiles, sram_bytes) for name, tiles in stacks.items()),
                  "Modelled: tiles of FA1's inner step in the order in which they come. Grey: strips of d columns. "
                  "Blue: squares.")


def fit_text(name, tiles, sram_bytes):
    total = 0
    for tile, nbytes in tiles.items():
        total += nbytes
        if total > sram_bytes:
            return f"{name}: {bytes_text(total - nbytes)} without {tile}, which no longer fits"
    return f"{name}: {bytes_text(total)} fit"


@figure
def share_of_S(ds, sram_bytes):
    """How much of the SRAM one S_ij takes under the paper's rule, with and without its min(·, d), against d."""
    M = sram_bytes // 4
    tiles = {d: paper_tile_sizes(sram_bytes, d, 4) for d in ds}
    with_min = {d: B_r * B_c / M for d, (B_r, B_c) in tiles.items()}
    without = {d: B_c * B_c / M for d, (_, B_c) in tiles.items()}
    fig, ax = panel(8, 3.8)
    for name, shares, colour, style in (("B_r = min(⌈M/4d⌉, d)", with_min, color("fa1_forward"), "o-"),
                                        ("B_r = ⌈M/4d⌉", without, READ, "o--")):
        plot(ax, "", shares, colour, style)
        note(ax, name, ds[0], shares[ds[0]], 9, 9, color=colour, fontweight="bold")
    ceiling(ax, f"all of the SRAM, {bytes_text(sram_bytes)}", 1, "right")
    ax.margins(y=0.15)                                                 # no fixed limits: a prediction may lie anywhere
    axes(ax, "head dimension d", "share of the SRAM that S_ij takes", log="xy", ticks=ds)
    return finish(fig,
                  f"At d = {ds[0]} one S_ij would take {without[ds[0]]:.2g} times the SRAM; with min(·, d) it takes "
                  f"{with_min[ds[0]]:.2g}", f"Modelled: the paper's rule, M = {M} elements of 4 bytes.")


@figure
def sram_occupancy(memories):
    """Bytes live in SRAM over the log's events. memories: {"fa2_forward": mem}."""
    fig, axs = panels(1, len(memories), size=(8, 1.1 + 2.1 * len(memories)), sharey=True)
    shares = {}
    for ax, (name, mem) in zip(axs, memories.items(), strict=True):
        live = [event.live for event in mem.log if event.kind != "eager"]
        peak, budget, steps = max(live), mem.sram_bytes, range(1, len(live) + 1)
        shares[name] = peak / budget
        ax.fill_between(steps, live, step="mid", color=color(name), alpha=0.25, lw=0)
        ax.step(steps, live, where="mid", color=color(name), lw=1)
        ceiling(ax, f"budget {bytes_text(budget)}", budget, "right")
        ax.plot(live.index(peak) + 1, peak, "o", color=color(name), clip_on=False)
        note(ax, f"peak {bytes_text(peak)}", live.index(peak) + 1, peak, 6, 8, color=color(name), fontweight="bold")
        heading(ax, label(name), color(name))
        axes(ax, "", "live SRAM", byte="y", ylim=(0, 1.2 * max(budget, peak)), xlim=(0, len(live) + 1))
        ax.grid(False)
    axs[-1].set_xlabel("loads, stores and operations, in order")
    first, *others = [f"{100 * share:.0f} % of the SRAM in {label(name)}" for name, share in shares.items()]
    return finish(fig, ", ".join([f"At the peak, live tiles take {first}",
                                  *(one.replace(" of the SRAM", "") for one in others)]),
                  "Modelled: replayed from the log of flashlab.memory, one program at a time.")
