"""Pictures of which thread holds which element of a tile, as the compiler decided."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from flashlab_course.figures.style import INK, READ, bare, figure, finish, ramp

LANES, OTHERS = "#0072B2", ("#EFEFEF", "#DCDCDC", "#C9C9C9", "#B6B6B6")
FROM = "Measured here: compiled, not run."


@figure
def elements_of_threads(layout, columns=128):
    """A block of elements in rows of `columns`: which of the first warp's lanes holds each. layout: of a one-dimensional block."""
    warp, lane = layout.holders()
    rows = -(-layout.shape[0] // columns)
    fig, ax = plt.subplots(figsize=(9.6, 1.2 + 0.3 * rows))
    colours = np.ones((rows * columns, 3))
    for element, (w, thread) in enumerate(zip(warp, lane, strict=True)):
        tint = ramp(LANES, 0.15)(0.45 * (thread % 2)) if w == 0 else OTHERS[w % 4]
        colours[element] = to_rgb(LANES if w == thread == 0 else tint)
    ax.imshow(colours.reshape(rows, columns, 3), extent=(0, columns, rows, 0), aspect="auto", interpolation="nearest")
    ax.hlines(range(1, rows), 0, columns, color="white", lw=4)
    held = np.flatnonzero((warp == 0) & (lane == 0))
    runs = np.split(held, np.flatnonzero(np.diff(held) > 1) + 1)
    for run in runs:
        ax.annotate("thread 0", (run[0] % columns + len(run), run[0] // columns + 0.5), (3, 0), textcoords="offset points",
                    va="center", fontsize=8, fontweight="bold", color=INK)
    ax.set(xlim=(0, columns), ylim=(rows, 0), xlabel="element of the row", ylabel="row starts\nat element")
    ax.set_yticks([n + 0.5 for n in range(rows)], [n * columns for n in range(rows)])
    ax.set_xticks([0.5, columns - 0.5], [0, columns - 1])
    bare(ax)
    return finish(fig, f"Thread 0 takes {len(held)} of the {layout.shape[0]} elements, in {len(runs)} pieces of {len(runs[0])}",
                  f"{FROM} Blue: warp 0, every second lane darker. Greys: the other warps.")


@figure
def lanes_of_tiles(layouts):
    """The first warp's lanes on a tile. layouts: name -> flashlab_course.compiler.layouts.Layout of a two-dimensional tile."""
    fig, axes = plt.subplots(1, len(layouts), figsize=(9.6, 2.9), squeeze=False)
    shades, along = ramp(LANES, lightest=0.2), {}
    for ax, (name, layout) in zip(axes[0], layouts.items(), strict=True):
        warp, lane = layout.holders()
        colours = np.where((warp == 0)[..., None], shades(lane / 31)[..., :3], to_rgb("#F0F0F0"))
        ax.imshow(colours, extent=(0, layout.shape[1], layout.shape[0], 0), interpolation="nearest")
        along[name] = ("down a column", "along a row")[layout.order[0]]
        ax.set(title=f"{layout.kind} {name}: {along[name]}")
        ax.set_xticks([])
        ax.set_yticks([])
        bare(ax)
    return finish(fig, "Neighbouring lanes go " + ", ".join(f"{way} of {name}" for name, way in along.items()),
                  f"{FROM} Blue: warp 0, lane 0 light to lane 31 dark. Grey: the other warps.")


@figure
def branches_in_code(counts):
    """Instructions left in compiled kernels. counts: kernel and flag -> {instruction: how many}."""
    fig, ax = plt.subplots(figsize=(8, 0.9 + 0.5 * len(counts)))
    words = list(next(iter(counts.values())))
    for y, found in enumerate(counts.values()):
        for x, word in enumerate(words):
            ax.add_patch(Rectangle((x + 0.05, y + 0.1), 0.9, 0.8, fc=READ if found[word] else "#F3F3F3", lw=0))
            ax.text(x + 0.5, y + 0.5, found[word], ha="center", va="center", color="white" if found[word] else "#999999")
    ax.set(xlim=(0, len(words)), ylim=(len(counts), 0))
    ax.set_xticks([x + 0.5 for x in range(len(words))], words)
    ax.set_yticks([y + 0.5 for y in range(len(counts))], list(counts))
    bare(ax)
    with_branch = [name for name, found in counts.items() if found.get("bra")]
    return finish(fig, f"{len(with_branch)} of {len(counts)} compiled kernels hold a branch",
                  "Measured here: compiled, not run; counted in the PTX.")
