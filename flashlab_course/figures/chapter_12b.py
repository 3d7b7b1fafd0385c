"""The pictures of chapter 12b: kernels against one of them at every size, and who holds what of a product."""

from itertools import pairwise

import numpy as np
from matplotlib.patches import Rectangle

from flashlab_course.figures.chapter_12 import gains, share_of, standing
from flashlab_course.figures.colors import BLUE, GREEN, ORANGE
from flashlab_course.figures.plots import box, matrices, panels
from flashlab_course.figures.style import bare, figure, finish
from flashlab_course.figures.words import label, recorded

DARKEST = 0.5                          # a gain or a loss that is drawn darkest, the same in all tables
WORK = {"copy": GREEN, "product": BLUE, "softmax": ORANGE, "wait": "#DDDDDD"}


@figure
def speeds_beside(results, names, against):
    """A row for each kernel, a column for each size: its speed as a multiple of another kernel's.

    names: name -> the row's words, or None for the ladder's; against: the other's name
    """
    columns = sorted({(row["d"], row["causal"], row["N"]) for row in results["rows"]})
    signs, texts = np.full((len(names), len(columns)), np.nan), np.full((len(names), len(columns)), "", dtype="<U5")
    means = {}
    for n, (name, words) in enumerate(names.items()):
        found = gains(results, name, against)
        for row, gain, tied in found:
            place = n, columns.index((row["d"], row["causal"], row["N"]))
            signs[place], texts[place] = 0 if tied else gain - 1, f"{gain:.2f}"
        means[words or label(name)] = np.exp(np.mean([np.log(gain) for _, gain, _ in found]))
    order = sorted(means, key=means.get)
    low, high = (f"{means[row]:.2f} × (“{row}”)" for row in (order[0], order[-1]))
    other = f"“{label(against)}”"
    title = (f"Against {other} on average: from {low} to {high}" if len(names) > 1 else
             f"“{order[0]}” against {other}: {standing(found)}")
    return matrices({"": (signs, texts)}, title,
                    f"{recorded(results)} {results['what'].capitalize()}, speed as a multiple of that of {other}"
                    f"{'; averages are geometric, of the sizes measured' * (len(names) > 1)}.\n"
                    f"Blue: faster, orange: slower, darkest from {DARKEST:.0%} on; pale: ranges (20th to 80th "
                    "percentile) overlap, white: not measured.",
                    rows=means, columns=[f"d {d}\n{'causal' if causal else 'full'}\n{N}" for d, causal, N in columns],
                    top=DARKEST)


@figure
def holders(columns=16, rows=16):
    """Which thread of a warp holds each number of a wgmma accumulator, the rows and columns of its first corner."""
    row, column = np.indices((rows, columns))
    lanes = row % 8 * 4 + column % 8 // 2
    own = (lanes == 0).sum()
    return matrices({"": (np.where(lanes, 16 - lanes / 3, 32), lanes.astype(str))},
                    f"Thread 0 of a warp holds {own} of these {rows * columns} numbers, in two rows",
                    "Definition: PTX ISA, wgmma, the accumulator D. In the cells: the thread.", "column", "row",
                    rows=range(rows), columns=range(columns))


@figure
def warps_at_work(runs, words):
    """What warps do in runs of gpu.warps: a panel for each name, a row for each program, a lane for each of its units.

    words: what is modelled
    """
    rows = {name: {one.name: lanes_of(machine, one.name) for one in machine.warps} for name, machine in runs.items()}
    heights = [1 + sum(map(len, one.values())) for one in rows.values()]
    last = max(span.end for machine in runs.values() for span in machine.spans)
    fig, axs = panels(1, len(runs), size=(9.4, 1.6 + 0.22 * sum(heights)), sharex=True, height_ratios=heights)
    for ax, (name, programs) in zip(axs, rows.items(), strict=True):
        top, middles = 0, []
        for lanes in programs.values():
            for n, lane in enumerate(lanes):
                for kind, text, start, end in lane:
                    box(ax, start, top + n, end - start, 0.9, WORK[kind], text, size=6.5, lw=kind != "wait")
            middles.append(top + len(lanes) / 2)
            top += len(lanes) + 0.4
        ax.set(title=name, ylim=(top - 0.3, -0.1), xlim=(0, last))
        ax.set_yticks(middles, programs)
        bare(ax)
    axs[-1].set_xlabel("time, in cycles of the model")
    shown = {kind: Rectangle((0, 0), 1, 1, fc=WORK[kind]) for programs in rows.values() for lanes in programs.values()
             for lane in lanes for kind, *_ in lane}
    axs[0].legend(shown.values(), shown, loc="lower right", ncols=4,
                  bbox_to_anchor=(1, 1), frameon=False, fontsize=8.5, handlelength=1, borderaxespad=0)
    shares = [f"{100 * share_of(machine.spans, 'tensor cores'):.0f} % ({name})" for name, machine in runs.items()]
    return finish(fig, f"The time in which tensor cores work: {', '.join(shares)}",
                  f"Modelled: {words} Upper lanes: copies, products and the tiles they read; lowest lane: the threads.")


def lanes_of(machine, name):
    """Lanes of (kind, text, start, end): the copies that a program has asked for, its products, its threads."""
    askers = (who for who, request in machine.requests if request.kind == "fetch")
    copies = [("copy", f"{span.unit[7:].partition('_')[0]} {span.name}", span.start, span.end)
              for span in machine.spans if span.unit.startswith("TMA") and next(askers) == name]
    products, threads = ([(kind, span.name, span.start, span.end) for span in machine.spans
                          if span.unit == f"{unit}, {name}"]
                         for kind, unit in (("product", "tensor cores"), ("softmax", "softmax")))
    for now, then in pairwise(machine.moments):
        if now.waits[name] not in ("", "its exponentials") and now.time < then.time:
            threads.append(("wait", "", now.time, then.time))
    lanes = []
    for kind in (copies, products, threads):
        own = []
        for one in sorted(kind, key=lambda one: one[2]):
            free = [lane for lane in own if lane[-1][3] <= one[2]] or [own.append([]) or own[-1]]
            free[0].append(one)
        lanes += own
    return lanes
