"""The pictures of chapter 07: what the rungs move, and what a GPU's counters say of it.

points: as flashlab_course.sweeps makes them.
"""

import torch

from flashlab.ladder import BACKWARD_RUNGS, RUNGS, find
from flashlab_course.figures.colors import color
from flashlab_course.figures.plots import axes, curves, panels
from flashlab_course.figures.style import figure, finish
from flashlab_course.figures.words import by, bytes_text, every, group, label, mask_text, ratio_text, recorded, series

NAIVE = RUNGS[0].name


@figure
def traffic_against(points):
    """HBM bytes of each rung against N: marks counted under Memory, dashed lines the closed forms."""
    counted, formulas = (series(points, "N", of_bytes, of="rung") for of_bytes in ("measured", "formula"))
    last = min(max(line) for line in counted.values() if line)           # where everything fits
    moved = ", ".join(f"{label(name)} {bytes_text(line[last])}" for name, line in counted.items() if last in line)
    unfit = "" if all(p["measured"] for p in points) else " Without a mark: the tiles do not fit the SRAM."
    return curves(counted, f"HBM bytes at N = {last}: {moved}",
                  "Modelled: marks counted by flashlab.memory, dashed the formulas. "
                  f"float32, d = {every(points, 'd')}, SRAM {every(points, 'sram_bytes', bytes_text)}"
                  f"{', causal' * points[0]['causal']}.{unfit}",
                  "N (queries = keys, one head)", "HBM traffic (bytes)", dashed=formulas, log="xy", byte="y",
                  ticks=sorted({point["N"] for point in points}))


def kernels_measured(results):
    """The rungs that run on a GPU and were measured, in the ladder's order; all that run on one, where none was."""
    there = {row["implementation"] for row in results["rows"] if not row.get("skipped")}
    kernels = [r for r in (BACKWARD_RUNGS if results.get("what") == "backward" else RUNGS) if r.heads]
    return [r for r in kernels if r.name in there] or kernels


@figure
def model_vs_counters(results):
    """Modelled HBM traffic against a GPU's hardware counters, one panel an implementation."""
    rows = [row | {"dram": row["dram_read"] + row["dram_written"]} for row in results["rows"] if not row.get("skipped")]
    found, kernel = group(rows, "implementation"), kernels_measured(results)[-1]
    if not found:
        raise ValueError("results hold no row with counters; 'skipped' in a row says why")
    fig, axs = panels(len(found), size=(4.8 * len(found), 4.2), sharey=True)
    for ax, (name, part) in zip(axs, found.items(), strict=True):
        model = find(name) if name == NAIVE else kernel
        lines = {"model": [(row["N"], modelled_traffic(model, row)) for row in part], "DRAM": by(part, "N", "dram"),
                 "L2": by(part, "N", "l2_bytes")}
        for (words, points), style in zip(lines.items(), ("--", "o-", "s:"), strict=True):
            ax.plot(*zip(*sorted(points), strict=True), style, color=color(name), label=words)
        axes(ax, "N", "", log="xy", byte="y", ticks=[row["N"] for row in part])
        ax.set_title(label(name), color=color(name), fontweight="bold")
    axs[0].set_ylabel("bytes moved")
    naive, ours = (dict(by(found.get(name, []), "N", "dram")) for name in (NAIVE, kernel.name))
    title = "Modelled traffic against the GPU's counters"
    if N := max(naive.keys() & ours.keys(), default=None):
        title = (f"At N = {N} DRAM moves {bytes_text(naive[N])} for {label(NAIVE)} attention, {bytes_text(ours[N])} "
                 f"for the kernel: {ratio_text(naive[N], ours[N])} times less")
    sizes = ", ".join(f"{key} = {every(rows, key)}" for key in ("B", "H", "d"))
    return finish(fig, title, f"{recorded(results)} DRAM and L2: counters of ncu; {every(rows, 'dtype')}, {sizes}, "
                              f"{mask_text(rows[0].get('causal'))}.{missing(results['rows'])}")


def missing(rows):
    """What was not measured, as a sentence; "" where all was."""
    found = group([row for row in rows if row.get("skipped")], "implementation")
    names = [f"{label(name)} at N = {every(part, 'N')} ({every(part, 'skipped')[:60]})" for name, part in found.items()]
    return f" Missing: {'; '.join(names)}." if names else ""


def modelled_traffic(model, row):
    """Bytes that the model counts for a row; without tiles of its own it has those of the course's first GPU kernel."""
    sizes = model.tiles(row.get("B_r", 128), row.get("B_c", 64))
    one = model.cost(row["N"], row["N"], row["d"], causal=row.get("causal", False),
                     element_size=getattr(torch, row["dtype"]).itemsize, **sizes)
    return row["B"] * row["H"] * one.traffic
