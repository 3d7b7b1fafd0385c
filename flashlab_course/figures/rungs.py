"""The pictures of chapter 12's measurements: the kernels of the ladder beside each other, and a search over tiles.

results: as in flashlab_course.figures.benchmarks.
"""

from itertools import product

import matplotlib.pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from flashlab.ladder import BACKWARD_KERNELS, KERNELS
from flashlab_course.figures.benchmarks import recorded
from flashlab_course.figures.reasons import overlap
from flashlab_course.figures.style import INK, READ, bare, color, figure, finish, ink_on, label, log_axes, ramp

PEERS = ("sdpa_flash", "sdpa_cudnn")       # the algorithm in CUDA, and the fastest that PyTorch brings along
TILE = "#1F3FA8"


def rung_before(name):
    """The kernel that a rung is an improvement on: the one before it, detours not counted. None for the first."""
    kernels = BACKWARD_KERNELS if name.endswith("backward") else KERNELS
    before = [one.name for one in kernels[:[one.name for one in kernels].index(name)] if not one.detour]
    return before[-1] if before else None


def gains(results, name, against=None):
    """(row, its speed over another's at the same size, whether the two are tied) for each size that both were measured at.

    against: the other's name; the rung before it if None
    """
    against = against or rung_before(name)
    at = {(row["implementation"], *_size(row)): row for row in results["rows"] if not row["skipped"]}
    pairs = [(row, other) for (who, *size), row in at.items() if who == name and (other := at.get((against, *size)))]
    return [(row, other["ms"] / row["ms"], overlap(row, other)) for row, other in pairs]


def _size(row):
    return tuple(row[key] for key in ("d", "causal", "N", "B", "H", "dtype"))


@figure
def gain_of_rung(results, name, against=None, live=False):
    """A kernel's speed as a multiple of another's, against N: a line for each d and mask. Hollow: the ranges of the two overlap.

    against: the other's name; the rung before it if None
    """
    against = against or rung_before(name)
    found = gains(results, name, against)
    if not found:
        raise ValueError(f"results hold no size at which {name!r} and {against!r} were both measured")
    fig, ax = plt.subplots(figsize=(8, 3.6))
    lines, ends = {}, []
    for row, gain, tied in found:
        lines.setdefault((row["d"], row["causal"]), []).append((row["N"], gain, tied))
    smallest = min(d for d, _ in lines)
    for (d, causal), points in lines.items():
        colour, shape = READ if d == smallest else color(name), "^" if causal else "o"
        points.sort()
        ax.plot([N for N, *_ in points], [gain for _, gain, _ in points], color=colour)
        for N, gain, tied in points:
            ax.plot(N, gain, shape, color=colour, mfc="white" if tied else colour)
        ends.append((*points[-1][:2], f"d = {d}{', causal' if causal else ''}", colour))
    ax.axhline(1, ls="--", color=INK, lw=1.2)
    log_axes(ax, sorted({row["N"] for row, *_ in found}), "N", f"speed, as a multiple of\n{label(against)}")
    ax.set(yscale="linear")
    ratios = [gain for _, gain, _ in found]
    ahead, behind = (sum(not tied and (gain > 1) == up for _, gain, tied in found) for up in (True, False))
    return finish(fig, f"“{label(name)}”: {min(ratios):.2f} to {max(ratios):.2f} × the speed of “{label(against)}”, "
                       f"ahead at {ahead} of {len(found)} sizes, behind at {behind}",
                  f"{recorded(results, live)} {results['what'].capitalize()}. Hollow: tied, the ranges from the 20th to the 80th "
                  "percentile overlap.", ends={ax: ends})


@figure
def kernels_beside_peers(results, d=128, N=4096, causal=False):
    """TFLOP/s of each kernel of the ladder at one size as a bar; SDPA flash and cuDNN as lines."""
    speeds = {row["implementation"]: row["tflops"] for row in results["rows"]
              if (row["d"], row["N"], row["causal"]) == (d, N, causal) and not row["skipped"]}
    kernels = [one for one in (BACKWARD_KERNELS if results["what"] == "backward" else KERNELS) if one.name in speeds]
    if not kernels:
        raise ValueError(f"results hold no measured kernel of the ladder for d = {d}, N = {N}, causal = {causal}")
    fig, ax = plt.subplots(figsize=(9, 1.7 + 0.42 * len(kernels)))
    for y, one in enumerate(kernels):
        ax.barh(y, speeds[one.name], 0.7, color=one.color)
        before = speeds.get(rung_before(one.name))
        text = f"{speeds[one.name]:.0f}" + (f"   {speeds[one.name] / before:.2f} ×" if before else "")
        ax.annotate(text, (0, y), (6, 0), textcoords="offset points", va="center", fontsize=9, color="white", fontweight="bold")
    peers = {name: speeds[name] for name in PEERS if name in speeds}
    for name, speed in peers.items():
        side = "left" if name == max(peers, key=peers.get) else "right"
        ax.axvline(speed, color=color(name), lw=2)
        ax.annotate(f"{label(name)} {speed:.0f}", (speed, 1), (4 if side == "left" else -4, 2), ha=side, fontsize=9,
                    xycoords=("data", "axes fraction"), textcoords="offset points", color=color(name), fontweight="bold",
                    annotation_clip=False)
    ax.set(ylim=(len(kernels) - 0.4, -0.6), xlim=(0, 1.12 * max(speeds[name] for name in (*peers, *(one.name for one in kernels)))),
           xlabel="TFLOP/s")
    ax.set_yticks(range(len(kernels)), [one.title for one in kernels])
    ax.tick_params(axis="y", length=0)
    first, last = kernels[0], kernels[-1]
    said = [f"{speeds[last.name] / speed:.2f} × {label(name)}" for name, speed in peers.items()]
    said.insert(0, f"{speeds[last.name] / speeds[first.name]:.2f} × the first kernel")
    detour = "".join(f" “{one.title}” is a detour: the next is compared with what was before it." for one in kernels if one.detour)
    return finish(fig, f"{last.title} runs at {speeds[last.name]:.0f} TFLOP/s: {', '.join(said)}",
                  f"{recorded(results)} {results['what'].capitalize()}, d = {d}, N = {N}, {'causal' if causal else 'no mask'}. "
                  f"In the bars: TFLOP/s, and the speed as a multiple of the rung's before.{detour}")


def search_rows(results, implementation, d, N, causal):
    """Of a recorded search: the rows of one rung's kernel at one size that have a time, the fastest first."""
    rows = [row for row in results["rows"] if row["ms"] and (row["implementation"], row["d"], row["N"], row["causal"])
            == (implementation, d, N, causal)]
    return sorted(rows, key=lambda row: row["ms"])


@figure
def times_of_tiles(results, grid=None, by_hand=(), implementation="fa2_tuned_forward", d=64, N=4096, causal=False):
    """The time of every choice of tiles that a search tried: a panel for each tile, in it warps and stages.

    grid: all choices, tuples (B_r, B_c, num_warps, num_stages), those with a time if None
    by_hand: the one that a launch takes where nothing was searched, if it is known
    """
    rows = search_rows(results, implementation, d, N, causal)
    if not rows:
        raise ValueError(f"results hold no times of {implementation!r} for d = {d}, N = {N}, causal = {causal}")
    times = {tuple(row["tiles"]): row["ms"] for row in rows}
    best, worst = rows[0]["ms"], rows[-1]["ms"]
    heights, widths, warps, stages = (sorted({choice[k] for choice in grid or times}) for k in range(4))
    fig, axes = plt.subplots(len(heights), len(widths), figsize=(9.4, 1.4 + 1.3 * len(heights)), squeeze=False)
    shades = ramp(TILE, lightest=0.06)
    for ax, (B_r, B_c) in zip(axes.flat, product(heights, widths), strict=True):
        cells = {(warp, stage): times.get((B_r, B_c, warp, stage)) for warp in warps for stage in stages}
        _tile_panel(ax, warps, stages, cells, lambda ms: shades((worst - ms) / (worst - best or 1)))
        if tuple(by_hand[:2]) == (B_r, B_c):
            place = stages.index(by_hand[3]) + 0.06, warps.index(by_hand[2]) + 0.06
            ax.add_patch(Rectangle(place, 0.88, 0.88, fill=False, ec="#D55E00", lw=2.5))
        ax.set_title(f"{B_r} × {B_c}", fontsize=9)
    fig.supylabel("warps", fontsize=9)
    hand = times.get(tuple(by_hand))
    against = f"; what the hand had picked takes {100 * (hand / best - 1):.1f} % longer than the fastest" if hand else ""
    framed = "Framed: picked by hand. " if by_hand else ""
    return finish(fig, f"Of {len(times)} choices the slowest takes {worst / best:.2f} times as long as the fastest{against}",
                  f"{recorded(results)} {label(implementation)}, d = {d}, N = {N}, {'causal' if causal else 'no mask'}; in the "
                  f"cells: ms. Each panel is a tile B_r × B_c, across: stages of the pipeline. {framed}Empty: ruled out, or not "
                  "reached.")


def _tile_panel(ax, warps, stages, cells, shade):
    """Warps against stages of one tile. cells: (warps, stages) -> ms or None."""
    for (warp, stage), ms in cells.items():
        x, y, fill = stages.index(stage), warps.index(warp), shade(ms) if ms else to_rgb("#F3F3F3")
        ax.add_patch(Rectangle((x + 0.04, y + 0.04), 0.92, 0.92, fc=fill, lw=0))
        if ms:
            ax.text(x + 0.5, y + 0.5, f"{ms:.2f}", ha="center", va="center", fontsize=8, color=ink_on(fill))
    ax.set(xlim=(0, len(stages)), ylim=(0, len(warps)))
    ax.set_xticks([x + 0.5 for x in range(len(stages))], stages, fontsize=7)
    ax.set_yticks([y + 0.5 for y in range(len(warps))], warps, fontsize=7)
    bare(ax)
