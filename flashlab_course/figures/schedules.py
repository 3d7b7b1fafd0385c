"""The pictures of chapter 12: who works when, what lies in which bank, which lane holds what, what a search has left."""

import re

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from flashlab_course.figures.style import FAINT, INK, bare, color, figure, finish, ink_on, ramp
from flashlab_course.gpu.banks import PIECES, accumulator_lane, column_of_pieces, operand_lane, plain, steps, swizzled
from flashlab_course.gpu.schedule import finish as end_of

LANE, WANTED = "#0072B2", "#D55E00"
KINDS = {"load": "#8FA3B8", "copy": "#8FA3B8", "multiply": "#0072B2", "tensor": "#0072B2", "compute": "#0072B2",
         "exponentials": "#E0A100", "softmax": "#E0A100", "store": "#5E8C1F"}      # by the first word of a unit's name


@figure
def timelines(panels, unit, words):
    """Who works when: a panel for each name, a row for each unit, a bar for each Span of flashlab_course.gpu.schedule.

    unit: the one whose idle time the title is about, by the beginning of its name; words: what is modelled
    """
    units = {name: sorted({span.unit for span in spans}, key=_place) for name, spans in panels.items()}
    heights = [0.6 + 0.4 * len(rows) for rows in units.values()]
    fig, axes = plt.subplots(len(panels), 1, figsize=(9.4, 1.4 + sum(heights)), squeeze=False, sharex=True, height_ratios=heights)
    last = max(end_of(spans) for spans in panels.values())
    for ax, (name, spans) in zip(axes[:, 0], panels.items(), strict=True):
        for span in spans:
            shade = to_rgb(KINDS.get(_kind(span.unit), "#777777"))
            tint = tuple(1 - (1 - part) * (1 if int(re.sub(r"\D", "", span.name) or 0) % 2 else 0.75) for part in shade)
            y = units[name].index(span.unit)
            ax.add_patch(Rectangle((span.start, y - 0.4), span.end - span.start, 0.8, fc=tint, ec="white", lw=1))
            ax.text((span.start + span.end) / 2, y, span.name, ha="center", va="center", fontsize=8, color=ink_on(tint))
        ax.axvline(end_of(spans), color=INK, ls="--", lw=1)
        ax.set(xlim=(0, 1.02 * last), ylim=(len(units[name]) - 0.4, -0.6))
        ax.set_title(f"{name}: {end_of(spans)} steps of time")
        ax.set_yticks(range(len(units[name])), units[name])
        bare(ax)
    axes[-1, 0].set_xlabel("time, in steps of no particular length")
    parts = [f"{name}: {100 * share_of(spans, unit):.0f} %" for name, spans in panels.items()]
    return finish(fig, f"The time in which “{unit}” works. {'; '.join(parts)}",
                  f"Modelled: {words} The number in a bar is the iteration or tile. Dashed: the end.")


def _kind(unit):
    return unit.replace(",", "").split()[0]


def _place(unit):
    """What loads above what computes above what stores."""
    return list(KINDS).index(_kind(unit)) if _kind(unit) in KINDS else len(KINDS), unit


def share_of(spans, unit):
    """The share of the whole time in which at least one unit works whose name begins so."""
    covered = {t for span in spans if span.unit.startswith(unit) for t in range(span.start, span.end)}
    return len(covered) / max(1, end_of(spans))


@figure
def pieces_in_banks(column=2):
    """Eight rows of a tile in shared memory, plain and swizzled: where the pieces lie that one matrix instruction reads at once."""
    fig, axes = plt.subplots(1, 2, figsize=(9.4, 3.5))
    needed = []
    for ax, (name, place) in zip(axes, {"row after row": plain, "swizzled": swizzled}.items(), strict=True):
        for row in range(PIECES):
            for piece in range(PIECES):
                wanted = piece == column
                x = place(row, piece)
                ax.add_patch(Rectangle((x, row), 1, 1, fc=WANTED if wanted else "#F0F0F0", ec="white", lw=2))
                ax.text(x + 0.5, row + 0.5, piece, ha="center", va="center", fontsize=9, color="white" if wanted else "#777777")
        needed.append(steps(column_of_pieces(column, place)))
        ax.set(title=f"{name}: {needed[-1]} step{'s' if needed[-1] > 1 else ''}", xlim=(0, PIECES), ylim=(PIECES, 0))
        ax.set(xlabel="banks", ylabel="row")
        ax.set_xticks([x + 0.5 for x in range(PIECES)], [f"{4 * x}–{4 * x + 3}" for x in range(PIECES)], fontsize=7)
        ax.set_yticks([y + 0.5 for y in range(PIECES)], range(PIECES))
        bare(ax)
    title = f"Piece {column} of eight rows: {needed[0]} steps where the rows lie as they are, {needed[1]} where they are swizzled"
    return finish(fig, title, "Modelled: rows of 64 numbers of 16 bits, in pieces of 16 bytes; 32 banks of 4 bytes. The number "
                              "is the piece's own.")


@figure
def lanes_of_products(warp_rows=16, columns=16):
    """Which lane of a warp holds which element: of a product's result, and of the next product's left operand."""
    fig, axes = plt.subplots(1, 2, figsize=(9.4, 4.3))
    maps = {"S, the result of the first product": accumulator_lane, "P, the left operand of the second": operand_lane}
    shades, held = ramp(LANE, lightest=0.15), []
    for ax, (name, lane) in zip(axes, maps.items(), strict=True):
        lanes = np.array([[lane(row, column) for column in range(columns)] for row in range(warp_rows)])
        held.append(lanes)
        ax.imshow(shades(lanes / 31), extent=(0, columns, warp_rows, 0), aspect="auto", interpolation="nearest")
        for row, column in np.argwhere(lanes == 5):
            ax.add_patch(Rectangle((column, row), 1, 1, fc=WANTED, lw=0))
        for row in range(warp_rows):
            for column in range(0, columns, 2):
                ax.text(column + 1, row + 0.5, lanes[row, column], ha="center", va="center", fontsize=7,
                        color="white" if lanes[row, column] in (5, *range(14, 32)) else INK)
        ax.set(title=name, xlabel="column", ylabel="row", xticks=[], yticks=[])
        bare(ax)
    same = bool((held[0] == held[1]).all())
    title = "Every lane holds the same elements of S and of P: nothing has to move" if same else "S and P lie in different lanes"
    return finish(fig, title, "Definition: PTX, mma.m16n8 and m16k16 with 16-bit operands; wgmma's are the same for each of its "
                              "warps. Orange: lane 5.")


@figure
def left_of_a_grid(choices, kept, words):
    """A grid of tile sizes, and what arithmetic has left of it.

    choices: tuples (B_r, B_c, num_warps, num_stages); kept: some of them
    """
    rows, columns = (sorted({choice[k] for choice in choices}) for k in (0, 1))
    warps, stages = (sorted({choice[k] for choice in choices}) for k in (2, 3))
    fig, axes = plt.subplots(len(rows), len(columns), figsize=(9.4, 1.2 + 1.15 * len(rows)), squeeze=False)
    for ax, (B_r, B_c) in zip(axes.flat, ((r, c) for r in rows for c in columns), strict=True):
        for x, stage in enumerate(stages):
            for y, warp in enumerate(warps):
                there = (B_r, B_c, warp, stage) in set(kept)
                ax.add_patch(Rectangle((x + 0.05, y + 0.05), 0.9, 0.9, fc=color("fa2_tuned_forward") if there else "#EFEFEF", lw=0))
        ax.set(xlim=(0, len(stages)), ylim=(0, len(warps)))
        ax.set_title(f"{B_r} × {B_c}", fontsize=9)
        ax.set_xticks([x + 0.5 for x in range(len(stages))], stages, fontsize=7)
        ax.set_yticks([y + 0.5 for y in range(len(warps))], warps, fontsize=7)
        bare(ax)
    fig.supylabel("warps", fontsize=9)
    return finish(fig, f"{len(set(kept))} of {len(choices)} choices are worth compiling",
                  f"Modelled: {words} Each panel is a tile B_r × B_c, across: stages of the pipeline. Grey: ruled out.")


@figure
def instructions_of_rungs(counts, per, words):
    """Instructions in compiled kernels, a panel for each kind.

    counts: name -> {instruction: how many}; per: what they were counted in
    """
    kinds = list(next(iter(counts.values())))
    fig, axes = plt.subplots(1, len(kinds), figsize=(9.4, 1.3 + 0.36 * len(counts)), sharey=True, squeeze=False)
    for ax, kind in zip(axes[0], kinds, strict=True):
        most = max(max(found[kind] for found in counts.values()), 1)
        for y, found in enumerate(counts.values()):
            ax.barh(y, found[kind], 0.7, color=LANE if found[kind] else FAINT)
            ax.annotate(f"{found[kind]:,}", (found[kind], y), (3, 0), textcoords="offset points", va="center", fontsize=8)
        ax.set(xlim=(0, 1.5 * most), ylim=(len(counts) - 0.4, -0.6), xticks=[], title=kind)
        bare(ax)
    axes[0, 0].set_yticks(range(len(counts)), list(counts))
    first, last = list(counts)[0], list(counts)[-1]
    changed = [f"{kind} {counts[first][kind]:,} → {counts[last][kind]:,}" for kind in kinds
               if counts[first][kind] != counts[last][kind]]
    return finish(fig, f"{first} to {last}: {', '.join(changed[:3]) or 'the same instructions'}",
                  f"Measured here: compiled, not run; counted in the {per}. {words}")
