"""The pictures of chapter 07: what the rungs move, against N, the tile and the SRAM, and against a GPU's counters.

points: as flashlab_course.sweeps makes them.
"""

import math
import textwrap
from itertools import pairwise

import torch

from flashlab import cost
from flashlab.ladder import BACKWARD_RUNGS, RUNGS, find
from flashlab_course.figures.chapter_05 import BLOCK_LIMITS
from flashlab_course.figures.colors import FAINT, color, marker
from flashlab_course.figures.plots import axes, heading, panel, panels, plot, wall
from flashlab_course.figures.style import HALO, byte_axis, figure, finish, note, plain_log
from flashlab_course.figures.words import by, bytes_text, every, group, label, mask_text, ratio_text, recorded

NAIVE, FA2 = RUNGS[0].name, color("fa2_forward")


@figure
def traffic_against_N(points):
    """HBM bytes against N: dots measured under Memory, dashed lines the closed forms. points: as from sweeps.over_N."""
    fig, ax = against(points, "N", "N (queries = keys, one head)")
    fitting = [p for p in points if p["measured"] is not None]
    # what the ladder does not know: the learner's
    tiled = [p for p in points if getattr(find(p["rung"]), "tiled", True)]
    tiles = f", tiles of {every(tiled, 'B')} rows" if tiled else ""
    return finish(fig, title_at_last_N(fitting), f"{how_counted(points)} float32, d = {every(points, 'd')}, SRAM "
                  f"{every(points, 'sram_bytes', bytes_text)}{tiles}{', causal' * points[0]['causal']}.")


def against(points, key, xlabel):
    """A new figure with a dashed line and dots for each rung, crosses where its tiles do not fit."""
    fig, ax = panel(8, 4.6)
    for name, rows in group(points, "rung").items():
        plot(ax, label(name), by(rows, key, "formula"), color(name), "--", lw=1.4)
        plot(ax, "", by(rows, key, "measured"), color(name), marker(name))
        over = [p for p in rows if p["measured"] is None]
        plot(ax, "", by(over, key, "formula"), color(name), "x", ms=8, mew=2)
    axes(ax, xlabel, "HBM traffic (bytes)", log="xy", byte="y", ticks=sorted({p[key] for p in points}))
    return fig, ax


def how_counted(points):
    fitting = [p for p in points if p["measured"] is not None]
    exact = ", " if all(p["measured"] == p["formula"] for p in fitting) else "; NOT all "
    crosses = "" if len(fitting) == len(points) else ", × does not fit"
    return f"Modelled: dots counted by flashlab.memory{exact}equal to the formulas (dashed){crosses}."


def title_at_last_N(fitting):
    """Who moves most and least at the largest N; where something moves more than naive attention, that comes first."""
    N = max(p["N"] for p in fitting)
    last = {p["rung"]: p["measured"] for p in fitting if p["N"] == N}
    most, least = max(last, key=last.get), min(last, key=last.get)
    moves = lambda name: f"{label(name)} moves {bytes_text(last[name])}"
    if len(last) == 1:
        return f"At N = {N}, {moves(most)}"
    if NAIVE in last and most != NAIVE:
        more = [f"{moves(name)}, {ratio_text(last[name], last[NAIVE])} times as much" for name in last
                if last[name] > last[NAIVE]]
        return f"At N = {N}, {moves(NAIVE)}; {'; '.join(more)}"
    without_L = last[most] - cost.logsumexp(N, N).traffic
    also = f", {ratio_text(without_L, last[least])} without L in naive" if most == NAIVE else ""
    return (f"At N = {N}, {moves(most)}, {label(least)} {bytes_text(last[least])}: "
            f"{ratio_text(last[most], last[least])} times less{also}")


@figure
def share_of_naive(points):
    """Each rung's bytes as a share of naive attention's, with and without the logsumexp in it, against N.

    points: sweeps.over_N.
    """
    rungs = group([p for p in points if p["measured"] is not None], "rung")
    naive = dict(by(rungs.pop(NAIVE), "N", "measured"))
    fig, ax = panel(8, 4.6)
    last, N = {}, max(naive)
    for name, rows in rungs.items():
        for without, fill, words in ((0, color(name), ""), (1, "white", ", no L in naive")):
            shares = {p["N"]: p["measured"] / (naive[p["N"]] - without * cost.logsumexp(p["N"], p["N"]).traffic)
                      for p in rows}
            at_end = 100 * shares[max(shares)]
            plot(ax, f"{label(name)}: {at_end:.0f} %{words}", shares, color(name), f"-{marker(name)}", fill, lw=1.4)
            last.setdefault(name, []).append(at_end)
    line_of_naive(ax)
    axes(ax, "N (queries = keys, one head)", "share of naive attention's bytes", log="x", ticks=sorted(naive),
         ylim=(0, None))
    ax.yaxis.set_major_formatter("{x:.0%}")
    least = min(last, key=lambda name: last[name][0])
    seven, six = last[least]
    return finish(fig, f"At N = {N}, {label(least)} moves {seven:.0f} % of naive attention's bytes; {six:.0f} % if "
                       "naive attention need not compute L",
                  "Modelled: counted by flashlab.memory. Filled: naive attention with its seven crossings of S; "
                  f"hollow: with the six that are left without logsumexp. float32, d = {every(points, 'd')}, SRAM "
                  f"{every(points, 'sram_bytes', bytes_text)}.")


def line_of_naive(ax):
    ax.axhline(1, color=color(NAIVE), lw=1.4)
    note(ax, "naive", 0, 1, 4, 8, xycoords=ax.get_yaxis_transform(), fontweight="bold", color=color(NAIVE))


@figure
def break_even(points):
    """FA2's bytes as a share of naive attention's against the height of its query tiles.

    points: of sweeps.over_heights, any d.
    """
    fig, ax = panel(8, 4.6)
    first = []
    for d, rows in group(sorted(points, key=lambda p: p["B"]), "d").items():
        N, whole = rows[0]["N"], rows[0]["naive"]
        moved = {B: cost.fa2_forward(N, N, d, B_r=B, B_c=B).traffic for B in range(rows[0]["B"], rows[-1]["B"] + 1)}
        pays = []
        for naive, fill, words in ((whole, FA2, ""),
                                   (whole - cost.logsumexp(N, N).traffic, "white", ", no L in naive")):
            plot(ax, "", {B: b / naive for B, b in moved.items()}, FA2, "--", lw=1)
            plot(ax, f"d = {d}{words}", {p["B"]: p["measured"] / naive for p in rows}, FA2, marker("fa2_forward"), fill)
            pays.append(next((B for B in moved if moved[B] < naive), None))
        first.append(f"{pays[0]} at d = {d} ({pays[1]} without logsumexp in naive)")
    line_of_naive(ax)
    axes(ax, "height B_r of FA2's query tiles", "share of naive attention's bytes", log="xy",
         ticks=sorted({p["B"] for p in points}))
    plain_log(ax.yaxis, "{:.0%}".format)
    return finish(fig, f"FA2 moves fewer bytes than naive attention from B_r = {', '.join(first)}",
                  f"{how_counted(points)} float32, N = {every(points, 'N')}. Filled: against naive's seven crossings "
                  "of S; hollow: six.")


@figure
def traffic_against_sram(points):
    """HBM bytes against the size of the SRAM, each rung in tiles that fill it.

    points: sweeps.over_N of one N at several sizes.
    """
    fig, ax = against(points, "sram_bytes", "SRAM (bytes)")
    N, d = points[0]["N"], points[0]["d"]
    byte_axis(ax.xaxis)
    wall(ax, "M = d²", 4 * d * d)
    wall(ax, "M = Nd", 4 * N * d)
    for n, (words, nbytes) in enumerate(BLOCK_LIMITS.items()):
        ax.axvline(nbytes, color=FAINT, lw=1, zorder=0)
        note(ax, f"{words}: {bytes_text(nbytes)}", nbytes, 0, 3, 8 + 12 * n, xycoords=ax.get_xaxis_transform(),
             fontsize=8, path_effects=HALO)
    (small, most), *_, (large, least) = by([p for p in points if p["rung"] == "fa2_forward"], "sram_bytes", "measured")
    return finish(fig, f"{large / small:g} times the SRAM, {ratio_text(most, least)} times fewer bytes in FA2",
                  f"{how_counted(points)} float32, N = {N}, d = {d}, default tiles. M = d² and M = Nd: elements of 4 "
                  "bytes.")


@figure
def traffic_against_tile(points):
    """HBM bytes against the tile size B; where the tiles overflow the SRAM, only the formula is left.

    points: sweeps.over_tiles.
    """
    fig, ax = against(points, "B", "tile size B (B_r = B_c = B rows)")
    right, first = ax.get_xlim()[1], []
    for name, rows in group(points, "rung").items():
        over, fits = ([p["B"] for p in rows if (p["measured"] is None) == gone] for gone in (True, False))
        if over:                                               # shaded from half-way, on a log axis
            ax.axvspan(math.sqrt(max(fits, default=min(over) / 2) * min(over)), right, color=color(name), alpha=0.09,
                       lw=0, zorder=0)
            first.append(f"\n{label(name)} from B = {min(over)}")
    if first:
        ax.set_xlim(right=right)
        note(ax, f"SRAM overflow\n(budget {every(points, 'sram_bytes', bytes_text)}){''.join(first)}", 1, 1, -6, -4,
             xycoords="axes fraction", ha="right", va="top")
    return finish(fig, tile_title(points),
                  "Modelled: dots counted by flashlab.memory, dashed the formulas, × does not fit. float32, N = "
                  f"{every(points, 'N')}, d = {every(points, 'd')}{', causal' * points[0]['causal']}.")


def tile_title(points):
    fitting = sorted((p for p in points if p["measured"] is not None), key=lambda p: p["B"])
    if not fitting:
        return "No tile size fits the SRAM"
    best = min(fitting, key=lambda p: p["measured"])
    falling = all(a["measured"] >= b["measured"] for rows in group(fitting, "rung").values()
                  for a, b in pairwise(rows))
    until = " until the SRAM overflows" if len(fitting) < len(points) else ""
    claim = f"Larger tiles move fewer bytes{until}" if falling else "The best tile is not the largest"
    return f"{claim}: {label(best['rung'])} gets down to {bytes_text(best['measured'])} at B = {best['B']}"


def kernels_measured(results):
    """The rungs that run on a GPU and were measured, in the ladder's order; all that run on one, where none was."""
    there = {row["implementation"] for row in results["rows"] if not row.get("skipped")}
    kernels = [r for r in (BACKWARD_RUNGS if results.get("what") == "backward" else RUNGS) if r.heads]
    return [r for r in kernels if r.name in there] or kernels


def missing(results, rows):
    """What was not measured and why, a line below the source; "" where all was."""
    found = {}
    for row in rows:
        if row.get("skipped"):
            found.setdefault((label(row["implementation"]), textwrap.shorten(row["skipped"], 90)), []).append(row["N"])
    notes = [f"{name} at N = {', '.join(map(str, sorted(Ns)))}: {why}" for (name, why), Ns in found.items()]
    notes += [] if results.get("complete", True) else ["what the run had not reached when it was cut off"]
    return f"\nMissing: {'; '.join(notes)}." if notes else ""


@figure
def model_vs_counters(results, without_L=None):
    """Modelled HBM traffic against a GPU's hardware counters, one panel an implementation.

    results: a dict with "what": "counters"; without_L: N -> the bytes of DRAM that naive attention moves for O alone
    """
    rows = [row | {"dram": row["dram_read"] + row["dram_written"]} for row in results["rows"] if not row.get("skipped")]
    series = {name: sorted(part, key=lambda row: row["N"]) for name, part in group(rows, "implementation").items()}
    if not series:
        raise ValueError("results hold no row with counters; 'skipped' in a row says why")
    kernel, without_L = kernels_measured(results)[-1], without_L or {}
    fig, axs = panels(len(series), size=(4.8 * len(series), 4.4), sharey=True)
    for ax, (name, part) in zip(axs, series.items(), strict=True):
        draw_counters(ax, name, part, find(name) if name == NAIVE else kernel, without_L if name == NAIVE else {})
    axs[0].set_ylabel("bytes moved")
    naive, ours = (dict(by(series.get(name, []), "N", "dram")) for name in (NAIVE, kernel.name))
    title = "Modelled traffic against the GPU's counters"
    if N := max(naive.keys() & ours.keys(), default=None):
        title = (f"At N = {N} DRAM moves {bytes_text(naive[N])} for {label(NAIVE)} attention, {bytes_text(ours[N])} "
                 f"for the kernel: {ratio_text(naive[N], ours[N])} times less")
        if N in without_L:
            title += f", {ratio_text(without_L[N], ours[N])} times if naive attention computes no L"
    sizes = ", ".join(f"{key} = {every(rows, key)}" for key in ("B", "H", "d"))
    return finish(fig, title, f"{recorded(results)} DRAM and L2: counters of ncu; {every(rows, 'dtype')}, {sizes}, "
                              f"{mask_text(rows[0].get('causal'))}. Dashed: modelled. Where L2 is above DRAM, the "
                              "cache served the rest." + missing(results, results["rows"]))


def draw_counters(ax, name, rows, model, without_L):
    """One implementation's bytes against N: by the cost of the rung `model`, of DRAM, of L2."""
    modelled = {row["N"]: modelled_traffic(model, row) for row in rows}
    plot(ax, "model", modelled, color(name), "--")
    plot(ax, "DRAM", by(rows, "N", "dram"), color(name))
    plot(ax, "L2", by(rows, "N", "l2_bytes"), color(name), "s:", "white")
    plot(ax, "DRAM, O alone", sorted(without_L.items()), color(name), ".-", lw=1)
    axes(ax, "N", "", log="xy", byte="y", ticks=list(modelled))
    last = rows[-1]
    heading(ax, f"{label(name)}: DRAM is {last['dram'] / modelled[last['N']]:.2g} × model at N = {last['N']}",
            color(name))
    ax.title.set_fontsize(9)


def modelled_traffic(model, row):
    """Bytes that the model counts for a row; without tiles of its own it has those of the course's first GPU kernel."""
    sizes = model.tiles(row.get("B_r", 128), row.get("B_c", 64))
    one = model.cost(row["N"], row["N"], row["d"], causal=row.get("causal", False),
                     element_size=getattr(torch, row["dtype"]).itemsize, **sizes)
    return row["B"] * row["H"] * one.traffic
