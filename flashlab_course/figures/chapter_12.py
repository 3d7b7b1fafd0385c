"""The pictures of chapter 12: kernels beside each other, a search over tiles, who works when, what lies where.

results: a dict as flashlab_course.bench writes it.
"""

from itertools import product

from flashlab.ladder import BACKWARD_KERNELS, KERNELS
from flashlab_course.figures.colors import BLUE, FAINT, INK, ORANGE, PALE, READ, color, ramp
from flashlab_course.figures.plots import axes, box, cells, panel, panels, plot, stack, timeline
from flashlab_course.figures.style import bare, figure, finish, note
from flashlab_course.figures.words import label, mask_text, recorded
from flashlab_course.gpu.banks import PIECES, accumulator_lane, column_of_pieces, operand_lane, plain, steps, swizzled
from flashlab_course.gpu.schedule import finish as end_of

PEERS = ("sdpa_flash", "sdpa_cudnn")       # the algorithm in CUDA, and the fastest that PyTorch brings along
RANGES = "the ranges from the 20th to the 80th percentile overlap."


def rung_before(name):
    """The kernel that a rung is an improvement on: the one before it, detours not counted. None for the first."""
    kernels = BACKWARD_KERNELS if name.endswith("backward") else KERNELS
    names = [one.name for one in kernels]
    before = [one.name for one in kernels[:names.index(name)] if not one.detour]
    return before[-1] if before else None


def overlap(a, b):
    """Do the ranges of two rows, 20th to 80th percentile, overlap?"""
    return a["ms_low"] <= b["ms_high"] and b["ms_low"] <= a["ms_high"]


def gains(results, name, against=None):
    """(row, its speed over another's, whether the two are tied) for each size that both were measured at.

    against: the other's name; the rung before it if None
    """
    size = lambda row: tuple(row[key] for key in ("d", "causal", "N", "B", "H", "dtype"))
    ours, theirs = ({size(row): row for row in results["rows"] if row["implementation"] == who and not row["skipped"]}
                    for who in (name, against or rung_before(name)))
    return [(row, theirs[at]["ms"] / row["ms"], overlap(row, theirs[at])) for at, row in ours.items() if at in theirs]


@figure
def gain_of_rung(results, name, against=None, live=False):
    """A kernel's speed as a multiple of another's, against N: a line for each d and mask.

    Hollow: the ranges of the two overlap.

    against: the other's name; the rung before it if None
    """
    against = against or rung_before(name)
    found = gains(results, name, against)
    if not found:
        raise ValueError(f"results hold no size at which {name!r} and {against!r} were both measured")
    fig, ax = panel(8, 3.6)
    smallest, lines = min(row["d"] for row, *_ in found), {}
    for row, gain, tied in found:
        colour = READ if row["d"] == smallest else color(name)
        ax.plot(row["N"], gain, "^" if row["causal"] else "o", color=colour, mfc="white" if tied else colour)
        lines.setdefault((f"d = {row['d']}{', causal' * row['causal']}", colour), []).append((row["N"], gain))
    for (words, colour), points in lines.items():
        plot(ax, words, sorted(points), colour, "-", zorder=1)
    ax.axhline(1, ls="--", color=INK, lw=1.2)
    axes(ax, "N", f"speed, as a multiple of\n{label(against)}", log="x", ticks=sorted({row["N"] for row, *_ in found}))
    ratios = [gain for _, gain, _ in found]
    ahead, behind = (sum(not tied and (gain > 1) == up for _, gain, tied in found) for up in (True, False))
    return finish(fig, f"“{label(name)}”: {min(ratios):.2f} to {max(ratios):.2f} × the speed of “{label(against)}”, "
                       f"ahead at {ahead} of {len(found)} sizes, behind at {behind}",
                  f"{recorded(results, live)} {results['what'].capitalize()}. Hollow: tied, {RANGES}")


@figure
def kernels_beside_peers(results, d=128, N=4096, causal=False):
    """TFLOP/s of each kernel of the ladder at one size as a bar; SDPA flash and cuDNN as lines."""
    speeds = {row["implementation"]: row["tflops"] for row in results["rows"]
              if (row["d"], row["N"], row["causal"]) == (d, N, causal) and not row["skipped"]}
    kernels = [one for one in (BACKWARD_KERNELS if results["what"] == "backward" else KERNELS) if one.name in speeds]
    if not kernels:
        raise ValueError(f"results hold no measured kernel of the ladder for d = {d}, N = {N}, causal = {causal}")
    ours, peers = {one.name: speeds[one.name] for one in kernels}, {name: speeds[name] for name in PEERS
                                                                    if name in speeds}
    fig, ax = panel(9, 1.7 + 0.42 * len(kernels))
    stack(ax, {one.title: [(ours[one.name], one.color)] for one in kernels}, xlabel="TFLOP/s")
    for y, (name, speed) in enumerate(ours.items()):
        gain = f"   {speed / speeds[before]:.2f} ×" if (before := rung_before(name)) in speeds else ""
        note(ax, f"{speed:.0f}{gain}", 0, y, 6, color="white", fontweight="bold")
    for name, speed in peers.items():
        right = name == max(peers, key=peers.get)
        ax.axvline(speed, color=color(name), lw=2)
        note(ax, f"{label(name)} {speed:.0f}", speed, 1, 4 if right else -4, 6, ha="left" if right else "right",
             fontweight="bold", xycoords=ax.get_xaxis_transform(), color=color(name), annotation_clip=False)
    ax.set_xlim(0, 1.12 * max(*peers.values(), *ours.values()))
    first, *_, last = ours.values()
    said = "".join(f", {last / speed:.2f} × {label(name)}" for name, speed in peers.items())
    detour = "".join(f" “{one.title}” is a detour: the next is compared with what was before it." for one in kernels
                     if one.detour)
    return finish(fig, f"{kernels[-1].title} runs at {last:.0f} TFLOP/s: {last / first:.2f} × the first kernel{said}",
                  f"{recorded(results)} {results['what'].capitalize()}, d = {d}, N = {N}, {mask_text(causal)}. In the "
                  f"bars: TFLOP/s, and the speed as a multiple of the rung's before.{detour}")


def search_rows(results, implementation, d, N, causal):
    """Of a recorded search: the rows of one rung's kernel at one size that have a time, the fastest first."""
    rows = [row for row in results["rows"] if row["ms"] and (row["implementation"], row["d"], row["N"], row["causal"])
            == (implementation, d, N, causal)]
    return sorted(rows, key=lambda row: row["ms"])


def tile_panels(choices, draw):
    """A panel for each tile of the choices (B_r, B_c, num_warps, num_stages), in it warps against stages.

    draw: choice -> (colour, text) of its cell. Returns the figure.
    """
    heights, widths, warps, stages = (sorted({choice[k] for choice in choices}) for k in range(4))
    fig, axs = panels(len(widths), len(heights), size=(9.4, 1.4 + 1.3 * len(heights)))
    for ax, tile in zip(axs, product(heights, widths), strict=True):
        drawn = [[draw((*tile, warp, stage)) for stage in stages] for warp in warps]
        cells(ax, [[fill for fill, _ in row] for row in drawn], [[text for _, text in row] for row in drawn], gap=0.04,
              size=8, columns=stages, rows=warps)
        ax.invert_yaxis()
        ax.set_title(f"{tile[0]} × {tile[1]}", fontsize=9)
    fig.supylabel("warps", fontsize=9)
    return fig


@figure
def times_of_tiles(results, choices=None, by_hand=(), implementation="fa2_tuned_forward", d=64, N=4096, causal=False):
    """The time of every choice of tiles that a search tried: a panel for each tile, in it warps and stages.

    choices: tuples (B_r, B_c, num_warps, num_stages), those with a time if None
    by_hand: the one that a launch takes where nothing was searched, if it is known
    """
    rows = search_rows(results, implementation, d, N, causal)
    if not rows:
        raise ValueError(f"results hold no times of {implementation!r} for d = {d}, N = {N}, causal = {causal}")
    times = {tuple(row["tiles"]): row["ms"] for row in rows}
    by_hand, best, worst = tuple(by_hand), rows[0]["ms"], rows[-1]["ms"]
    tint = lambda ms: ramp("#1F3FA8", 0.06)((worst - ms) / (worst - best or 1))[:3]
    fig = tile_panels(choices or times,
                      lambda one: (tint(times[one]), f"{times[one]:.2f}") if one in times else (PALE, ""))
    hand = times.get(by_hand)
    if by_hand:
        heights, widths, warps, stages = (sorted({choice[k] for choice in choices or times}).index(by_hand[k])
                                          for k in range(4))
        panel = fig.axes[heights * len({choice[1] for choice in choices or times}) + widths]
        box(panel, stages + 0.06, warps + 0.06, 0.88, 0.88, "none", edge=ORANGE, lw=2.5)
    against = f"what the hand had picked takes {100 * (hand / best - 1):.1f} % longer than the fastest" if hand else ""
    return finish(fig, f"Of {len(times)} choices the slowest takes {worst / best:.2f} times as long as the "
                  f"fastest{'; ' * bool(hand)}{against}",
                  f"{recorded(results)} {label(implementation)}, d = {d}, N = {N}, {mask_text(causal)}; in the cells: "
                  "ms. Each panel is a tile B_r × B_c, across: stages of the pipeline. "
                  f"{'Framed: picked by hand. ' * bool(by_hand)}Empty: ruled out, or not reached.")


@figure
def left_of_a_grid(choices, kept, words):
    """A grid of tile sizes, and what arithmetic has left of it.

    choices: tuples (B_r, B_c, num_warps, num_stages); kept: some of them
    """
    kept = set(kept)
    fig = tile_panels(choices, lambda one: (color("fa2_tuned_forward") if one in kept else "#EFEFEF", ""))
    return finish(fig, f"{len(kept)} of {len(choices)} choices are worth compiling",
                  f"Modelled: {words} Each panel is a tile B_r × B_c, across: stages of the pipeline. Grey: ruled out.")


@figure
def timelines(runs, unit, words):
    """Who works when: a panel for each name, a row for each unit, a bar for each Span of flashlab_course.gpu.schedule.

    unit: the one whose idle time the title is about, by the beginning of its name; words: what is modelled
    """
    heights = [0.6 + 0.4 * len({span.unit for span in spans}) for spans in runs.values()]
    fig, axs = panels(1, len(runs), size=(9.4, 1.4 + sum(heights)), sharex=True, height_ratios=heights)
    for ax, (name, spans) in zip(axs, runs.items(), strict=True):
        timeline(ax, spans)
        ax.set(xlim=(0, 1.02 * max(map(end_of, runs.values()))), title=f"{name}: {end_of(spans)} steps of time")
    axs[-1].set_xlabel("time, in steps of no particular length")
    parts = [f"{name}: {100 * share_of(spans, unit):.0f} %" for name, spans in runs.items()]
    return finish(fig, f"The time in which “{unit}” works. {'; '.join(parts)}",
                  f"Modelled: {words} The number in a bar is the iteration or tile. Dashed: the end.")


def share_of(spans, unit):
    """The share of the whole time in which at least one unit works whose name begins so."""
    covered = {t for span in spans if span.unit.startswith(unit) for t in range(span.start, span.end)}
    return len(covered) / max(1, end_of(spans))


@figure
def pieces_in_banks(column=2):
    """Eight rows of a tile in shared memory, plain and swizzled, and the pieces that one instruction reads at once."""
    fig, axs = panels(2, size=(9.4, 3.5))
    needed = []
    for ax, (name, place) in zip(axs, {"row after row": plain, "swizzled": swizzled}.items(), strict=True):
        lies = [sorted(range(PIECES), key=lambda piece: place(row, piece)) for row in range(PIECES)]
        needed.append(steps(column_of_pieces(column, place)))
        cells(ax, [[ORANGE if piece == column else "#F0F0F0" for piece in row] for row in lies], lies, xlabel="banks",
              ylabel="row", columns=[f"{4 * x}–{4 * x + 3}" for x in range(PIECES)], rows=range(PIECES), size=7,
              title=f"{name}: {needed[-1]} step{'s' * (needed[-1] > 1)}")
    return finish(fig, f"Piece {column} of eight rows: {needed[0]} steps where the rows lie as they are, {needed[1]} "
                       "where they are swizzled",
                  "Modelled: rows of 64 numbers of 16 bits, in pieces of 16 bytes; 32 banks of 4 bytes. The number is "
                  "the piece's own.")


@figure
def lanes_of_products(rows=16, columns=16):
    """Which lane of a warp holds which element: of a product's result, and of the next product's left operand."""
    fig, axs = panels(2, size=(9.4, 4.3))
    lanes = [[[lane(row, column) for column in range(columns)] for row in range(rows)]
             for lane in (accumulator_lane, operand_lane)]
    tints = ramp(BLUE, lightest=0.15)
    for ax, held, name in zip(axs, lanes, ("S, the result of the first product", "P, the left operand of the second"),
                              strict=True):
        for y, row in enumerate(held):
            for x in range(0, columns, 2):                               # a lane holds two neighbours
                box(ax, x, y, 2, 1, ORANGE if row[x] == 5 else tints(row[x] / 31)[:3], row[x], lw=0, size=7)
        ax.set(title=name, xlabel="column", ylabel="row", xticks=[], yticks=[], xlim=(0, columns), ylim=(rows, 0))
        bare(ax)
    assert lanes[0] == lanes[1]
    return finish(fig, "Every lane holds the same elements of S and of P: nothing has to move",
                  "Definition: PTX, mma.m16n8 and m16k16 with 16-bit operands; wgmma's are the same for each of its "
                  "warps. Orange: lane 5.")


@figure
def instructions_of_rungs(counts, per, words):
    """Instructions in compiled kernels, a panel for each kind.

    counts: name -> {instruction: how many}; per: what they were counted in
    """
    kinds = list(next(iter(counts.values())))
    fig, axs = panels(len(kinds), size=(9.4, 1.3 + 0.36 * len(counts)), sharey=True)
    for ax, kind in zip(axs, kinds, strict=True):
        found = {name: of[kind] for name, of in counts.items()}
        stack(ax, {name: [(n, BLUE if n else FAINT)] for name, n in found.items()}, [f"{n:,}" for n in found.values()],
              room=1.5)
        ax.set(xlim=(0, 1.5 * max(1, *found.values())), xticks=[], title=kind)
        bare(ax)
    first, last = list(counts)[0], list(counts)[-1]
    changed = [f"{kind} {counts[first][kind]:,} → {counts[last][kind]:,}" for kind in kinds
               if counts[first][kind] != counts[last][kind]]
    return finish(fig, f"{first} to {last}: {', '.join(changed[:3]) or 'the same instructions'}",
                  f"Measured here: compiled, not run; counted in the {per}. {words}")
